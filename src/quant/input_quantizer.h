// Activations as a 4-bit or 8-bit engine sees them (cli.md section 5): each row becomes codes times
// block scales, which a linear then multiplies, and one factor a row that the result is multiplied
// with behind it (the epilogue's alpha, without the weight's part).
//
//   kNvfp4  E2M1 code * E4M3 scale a block of 16, by one of the block quantizers of nvfp4.h. Such a
//           value has at most six significant bits, so float32 and BF16 hold it exactly.
//   kInt8   int8 code * float32 scale a block of 16: scale = amax / 127, nearest even.
//   kFp8    E4M3 of x / g, saturating; no block scales.
//
// NaN is what the quantizer makes of it: A and B drop it (nvfp4.md 1.7), a scale measured from NaN
// makes its rows NaN. Who looks for NaN looks at the rows before they come here.
#pragma once

#include <cstdint>
#include <span>

#include "base/view.h"
#include "quant/nvfp4.h"

namespace sextant {

enum class InputForm : uint8_t { kPlain, kNvfp4, kInt8, kFp8 };  // kPlain: not quantized

// Where the scale comes from: given, from all rows of the call, or from each row.
enum class InputScale : uint8_t { kStatic, kTensor, kToken };

struct InputQuantizer {
  InputForm form = InputForm::kPlain;
  InputScale scale = InputScale::kStatic;
  bool from_bf16 = false;                   // x is rounded to BF16 first, as engines have it
  Nvfp4Profile profile = Nvfp4Profile::kA;  // kNvfp4; one that takes a divisor
  float divisor = 1.0F;                     // kNvfp4 with kStatic: G = 2688 / amax
  float multiplier = 1.0F;                  // kStatic: g, what results are multiplied with

  bool operator==(const InputQuantizer&) const = default;
  bool quantizes() const { return form != InputForm::kPlain; }
};

// x [m, k] to out [m, k], which may be x, and row_multiplier [m]. Blocks run along k from the row's
// start; a last one that is not full counts as if zeros followed. A row, or for kTensor a call, of
// zeros has multiplier 1.
void quantize_input(const InputQuantizer& quantizer, Mat<const float> x, Mat<float> out,
                    std::span<float> row_multiplier);

// The largest magnitude of all rows as the quantizer sees them, NaN where there is one: what
// kTensor derives its scale from.
float input_amax(const InputQuantizer& quantizer, Mat<const float> x);

// Rows [begin, end) alone; amax as input_amax gives it for the whole call (read for kTensor).
void quantize_input_rows(const InputQuantizer& quantizer, Mat<const float> x, float amax,
                         Mat<float> out, std::span<float> row_multiplier, int64_t begin,
                         int64_t end);

}  // namespace sextant
