#include <array>
#include <cstring>

#include "kernels/kernels.h"

#ifdef LOOKBACK_X86_SETS
#include <cpuid.h>
#endif

namespace lookback::kernels {
namespace {

struct VectorSet {
  const char* name;
  bool (*usable)();
  void (*fill)(KernelTable&);
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

namespace {

bool HasAvx2() {
  // Every CPU with these two has F16C as well, which not every compiler can be asked for.
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool HasAvxVnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAvxVnni = 1U << 4;
  return HasAvx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvxVnni) != 0;
}

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool HasAvx512Vnni() { return HasAvx512() && __builtin_cpu_supports("avx512vnni"); }

constexpr std::array kVectorSets = {
    // Best first.
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
    for (const VectorSet& set : kVectorSets) {
      if (!set.usable()) continue;
      KernelTable& table = tables[count];
      table = ReferenceKernels();
      table.name = set.name;
      set.fill(table);
      usable[count++] = &table;
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
