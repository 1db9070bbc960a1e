#ifdef __AMX_TILE__
#include "kernels/cpu/vector/amx.h"
#endif
#ifdef __AVX512BF16__
#include "kernels/cpu/vector/bf16.h"
#endif
#include "kernels/cpu/vector/bytes.h"
#include "kernels/cpu/vector/set.h"
#include "kernels/cpu/vector/simd.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

// Enough sums that no instruction waits for the one before it, few enough for the registers.
constexpr int64_t kSums = 12;
constexpr double kOperations = 2.0 * kSums * kLanes;

/// Takes each of kSums sums, which begin as `x`, through next(sum, x), `rounds` times over.
template <typename Register, typename Next>
inline void Repeat(int64_t rounds, Register x, const Next& next) {
  Register sums[kSums];
  Unrolled<kSums>([&](auto i) { sums[i] = x; });
  for (int64_t round = 0; round < rounds; ++round) {
    Unrolled<kSums>([&](auto i) __attribute__((always_inline)) {
      sums[i] = next(sums[i], x);
      Keep(sums[i]);
    });
  }
}

#ifdef __AMX_TILE__
/// What two sides of two whole tiles each make, which hold zeros.
double TilePeak(Element type, int64_t rounds) {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.Set(tile, kTileSide, kTileRowBytes);
  ShapeTiles(shapes);
  for (int64_t round = 0; round < rounds; ++round) {
    if (type == Element::kQ8) {
      AddTileOfBytes<0, 4, 6>();
      AddTileOfBytes<1, 4, 7>();
      AddTileOfBytes<2, 5, 6>();
      AddTileOfBytes<3, 5, 7>();
    } else {
      AddTileOfBF16<0, 4, 6>();
      AddTileOfBF16<1, 4, 7>();
      AddTileOfBF16<2, 5, 6>();
      AddTileOfBF16<3, 5, 7>();
    }
  }
  ReleaseTiles();
  const int64_t products = kTileSide * kTileSide * (type == Element::kQ8 ? 64 : 32);
  return static_cast<double>(rounds * 4 * products * 2);
}
#endif

}  // namespace

double Peak(Element type, int64_t rounds) {
#ifdef __AMX_TILE__
  if (type == Element::kQ8 || type == Element::kBF16) return TilePeak(type, rounds);
#endif
  if (type == Element::kQ8) {
    constexpr int8_t kOnes[4] = {1, 1, 1, 1};
    Repeat(rounds, AllLanes(kOnes), [](Ints sum, Ints ones) {
      if constexpr (kHasDots) return AddDots(sum, ones, ones);
      return Add32(sum, AddPairs(MultiplyPairs(sum, ones)));
    });
    return 4 * kOperations * static_cast<double>(rounds);
  }
#ifdef __AVX512BF16__
  if (type == Element::kBF16) {
    const auto zeros = reinterpret_cast<Pairs>(Ints{});
    Repeat(rounds, All(0.5F), [zeros](Floats sum, Floats) { return AddDots(sum, zeros, zeros); });
    return 2 * kOperations * static_cast<double>(rounds);
  }
#endif
  Repeat(rounds, All(0.5F), [](Floats sum, Floats half) { return Fma(sum, half, half); });
  return kOperations * static_cast<double>(rounds);
}

}  // namespace lookback::kernels::LOOKBACK_SET
