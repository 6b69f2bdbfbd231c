// Implements scale_use.h.
#include "quant/scale_use.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "quant/e4m3.h"
#include "quant/nvfp4.h"

namespace sextant {
namespace {

constexpr uint8_t kLargestScale = 0x7E;
constexpr uint8_t kSmallestNormal = 0x08;

// The compiler's own vector type: the same operations on any CPU.
using IntLanes = int32_t __attribute__((vector_size(16)));

// The bits of the largest magnitude; of a NaN if there is one.
float block_amax(const float* x) {
  IntLanes v[4];
  std::memcpy(v, x, sizeof(v));
  for (IntLanes& lanes : v) lanes &= 0x7FFFFFFF;
  const IntLanes a = v[0] > v[1] ? v[0] : v[1];
  const IntLanes b = v[2] > v[3] ? v[2] : v[3];
  const IntLanes most = a > b ? a : b;
  const IntLanes swapped = __builtin_shufflevector(most, most, 2, 3, 0, 1);
  const IntLanes two = most > swapped ? most : swapped;
  return std::bit_cast<float>(std::max(two[0], two[1]));
}

// Quantizer A's t = G * (amax / 6) of almost every block lies where the byte is normal and not the
// largest (432 is the tie between 416 and 448): nothing to count, and no byte is needed to say so.
bool is_ordinary(const float* x, float G) {
  const float t = G * (block_amax(x) * (1.0F / 6.0F));
  return t >= 0x1p-6F && t < 432.0F;
}

void count_block(const float* x, float g, float G, ScaleUse& use) {
  ++use.n_blocks;
  if (is_ordinary(x, G)) return;
  const uint8_t scale = nvfp4_block_scale(Nvfp4Profile::kA, x, G);
  // Rounding moves a normal scale by at most a sixteenth, which takes no element to 6.5: only the
  // largest and the subnormal ones can clip.
  if (scale >= kSmallestNormal && scale != kLargestScale) return;
  if (scale == 0) {
    const auto n = std::count_if(x, x + kNvfp4Block, [](float v) { return v != 0.0F; });
    use.n_underflowed += n;
    use.n_zero_blocks += n > 0 ? 1 : 0;
    return;
  }
  use.n_saturated_blocks += scale == kLargestScale ? 1 : 0;
  use.n_subnormal_blocks += scale < kSmallestNormal ? 1 : 0;
  const float limit = 6.5F * nvfp4_step(scale, {g, false});
  use.n_clipped += std::count_if(x, x + kNvfp4Block, [&](float v) { return std::abs(v) > limit; });
}

}  // namespace

void ScaleUse::add(const ScaleUse& other) {
  n_elements += other.n_elements;
  n_clipped += other.n_clipped;
  n_underflowed += other.n_underflowed;
  n_subnormal += other.n_subnormal;
  n_blocks += other.n_blocks;
  n_saturated_blocks += other.n_saturated_blocks;
  n_zero_blocks += other.n_zero_blocks;
  n_subnormal_blocks += other.n_subnormal_blocks;
}

ScaleUse nvfp4_scale_use(std::span<const float> row, float g) {
  ScaleUse use;
  const float G = 1.0F / g;
  const auto n = static_cast<int64_t>(row.size());
  use.n_elements = n;
  int64_t i = 0;
  for (; i + kNvfp4Block <= n; i += kNvfp4Block) count_block(row.data() + i, g, G, use);
  if (i < n) {
    std::array<float, kNvfp4Block> last{};
    std::copy(row.begin() + i, row.end(), last.begin());
    count_block(last.data(), g, G, use);
  }
  return use;
}

ScaleUse fp8_scale_use(std::span<const float> row, float g) {
  ScaleUse use;
  use.n_elements = static_cast<int64_t>(row.size());
  for (const float x : row) {
    const float t = std::abs(x / g);
    const uint8_t code = e4m3_encode(t);
    use.n_clipped += t > 464.0F ? 1 : 0;
    use.n_underflowed += code == 0 && x != 0.0F ? 1 : 0;
    use.n_subnormal += code > 0 && code < kSmallestNormal ? 1 : 0;
  }
  return use;
}

}  // namespace sextant
