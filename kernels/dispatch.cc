#include <cstring>
#include <initializer_list>

#include "kernels/kernels.h"

namespace lookback::kernels {

#ifndef LOOKBACK_HAVE_AVX2
const KernelTable* Avx2Kernels() { return nullptr; }
#endif

const KernelTable* const* UsableKernels() {
  static constexpr size_t kSets = 2;
  struct List {
    const KernelTable* sets[kSets + 1] = {};
    List() {
      size_t count = 0;
      for (const KernelTable* set : {Avx2Kernels(), &ReferenceKernels()}) {  // best first
        if (set != nullptr) sets[count++] = set;
      }
    }
  };
  static const List list;
  return list.sets;
}

const KernelTable* FindKernels(const char* name) {
  const KernelTable* const* sets = UsableKernels();
  if (*name == '\0') return *sets;
  while (*sets != nullptr && std::strcmp((*sets)->name, name) != 0) ++sets;
  return *sets;
}

}  // namespace lookback::kernels
