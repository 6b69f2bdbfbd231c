// The arithmetic behind one global scale: what amax it stands for under each convention, what
// speaks for each, where an NVFP4 quantizer with it saturates and underflows, what that costs, and
// what engines make of a number that is no scale at all. Pure computation on one number; it reads
// no model and prints nothing. Sections of docs/nvfp4.md: 1.7, 2.2, 3.1 and 4.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sextant {

enum class ScaleKind : uint8_t { kInput, kWeight, kCache };
enum class ScalePrior : uint8_t { kNone, kMultiplier, kDivisor };  // what a name says (3.1.1)

struct ScaleName {
  std::string_view name;
  ScaleKind kind = ScaleKind::kInput;
  ScalePrior prior = ScalePrior::kNone;
  std::string_view meaning;  // a sentence
};
std::span<const ScaleName> scale_names();
const ScaleName* find_scale_name(std::string_view name);  // nullptr for any other name

struct ExplainQuestion {
  double value = 0;                // the number as stored
  std::string typed;               // as typed, for the text; empty: made from the value
  double half_unit = 0;            // half a unit of the last digit typed; 0: every digit is known
  std::string name;                // of scale_names(); empty: taken as an activation's scale
  std::string layer;               // "q_a_proj": for the text only
  std::optional<int64_t> k;        // input channels, for the norm bound; of activations only
  std::optional<double> norm_max;  // max |w| of the norm before it, as applied; needs k
};

// Does the amax come from BF16 data (3.1.4b)? With every digit of the float32 known, by the low 16
// bits of the amax; else by whether the nearest BF16 amax gives each digit typed.
struct GridTest {
  double nearest = 0;       // BF16 amax
  double stored = 0;        // the number that amax would be stored as
  bool by_bits = false;     // float32 amax within 4 ulp of a BF16 value
  bool to_digits = false;   // `stored` is within half_unit of the number
  bool few_digits = false;  // to_digits counts, not by_bits
  bool passed = false;
  double chance = 1;  // that a random number passes
};

// Of blocks, by their amax b (4.2); of elements where there are no blocks (FP8).
struct ScaleLimits {
  double saturates_above = 0;      // the calibrated amax
  double nan_above = 0;            // a cast that does not saturate gives NaN: 464/448 amax
  double subnormal_below = 0;      // amax * 2^-14.81
  double smallest_code_below = 0;  // block scale 0x01 from zero_up_to to here
  double zero_up_to = 0;           // amax * 2^-18.81
};

// One way to read the number.
struct Hypothesis {
  std::string name;  // "multiplier (ModelOpt)", "divisor (compressed-tensors)"
  bool divisor = false;
  double unit = 2688;  // 6 * 448; 448 where there are no blocks
  double amax = 0;     // calibrated amax it stands for
  double G = 0;        // encode scale: what block scales are multiplied with
  GridTest grid;
  ScaleLimits limits;
  std::optional<double> needs_norm_max;  // smallest max |w| that allows this amax (k given)
  bool usual = false;                    // an amax as they are in practice
  bool rejected = false;                 // by the norm bound, or by magnitude
  std::string reason;
};

struct SnrRow {
  double log2_ratio = 0;  // actual amax / calibrated amax
  double down_to = 0;     // the row holds from log2_ratio down to here
  double gauss_db = 0, laplace_db = 0, t4_db = 0, outlier_channels_db = 0, swiglu_db = 0;
  double gauss_clipped_percent = 0, outlier_zero_blocks_percent = 0;
};
std::span<const SnrRow> snr_table();  // 4.1: of every NVFP4 scale, whatever the number

enum class ScaleFault : uint8_t { kNone, kNan, kInfinite, kZero, kNegative, kDenormal };
std::string_view fault_name(ScaleFault fault);  // "none", "nan", "infinite", ...

struct EnginePath {
  std::string path;    // engine, and how it reads the number
  std::string effect;  // what comes out
};

struct Explanation {
  ExplainQuestion question;
  ScaleKind kind = ScaleKind::kInput;
  ScalePrior prior = ScalePrior::kNone;
  ScaleFault fault = ScaleFault::kNone;  // any other is error C3, and there are no readings
  std::vector<Hypothesis> readings;      // of a cache scale NVFP4 and FP8, else both conventions
  std::optional<size_t> accepted;        // of readings; none where the number alone cannot say
  bool against_name = false;             // the accepted reading is not the one of the name
  std::optional<double> norm_bound;      // sqrt(k) * norm_max
  std::string verdict;                   // one sentence
  std::vector<EnginePath> engines;
  std::vector<std::string> notes;  // sentences
};

Explanation explain_scale(const ExplainQuestion& question);

// So many significant digits, as people write them: 1.07e7.
std::string scale_figure(double value, int digits);
// "0.67578125 = 173/256" for a BF16 value with a small power of two below, else only the number.
std::string bf16_figure(double value);

}  // namespace sextant
