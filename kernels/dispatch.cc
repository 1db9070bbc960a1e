#include <array>
#include <cstring>
#include <string_view>

#include "kernels/kernels.h"

#ifdef LOOKBACK_X86_SETS
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace lookback::kernels {
namespace {

struct VectorSet {
  const char* name;
  bool (*usable)();
  void (*fill)(KernelTable&);
  bool (*preferred)() = [] { return true; };  // or after the others, where forced
};

}  // namespace

#ifdef LOOKBACK_X86_SETS

// What cpu/vector/set.cc puts into a table, once a set.
namespace avx2 {
void Fill(KernelTable& table);
}
namespace avxvnni {
void Fill(KernelTable& table);
}
namespace avx512 {
void Fill(KernelTable& table);
}
namespace avx512vnni {
void Fill(KernelTable& table);
}
namespace avx512bf16 {
void Fill(KernelTable& table);
}
namespace amx {
void Fill(KernelTable& table);
}

namespace {

bool HasAvx2() {
  // Every CPU with these two has F16C as well, which not every compiler can be asked for.
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/// Whether EAX of CPUID's leaf 7, subleaf 1, has `bit`, which not every compiler can be asked for.
bool HasExtension(int bit) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> bit & 1U) != 0;
}

bool HasAvxVnni() { return HasAvx2() && HasExtension(4); }

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool HasAvx512Vnni() { return HasAvx512() && __builtin_cpu_supports("avx512vnni"); }

bool HasAvx512Bf16() { return HasAvx512Vnni() && HasExtension(5); }

/// Whether the CPU has AMX for bf16 and bytes, and the system lets this process have the tiles:
/// Linux wants to be asked (arch_prctl's ARCH_REQ_XCOMP_PERM for state component 18), since signal
/// frames and switches between threads grow by 8 KiB where they are used.
bool HasAmx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!HasAvx512Bf16() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24, kInt8 = 1U << 25;
  if ((d & kBf16) == 0 || (d & kTile) == 0 || (d & kInt8) == 0) return false;
#ifdef __linux__
  constexpr int64_t kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

/// CPUs that multiply more bf16 in a second than f32, which CPUID has no bit for. Intel's with this
/// instruction (Cooper Lake, Sapphire and Emerald Rapids) multiply half as many.
struct Family {
  std::string_view vendor;
  unsigned first;  // and those after it
};
constexpr Family kFastBf16[] = {
    {"AuthenticAMD", 0x19},  // Zen 4; Zen 3, of this family too, has no such instruction
};

bool MultipliesBf16Fast() {
  unsigned a = 0, vendor[3] = {}, signature = 0, unused = 0;
  if (__get_cpuid(0, &a, &vendor[0], &vendor[2], &vendor[1]) == 0) return false;
  if (__get_cpuid(1, &signature, &unused, &unused, &unused) == 0) return false;
  const unsigned base = signature >> 8 & 0xF;
  const unsigned family = base == 0xF ? base + (signature >> 20 & 0xFF) : base;
  const std::string_view name(reinterpret_cast<const char*>(vendor), sizeof vendor);
  for (const Family& fast : kFastBf16) {
    if (name == fast.vendor && family >= fast.first) return true;
  }
  return false;
}

constexpr std::array kVectorSets = {
    // Best first.
    VectorSet{"amx", HasAmx, amx::Fill},
    VectorSet{"avx512bf16", HasAvx512Bf16, avx512bf16::Fill, MultipliesBf16Fast},
    VectorSet{"avx512vnni", HasAvx512Vnni, avx512vnni::Fill},
    VectorSet{"avx512", HasAvx512, avx512::Fill},
    VectorSet{"avxvnni", HasAvxVnni, avxvnni::Fill},
    VectorSet{"avx2", HasAvx2, avx2::Fill},
};

#else

namespace {

constexpr std::array<VectorSet, 0> kVectorSets;

#endif

struct Sets {
  std::array<KernelTable, kVectorSets.size()> tables;
  std::array<const KernelTable*, kVectorSets.size() + 2> usable = {};  // the reference and the null

  Sets() {
    size_t count = 0;
    for (const bool preferred : {true, false}) {
      for (const VectorSet& set : kVectorSets) {
        if (!set.usable() || set.preferred() != preferred) continue;
        KernelTable& table = tables[count];
        table = ReferenceKernels();
        table.name = set.name;
        set.fill(table);
        usable[count++] = &table;
      }
    }
    usable[count] = &ReferenceKernels();
  }
};

}  // namespace

const KernelTable* const* UsableKernels() {
  static const Sets sets;
  return sets.usable.data();
}

const KernelTable* FindKernels(const char* name) {
  const KernelTable* const* sets = UsableKernels();
  if (*name == '\0') return *sets;
  while (*sets != nullptr && std::strcmp((*sets)->name, name) != 0) ++sets;
  return *sets;
}

}  // namespace lookback::kernels
