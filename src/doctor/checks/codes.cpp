// What the histograms of a 4-bit linear say. A statistic of few codes means nothing: below
// kMinCodes only what a single block proves is judged (C4).
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/checked.h"
#include "doctor/checks/checks.h"
#include "io/quote.h"

namespace sextant {
namespace {

constexpr int64_t kMinCodes = 100'000;
constexpr double kLostShareOfError = 0.01;
constexpr double kZeroShare = 0.05;
constexpr double kSaturatedShare = 0.01;
constexpr double kSubnormalShare = 0.001;
constexpr double kFullShare = 0.90;
constexpr double kFlatness = 1e-3;     // chi-square a code against eight equal magnitudes
constexpr double kNibbleShare = 0.05;  // total variation between even and odd columns
constexpr uint8_t kMaxScale = 0x7E;    // 448

Finding about_linear(const CheckContext& context, const LinearSummary& linear, const char* id,
                     const char* slug, Severity severity, std::string message, std::string remedy) {
  return about_tensor(context.checkpoint.linear(linear.module)->weight, id, slug, severity,
                      std::move(message), std::move(remedy));
}

// C4. One lost block is an oddity that decodes to zeros; many mean that the scales are not the
// codes'.
void check_lost_blocks(CheckContext& context, const LinearSummary& linear,
                       const CodeStatistics& s) {
  if (s.n_lost_blocks == 0) return;
  const double lost = share_of(s.n_lost_blocks, s.n_blocks);
  const bool fatal = lost > kLostShareOfError && s.n_codes >= kMinCodes;
  const LinearRecord& record = *context.checkpoint.linear(linear.module);
  Finding f = about_tensor(
      record.scales, "C4", "lost-block", fatal ? Severity::kError : Severity::kWarning,
      fmt::format("{}: {} of {} blocks ({:.2g} %) have scale 0 over codes that are not: those "
                  "weights are lost, the first at row {}, group {}",
                  quote_name(linear.module), s.n_lost_blocks, s.n_blocks, 100 * lost,
                  s.first_lost_row, s.first_lost_group),
      "quantize the layer again from its source, with a smaller global scale");
  f.index = {s.first_lost_row, s.first_lost_group};
  if (f.offset)
    *f.offset += record.column_major
                     ? s.first_lost_group * linear.n + s.first_lost_row
                     : s.first_lost_row * ((linear.k + 15) / 16) + s.first_lost_group;
  f.value = lost;
  f.count = s.n_lost_blocks;
  f.expected = "no scale of 0 over codes that are not 0";
  context.findings.add(std::move(f), lost);
}

// C5.
void check_zero_blocks(CheckContext& context, const LinearSummary& linear,
                       const CodeStatistics& s) {
  const double zero = share_of(s.n_zero_blocks, s.n_blocks);
  if (zero <= kZeroShare && s.n_zero_rows == 0) return;
  std::string message =
      fmt::format("{}: {:.1f} % of the blocks are zero", quote_name(linear.module), 100 * zero);
  if (s.n_zero_rows > 0)
    message +=
        fmt::format(", with {} whole rows, the first row {}", s.n_zero_rows, s.first_zero_row);
  Finding f = about_linear(context, linear, "C5", "zero-blocks", Severity::kWarning,
                           message + ": dead channels, padding, or data that was never loaded",
                           "compare the layer with its source (doctor --against)");
  if (s.n_zero_rows > 0) f.index = {s.first_zero_row};
  f.value = zero;
  f.expected = "at most 5 % of the blocks, and no whole row";
  context.findings.add(std::move(f), zero);
}

// C8.
void check_subnormal(CheckContext& context, const LinearSummary& linear, const CodeStatistics& s) {
  int64_t n = 0;
  for (size_t byte = 1; byte < 8; ++byte) n += s.scale_bytes[byte];
  const double subnormal = share_of(n, s.n_blocks);
  if (subnormal <= kSubnormalShare) return;
  Finding f = about_linear(
      context, linear, "C8", "subnormal-scales", Severity::kWarning,
      fmt::format("{}: {:.2g} % of the block scales are subnormal (below 2^-6): up to 50 % error "
                  "each, and Marlin kernels may make them zero",
                  quote_name(linear.module), 100 * subnormal),
      "quantize with a smaller global scale, or keep the layer in 16 bits");
  f.value = subnormal;
  f.expected = "at most 0.1 %";
  context.findings.add(std::move(f), subnormal);
}

// Largest magnitudes by index: codes i and i + 8.
std::array<double, 8> magnitude_shares(const CodeStatistics& s) {
  std::array<double, 8> shares{};
  for (int i = 0; i < 8; ++i)
    shares[static_cast<size_t>(i)] = share_of(s.codes(i) + s.codes(i + 8), s.n_codes);
  return shares;
}

bool only_powers_of_two(const CodeStatistics& s) {
  for (size_t byte = 1; byte < 0x7F; ++byte) {
    const bool subnormal_power = byte < 8 && (byte & (byte - 1)) == 0;
    if (s.scale_bytes[byte] > 0 && (byte < 8 ? !subnormal_power : (byte & 7) != 0)) return false;
  }
  return true;
}

uint8_t largest_scale(const CodeStatistics& s) {
  for (int byte = kMaxScale; byte > 0; --byte)
    if (s.scale_bytes[static_cast<size_t>(byte)] > 0) return static_cast<uint8_t>(byte);
  return 0;
}

// C9: blocks that do not reach the largest code, and codes as flat as random bytes.
void check_tightness(CheckContext& context, const LinearSummary& linear, const CodeStatistics& s) {
  double flatness = 0;
  for (const double p : magnitude_shares(s)) flatness += (p - 0.125) * (p - 0.125) / 0.125;
  if (flatness < kFlatness) {
    Finding f = about_linear(
        context, linear, "C9", "random-codes", Severity::kWarning,
        fmt::format("{}: the eight magnitudes are equally frequent, as in random bytes (chi-square "
                    "{:.1e} a code; quantized weights have 0.01 to 0.1)",
                    quote_name(linear.module), flatness),
        "this is not NVFP4 data, or it was overwritten: fetch the checkpoint again");
    f.value = flatness;
    f.expected = "at least 1e-3";
    context.findings.add(std::move(f), kFlatness - flatness);
    return;
  }
  // Casts from MXFP4 keep a shared exponent; four-over-six ends blocks at 4 on purpose.
  if (linear.scheme != Scheme::kNvfp4 || only_powers_of_two(s) || largest_scale(s) <= 0x7C) return;
  const double full = share_of(s.n_full_blocks, s.n_blocks - s.n_zero_blocks);
  if (full >= kFullShare || s.n_blocks == s.n_zero_blocks) return;
  Finding f = about_linear(
      context, linear, "C9", "loose-blocks", Severity::kWarning,
      fmt::format("{}: only {:.1f} % of the blocks hold a code of 6: their scales are larger than "
                  "the weights need, which costs precision",
                  quote_name(linear.module), 100 * full),
      "quantize the layer again from its source");
  f.value = full;
  f.expected = "at least 90 %";
  context.findings.add(std::move(f), kFullShare - full);
}

// C10.
void check_nibbles(CheckContext& context, const LinearSummary& linear, const CodeStatistics& s) {
  double variation = 0;
  for (size_t i = 0; i < 16; ++i)
    variation +=
        std::abs(share_of(s.low[i], s.n_codes / 2) - share_of(s.high[i], s.n_codes / 2)) / 2;
  if (variation > kNibbleShare) {
    Finding f = about_linear(
        context, linear, "C10", "nibbles-differ", Severity::kWarning,
        fmt::format("{}: even and odd columns have different codes ({:.1f} % of the histogram): "
                    "misaligned, or not packed as two FP4 codes a byte",
                    quote_name(linear.module), 100 * variation),
        "compare the layer with its source (doctor --against)");
    f.value = variation;
    f.expected = "at most 5 %";
    context.findings.add(std::move(f), variation);
  }
  const int64_t zeros = s.codes(0) - 16 * s.n_zero_blocks;
  const int64_t negative_zeros = s.codes(8);
  if (zeros < kMinCodes / 100 || 2 * negative_zeros >= zeros) return;
  // None at all: the producer drops the sign of zero, or many weights are exactly zero.
  const bool dropped = negative_zeros == 0;
  Finding f = about_linear(
      context, linear, "C10", dropped ? "no-negative-zero" : "rare-negative-zero",
      dropped ? Severity::kNote : Severity::kWarning,
      fmt::format("{}: code 8 (-0) occurs {} times and code 0 {} times; FP4 has them about equally "
                  "often unless {}",
                  quote_name(linear.module), negative_zeros, zeros,
                  dropped ? "the producer drops the sign of zero, as this one seems to"
                          : "many weights are exactly zero; INT4 has code 8 rarely"),
      dropped ? "" : "check that the codes are FP4, not INT4");
  f.value = share_of(negative_zeros, zeros);
  f.expected = "at least 0.5";
  context.findings.add(std::move(f), 1 - *f.value);
}

// C6 and C7 look at all linears of a layer that have one global scale: producers that fuse share
// it, and the maximum may then lie in any of them.
struct ScaleGroup {
  const LinearSummary* first = nullptr;
  int64_t n_codes = 0;
  int64_t n_blocks = 0;
  int64_t n_saturated = 0;
  bool only_powers = true;
  uint8_t top = 0;

  void add(const CodeStatistics& s) {
    n_codes += s.n_codes;
    n_blocks += s.n_blocks;
    n_saturated += s.scale_bytes[kMaxScale];
    only_powers = only_powers && only_powers_of_two(s);
    top = std::max(top, largest_scale(s));
  }
};

void check_group(CheckContext& context, const ScaleGroup& group) {
  if (group.n_codes < kMinCodes) return;
  const LinearSummary& linear = *group.first;
  const double saturated = share_of(group.n_saturated, group.n_blocks);
  const bool powers = group.only_powers;
  if (saturated > kSaturatedShare && !powers) {
    Finding f = about_linear(
        context, linear, "C6", "saturated-scales", Severity::kWarning,
        fmt::format(
            "{} and what shares its global scale: {:.1f} % of the block scales are 448, the "
            "largest: the global scale is too small and weights are clipped",
            quote_name(linear.module), 100 * saturated),
        "quantize the layer again from its source, with amax / 2688 as global scale");
    f.value = saturated;
    f.expected = "at most 1 %";
    context.findings.add(std::move(f), saturated);
  }
  const uint8_t top = group.top;
  const auto near = [&](int byte) { return top >= byte - 1 && top <= byte + 1; };
  // 448; 384 and 256 of four-over-six; 72 of W4A8 (nvfp4.md 3.1).
  if (powers || near(0x7E) || near(0x7C) || near(0x78) || near(0x69)) return;
  Finding f = about_linear(
      context, linear, "C7", "no-recipe-maximum", Severity::kWarning,
      fmt::format("{} and what shares its global scale: the largest block scale is byte 0x{:02X}; "
                  "no known recipe (448, 384, 256, 72) ends there, so the global scale is wrong or "
                  "was not made from the largest weight",
                  quote_name(linear.module), top),
      "compare the layer with its source (doctor --against)");
  f.value = top;
  f.expected = "0x7E (448), within one code; 0x7C, 0x78 or 0x69 for other recipes";
  context.findings.add(std::move(f));
}

}  // namespace

void check_codes(CheckContext& context) {
  std::map<std::pair<int64_t, float>, ScaleGroup> groups;
  int64_t n_small = 0;
  for (const LinearSummary& linear : context.linears) {
    if (!linear.statistics) continue;
    const CodeStatistics s = linear.statistics.unpack();
    check_lost_blocks(context, linear, s);
    if (linear.scheme == Scheme::kNvfp4 && linear.g) {
      ScaleGroup& group = groups[{linear.layer.value_or(-1), *linear.g}];
      if (group.first == nullptr) group.first = &linear;
      group.add(s);
    }
    if (s.n_codes < kMinCodes) {
      ++n_small;
      continue;
    }
    check_zero_blocks(context, linear, s);
    if (linear.scheme == Scheme::kNvfp4) check_subnormal(context, linear, s);
    check_tightness(context, linear, s);
    check_nibbles(context, linear, s);
  }
  for (const auto& [key, group] : groups) check_group(context, group);
  if (n_small > 0)
    context.skipped.push_back(
        fmt::format("C5 to C10 on {} linears of fewer than {} weights: a histogram of so few says "
                    "nothing",
                    n_small, kMinCodes));
}

}  // namespace sextant
