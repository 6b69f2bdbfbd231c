#include "doctor/explain.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

#include <fmt/core.h>

#include "doctor/explain_tables.h"
#include "quant/bf16.h"

namespace sextant {
namespace {

constexpr double kExplainNvfp4Unit = 2688;  // 6 * 448
constexpr double kExplainFp8Unit = 448;
constexpr double kExplainNormSlack = 1.02;  // 3.1.4c
constexpr const char* kInputScaleUnused = "unused: activations are not quantized";
constexpr double kTellingChance = 0.05;  // a grid test that more numbers pass says nothing

// What amax a scale of this kind stands for in practice (3.1.2, 3.1.4), and what is out of the
// question: for activations two decades beyond; for weights the rule a < 0.05, a > 5.
struct AmaxRange {
  double usual_from, usual_to;
  double from, to;
};
AmaxRange scale_amax_range(ScaleKind kind, bool divisor) {
  if (kind == ScaleKind::kWeight)
    return {0x1p-14, 0x1p6, 0x1p-14 / 100,
            divisor ? kExplainNvfp4Unit / 0.05 : kExplainNvfp4Unit * 5};
  return {1e-2, 1e4, 1e-4, 1e6};
}

std::string_view scale_noun(ScaleKind kind) {
  return kind == ScaleKind::kWeight ? "weights" : "activations";
}

std::string scale_number(const ExplainQuestion& question) {
  return question.typed.empty() ? fmt::format("{}", question.value) : question.typed;
}

// The bound of the norm is a lower one for max |w|: below 1 two digits say enough.
std::string norm_max_figure(double value) { return scale_figure(value, value < 1 ? 2 : 3); }

ScaleFault scale_fault(double value) {
  const float stored = static_cast<float>(value);
  if (std::isnan(stored)) return ScaleFault::kNan;
  if (stored == 0) return ScaleFault::kZero;
  if (stored < 0) return ScaleFault::kNegative;
  if (std::isinf(stored)) return ScaleFault::kInfinite;
  return stored < FLT_MIN ? ScaleFault::kDenormal : ScaleFault::kNone;
}

// Example: 0.00025141 has 5 digits, half a unit is 5e-9, and 2688 times that much to both sides
// covers 2.7e-5 of the 2^-8 between BF16 values in [0.5, 1): 0.7 % of all numbers pass.
GridTest bf16_grid_test(const ExplainQuestion& question, const Hypothesis& reading) {
  GridTest test;
  const float value = static_cast<float>(question.value);
  const float unit = static_cast<float>(reading.unit);
  const float amax = reading.divisor ? unit / value : unit * value;
  if (!std::isfinite(amax) || amax < FLT_MIN) return test;
  const uint32_t low = std::bit_cast<uint32_t>(amax) & 0xFFFFU;
  test.by_bits = low <= 4 || low >= 0x10000U - 4;
  test.nearest = round_to_bf16(amax);
  const double nearest = test.nearest;
  test.stored = reading.divisor ? reading.unit / nearest : nearest / reading.unit;
  const double half = question.half_unit;
  const double rounding = question.value * 0x1p-24;  // of the float32 that is stored
  test.few_digits = half > rounding;
  test.to_digits = std::abs(test.stored - question.value) <= half + rounding;
  test.passed = test.few_digits ? test.to_digits : test.by_bits;
  test.chance = 9.0 / 65536;
  if (test.few_digits) {
    const double spacing = std::ldexp(1.0, std::ilogb(amax) - 7);
    const double relative = std::min(half / question.value, 0.5);
    const double width = reading.divisor ? reading.amax * (1 / (1 - relative) - 1 / (1 + relative))
                                         : reading.amax * 2 * relative;
    test.chance = std::min(1.0, width / spacing);
  }
  return test;
}

bool is_telling(const GridTest& test) { return test.passed && test.chance <= kTellingChance; }

ScaleLimits scale_limits(double amax) {
  return {amax, amax * 464 / 448, amax * 0x1p-6 / 448, amax * 3 * 0x1p-10 / 448,
          amax * 0x1p-10 / 448};
}

void judge_reading(const Explanation& all, Hypothesis& reading) {
  const ExplainQuestion& question = all.question;
  const AmaxRange range = scale_amax_range(all.kind, reading.divisor);
  const std::string usual =
      fmt::format("what {} reach ({} to {})", scale_noun(all.kind),
                  scale_figure(range.usual_from, 2), scale_figure(range.usual_to, 2));
  const std::string amax = scale_figure(reading.amax, 3);
  reading.usual = reading.amax >= range.usual_from && reading.amax <= range.usual_to;
  reading.rejected = reading.amax < range.from || reading.amax > range.to;
  if (reading.rejected)
    reading.reason = fmt::format("amax {} is far from {}", amax, usual);
  else if (!reading.usual)
    reading.reason = fmt::format("amax {} is unusual, outside {}", amax, usual);
  else
    reading.reason = fmt::format("amax {} is within {}", amax, usual);
  if (!question.k) return;
  reading.needs_norm_max = reading.amax / std::sqrt(static_cast<double>(*question.k));
  if (all.norm_bound) {
    const bool over = reading.amax > kExplainNormSlack * *all.norm_bound;
    reading.rejected = reading.rejected || over;
    reading.reason += fmt::format("; {} sqrt({}) * {} = {}, which no output of that norm exceeds",
                                  over ? "it exceeds" : "it is within", *question.k,
                                  *question.norm_max, scale_figure(*all.norm_bound, 4));
  } else {
    reading.reason += fmt::format("; a norm before it would need max|w| >= {}",
                                  norm_max_figure(*reading.needs_norm_max));
  }
}

Hypothesis make_reading(const Explanation& all, std::string name, bool divisor, double unit) {
  Hypothesis reading;
  reading.name = std::move(name);
  reading.divisor = divisor;
  reading.unit = unit;
  const double value = all.question.value;
  reading.amax = divisor ? unit / value : unit * value;
  reading.G = divisor ? value : 1 / value;
  reading.limits = scale_limits(reading.amax);
  reading.grid = bf16_grid_test(all.question, reading);
  if (all.kind != ScaleKind::kCache) judge_reading(all, reading);
  return reading;
}

// Among what is not rejected the name decides; a bare number is decided by the grid, or not.
std::optional<size_t> accepted_reading(const Explanation& all) {
  const Hypothesis& multiplier = all.readings[0];
  const Hypothesis& divisor = all.readings[1];
  if (multiplier.rejected && divisor.rejected) return std::nullopt;
  if (multiplier.rejected || divisor.rejected) return multiplier.rejected ? 1 : 0;
  if (all.prior != ScalePrior::kNone) return all.prior == ScalePrior::kDivisor ? 1 : 0;
  if (is_telling(multiplier.grid) == is_telling(divisor.grid)) return std::nullopt;
  return is_telling(divisor.grid) ? 1 : 0;
}

const char* reading_convention(const Hypothesis& reading) {
  return reading.divisor ? "divisor" : "multiplier";
}
const char* reading_dialect(const Hypothesis& reading) {
  return reading.divisor ? "compressed-tensors" : "ModelOpt";
}

std::string misreading(ScaleKind kind, const Hypothesis& right, const Hypothesis& wrong) {
  if (kind == ScaleKind::kWeight)
    return fmt::format("makes every weight wrong by a factor of {}",
                       scale_figure(wrong.amax / right.amax, 2));
  if (right.amax <= wrong.limits.zero_up_to)
    return fmt::format("turns every block with amax up to {} into exact zeros, not NaN",
                       scale_figure(wrong.limits.zero_up_to, 4));
  if (right.amax < wrong.limits.subnormal_below)
    return fmt::format("loses blocks with amax up to {} and has full precision only from {} on",
                       scale_figure(wrong.limits.zero_up_to, 4),
                       scale_figure(wrong.limits.subnormal_below, 3));
  if (right.amax > wrong.amax)
    return fmt::format("clamps every element to +-{}", scale_figure(wrong.amax, 5));
  return fmt::format("takes amax for {}, which costs little", scale_figure(wrong.amax, 5));
}

std::string accepted_verdict(const Explanation& all) {
  const Hypothesis& right = all.readings[*all.accepted];
  const Hypothesis& wrong = all.readings[1 - *all.accepted];
  std::string text = fmt::format("{} is a {} {} {}: calibrated amax {}", scale_number(all.question),
                                 right.usual ? "healthy" : "plausible", reading_dialect(right),
                                 reading_convention(right), scale_figure(right.amax, 5));
  if (is_telling(right.grid))
    text += fmt::format(" (the bfloat16 value {} gives it to {})", bf16_figure(right.grid.nearest),
                        right.grid.few_digits ? "every digit typed" : "the last bits of float32");
  if (all.kind == ScaleKind::kInput)
    text += fmt::format(
        ", and G = {} is its ordinary operating point: it scales block scales, never activations, "
        "so nothing overflows",
        scale_figure(right.G, 5));
  if (all.against_name)
    text += fmt::format("; its name says {}, so whatever wrote the file mixed up the two",
                        reading_convention(wrong));
  else if (!is_telling(right.grid) && is_telling(wrong.grid))
    text += fmt::format(
        "; but the bfloat16 grid speaks for a {} (a random number does so with {} "
        "%), so look at the other layers of the file",
        reading_convention(wrong), scale_figure(100 * wrong.grid.chance, 1));
  return text + fmt::format("; a reader that takes it for a {} {}.", reading_convention(wrong),
                            misreading(all.kind, right, wrong));
}

std::string scale_verdict(const Explanation& all) {
  const std::string number = scale_number(all.question);
  const Hypothesis& first = all.readings[0];
  const Hypothesis& second = all.readings[1];
  if (all.kind == ScaleKind::kCache)
    return fmt::format(
        "{} is a multiplier whatever wrote it: an NVFP4 cache with it is exact up to amax {}, an "
        "FP8 cache up to {}; the cache's type, which the config names, decides.",
        number, scale_figure(first.amax, 5), scale_figure(second.amax, 5));
  if (all.accepted) return accepted_verdict(all);
  if (first.rejected)
    return fmt::format("{} is no plausible scale: as a multiplier, {}; as a divisor, {}.", number,
                       first.reason, second.reason);
  return fmt::format(
      "{} alone cannot say what it is: calibrated amax {} as a multiplier, {} as a divisor; the "
      "layer's other global scale decides, no producer mixes conventions inside a layer.",
      number, scale_figure(first.amax, 5), scale_figure(second.amax, 5));
}

std::vector<EnginePath> input_paths(const Hypothesis& right, const Hypothesis& wrong) {
  const std::string amax = scale_figure(right.amax, 5);
  const bool zeros = right.amax <= wrong.limits.zero_up_to;
  std::string wrong_effect;
  if (right.amax < wrong.limits.subnormal_below)
    wrong_effect = fmt::format(
        "G = {}: block scale 0x00 for block amax up to {}, 0x01 up to {}, full precision only from "
        "{} on: {}; finite",
        scale_figure(wrong.G, 5), scale_figure(wrong.limits.zero_up_to, 4),
        scale_figure(wrong.limits.smallest_code_below, 3),
        scale_figure(wrong.limits.subnormal_below, 3),
        zeros ? "the activations become exactly zero" : "most of the signal is lost");
  else
    wrong_effect = fmt::format("G = {}: the reader {}; finite", scale_figure(wrong.G, 5),
                               misreading(ScaleKind::kInput, right, wrong));
  std::vector<EnginePath> paths = {
      {fmt::format("vLLM CUDA, read as {}", reading_convention(right)),
       fmt::format("G = {}: exact up to block amax {}; above it block scale 0x7E (448) and every "
                   "element clamped to +-{}; finite",
                   scale_figure(right.G, 5), amax, amax)},
      {fmt::format("vLLM CUDA, read as {}", reading_convention(wrong)), wrong_effect}};
  if (zeros)
    paths.push_back({fmt::format("FlashInfer, TensorRT-LLM, read as {}", reading_convention(wrong)),
                     "block scales 0x00 but codes +-6: every product is 0; finite"});
  paths.push_back({"vLLM emulation (Triton, torch)",
                   "clamps block scales to 448 and elements to +-6: finite either way"});
  paths.push_back({"Marlin (W4A16)", kInputScaleUnused});
  paths.push_back(
      {"an E4M3 cast that does not saturate (PyTorch)",
       fmt::format("block scale 0x7F = NaN for block amax above {}, {} times the "
                   "calibrated one",
                   scale_figure(right.limits.nan_above, 5), scale_figure(464.0 / 448, 5))});
  return paths;
}

std::vector<EnginePath> weight_paths(const Hypothesis& right, const Hypothesis& wrong) {
  return {{fmt::format("read as {}", reading_convention(right)),
           fmt::format("weights up to {}", scale_figure(right.amax, 5))},
          {fmt::format("read as {}", reading_convention(wrong)),
           fmt::format("every weight is wrong by a factor of {}: in BF16 finite at first, overflow "
                       "a layer or more later, in FP16 at once",
                       scale_figure(wrong.amax / right.amax, 2))},
          {"a writer whose E4M3 cast does not saturate (ModelOpt)",
           fmt::format("writes NaN block scales (0x7F) for block amax above {}",
                       scale_figure(right.limits.nan_above, 5))}};
}

void add_scale_paths(Explanation& all) {
  if (!all.accepted) return;
  const Hypothesis& right = all.readings[*all.accepted];
  const Hypothesis& wrong = all.readings[1 - *all.accepted];
  if (all.kind == ScaleKind::kInput) all.engines = input_paths(right, wrong);
  if (all.kind == ScaleKind::kWeight) all.engines = weight_paths(right, wrong);
}

BadEncode bad_encode(ScaleFault fault, bool divisor) {
  if (fault == ScaleFault::kNan) return BadEncode::kNan;
  if (fault == ScaleFault::kNegative) return BadEncode::kNegative;
  // The reciprocal of a denormal number overflows or is flushed: it is like that of 0.
  const bool huge = fault == ScaleFault::kInfinite;
  return huge == divisor ? BadEncode::kInfinite : BadEncode::kZero;
}

// A number that is no scale: the verdict, and what engines make of it under each convention.
void explain_fault(Explanation& all) {
  all.verdict = fmt::format(
      "{} is no scale but an error (C3, bad-scalar-scale): it is {}, and a scale is finite, "
      "positive and at least 2^-126.",
      scale_number(all.question), kFaultSentences[static_cast<size_t>(all.fault)]);
  // NaN and negative numbers are the same under both conventions, and a cache has but one.
  const bool both = all.fault != ScaleFault::kNan && all.fault != ScaleFault::kNegative &&
                    all.kind != ScaleKind::kCache;
  for (const bool divisor : {false, true}) {
    if (divisor && !both) break;
    const std::string read = !both ? "" : divisor ? "read as divisor: " : "read as multiplier: ";
    for (const BadScaleEffect& row : kBadScaleEffects)
      if (row.kind == all.kind && row.encode == bad_encode(all.fault, divisor))
        all.engines.push_back({read + row.path, row.effect});
  }
  if (all.kind == ScaleKind::kInput)
    all.engines.push_back({"Marlin (W4A16), and policy a16 here", kInputScaleUnused});
  if (all.fault == ScaleFault::kZero || all.fault == ScaleFault::kDenormal)
    all.notes.push_back(
        "such numbers come from memory that no tensor was loaded into, from experts that saw no "
        "calibration data, and from calibration with zeros");
}

void add_scale_notes(Explanation& all) {
  const double value = all.question.value;
  const auto note = [&](std::string text) { all.notes.push_back(std::move(text)); };
  if (all.kind == ScaleKind::kCache) {
    if (value < 1) note("below 1 it is no FP8 scale of ModelOpt's, which are clamped to 1 or more");
    if (value == 1)
      note(
          "1 is also what an engine takes where the scale is missing, and ModelOpt's clamp of FP8");
    return;
  }
  if (all.readings[0].grid.few_digits)
    note(
        "all digits of the float32 (9) allow a sharper grid test, which 1 number in 7000 passes "
        "by chance");
  if (all.kind != ScaleKind::kInput) return;
  if (all.question.name == "input_scale")
    note(fmt::format("in an FP8 linear it is amax / 448, here amax {}",
                     scale_figure(value * kExplainFp8Unit, 5)));
  if (all.readings[0].grid.nearest == 0.5 && is_telling(all.readings[0].grid))
    note("0.5 / 2688 is what ModelOpt writes for experts that saw no calibration data (C12)");
  if (value == 1 && all.prior != ScalePrior::kMultiplier)
    note("1.0 is what compressed-tensors (0.20 on) writes where amax was 0 or NaN");
  note("an amax 2 to 1000 times too large costs nothing, one 2 times too small 1 to 10 dB");
}

}  // namespace

std::span<const ScaleName> scale_names() { return kScaleNames; }

const ScaleName* find_scale_name(std::string_view name) {
  const auto* found = std::find_if(kScaleNames.begin(), kScaleNames.end(),
                                   [&](const ScaleName& known) { return known.name == name; });
  return found == kScaleNames.end() ? nullptr : found;
}

std::span<const SnrRow> snr_table() { return kSnrRows; }

std::string_view fault_name(ScaleFault fault) { return kFaultNames[static_cast<size_t>(fault)]; }

std::string scale_figure(double value, int digits) {
  std::string text = fmt::format("{:.{}g}", value, digits);
  const size_t exponent = text.find('e');
  if (exponent == std::string::npos) return text;
  // "1.07e+07" and "2e-05": without the plus and the leading zero.
  size_t at = exponent + 1;
  if (text[at] == '+') text.erase(at, 1);
  if (text[at] == '-') ++at;
  while (text[at] == '0' && at + 1 < text.size()) text.erase(at, 1);
  return text;
}

std::string bf16_figure(double value) {
  std::string text = fmt::format("{}", value);
  if (!std::isfinite(value) || value <= 0) return text;
  double over = value;
  double under = 1;
  while (over != std::floor(over) && under < 65536) {
    over *= 2;
    under *= 2;
  }
  if (text.find('e') != std::string::npos) return scale_figure(value, 6);
  if (under > 1 && over == std::floor(over)) text += fmt::format(" = {}/{}", over, under);
  return text;
}

Explanation explain_scale(const ExplainQuestion& question) {
  Explanation all;
  all.question = question;
  if (const ScaleName* name = find_scale_name(question.name)) {
    all.kind = name->kind;
    all.prior = name->prior;
    all.notes.push_back(fmt::format("{} is {}", name->name, name->meaning));
  } else {
    all.notes.push_back(
        "without a name it was taken for the scale of an activation; of a weight, a number below "
        "0.05 is a multiplier and one above 5 a divisor");
  }
  all.fault = scale_fault(question.value);
  if (all.fault != ScaleFault::kNone) {
    explain_fault(all);
    return all;
  }
  if (question.k && question.norm_max)
    all.norm_bound = std::sqrt(static_cast<double>(*question.k)) * *question.norm_max;
  if (all.kind == ScaleKind::kCache) {
    all.readings = {make_reading(all, "NVFP4 cache (multiplier)", false, kExplainNvfp4Unit),
                    make_reading(all, "FP8 cache (multiplier)", false, kExplainFp8Unit)};
  } else {
    all.readings = {make_reading(all, "multiplier (ModelOpt)", false, kExplainNvfp4Unit),
                    make_reading(all, "divisor (compressed-tensors)", true, kExplainNvfp4Unit)};
    all.accepted = accepted_reading(all);
  }
  if (all.accepted && all.prior != ScalePrior::kNone)
    all.against_name = all.readings[*all.accepted].divisor != (all.prior == ScalePrior::kDivisor);
  all.verdict = scale_verdict(all);
  add_scale_paths(all);
  add_scale_notes(all);
  return all;
}

}  // namespace sextant
