// How the global scales are to be read (nvfp4.md 3.1). Names decide, since the block scales are the
// same bytes under both conventions; the numbers must agree with them over the whole file. Nothing
// is ever decided per layer in silence: numbers against the names are errors.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "io/quote.h"
#include "quant/nvfp4.h"

namespace sextant {
namespace {

// Trained linears have amax between 2^-14 and 2^6, so a multiplier is below 0.05 and a divisor
// above 5, with three decades between them.
constexpr double kLargestMultiplier = 0.05;
constexpr double kSmallestDivisor = 5;
constexpr double kSameFile = 0.95;  // share of the votes that makes it the file's convention
constexpr double kSizeOutlier = 30;
constexpr double kFileOutlier = 300;
constexpr double kLeastRms = 1e-5;
constexpr double kMostRms = 1;
constexpr int kUe8m0One = 127;          // the byte of 2^0
constexpr int kLargestMxExponent = 10;  // weights of 4000 and more; trained ones stay below 2^6

struct Votes {
  int64_t n = 0;
  int64_t for_name = 0;
  int64_t against_name = 0;
  std::vector<const LinearRecord*> against;
  double low = INFINITY;
  double high = 0;
};

void vote(const LinearRecord& record, Votes& votes) {
  for (const ScaleRange& range : record.ranges) {
    const double a = double{range.stored};
    if (!(a > 0) || !std::isfinite(a)) continue;
    ++votes.n;
    votes.low = std::min(votes.low, a);
    votes.high = std::max(votes.high, a);
    const bool as_multiplier = a < kLargestMultiplier;
    const bool as_divisor = a > kSmallestDivisor;
    if (range.is_divisor ? as_divisor : as_multiplier) ++votes.for_name;
    if (range.is_divisor ? as_multiplier : as_divisor) {
      ++votes.against_name;
      votes.against.push_back(&record);
    }
  }
}

Finding about_global(const CheckContext& context, const LinearRecord& record, const char* id,
                     const char* slug, Severity severity, std::string message, std::string remedy) {
  const TensorRef ref =
      tensor_of(context.checkpoint, record.module, {"weight_scale_2", "weight_global_scale"});
  Finding f = about_tensor(ref, id, slug, severity, std::move(message), std::move(remedy));
  if (!ref) f.tensor = record.module;
  f.value = record.ranges.front().stored;
  return f;
}

// True where the numbers decide against the names for the whole file.
bool report_against(CheckContext& context, const Votes& votes, std::string_view name,
                    std::string_view other) {
  const double share = static_cast<double>(votes.against_name) /
                       static_cast<double>(votes.for_name + votes.against_name);
  const bool whole_file = share >= kSameFile;
  for (const LinearRecord* record : votes.against) {
    const double stored = record->ranges.front().stored;
    context.findings.add(
        whole_file
            ? about_global(context, *record, "P10", "convention-contradicts-names",
                           Severity::kError,
                           fmt::format("{}: its name says {}, but {:.6g} is {} ({} of {} in this "
                                       "file are): every weight would be wrong by {:.3g}",
                                       quote_name(record->module), name, stored, other,
                                       votes.against_name, votes.n, stored * stored),
                           "convert the checkpoint once more from its source; its scales were "
                           "inverted once too often or not at all")
            : about_global(
                  context, *record, "P11", "mixed-conventions", Severity::kError,
                  fmt::format("{}: {:.6g} can only be {}, while {} other scales of this "
                              "file are {}: conventions are mixed, or the number is broken",
                              quote_name(record->module), stored, other, votes.for_name, name),
                  "take the checkpoint from its source again"),
        std::abs(std::log(stored)));
  }
  return whole_file;
}

// 3.1.4b: amax recorded from BF16 activations leaves the low 16 bits of 2688 * g nearly zero.
bool on_bf16_grid(float amax) {
  const uint32_t low = std::bit_cast<uint32_t>(amax) & 0xFFFF;
  return low <= 4 || low >= 0x10000 - 4;
}

struct GridTest {
  int64_t n = 0;
  int64_t as_named = 0;
  int64_t inverted = 0;
};

void report_inverted_inputs(CheckContext& context, const GridTest& grid, Convention& out,
                            std::string& text) {
  text += ": they are inverted";
  if (out.input != "mixed") out.input = out.input == "multiplier" ? "divisor" : "multiplier";
  Finding f;
  f.id = "P10";
  f.slug = "convention-contradicts-names";
  f.severity = Severity::kError;
  f.activation_only = true;
  f.message = fmt::format(
      "{} of {} input scales stand for a bf16 amax only if they are read the other way round: they "
      "were inverted once too often or not at all",
      grid.inverted, grid.n);
  f.remedy = "convert the checkpoint once more from its source, or recalibrate";
  f.count = grid.inverted;
  context.findings.add(std::move(f));
}

// 3.1.3 among the linears: a projection's weights have about the same size in all layers, and the
// weights of one model are within a few hundred of each other.
struct SizeGroup {
  std::string name;
  double limit = 0;
  std::vector<std::pair<double, const LinearSummary*>> sizes;
};

void check_size_group(CheckContext& context, const SizeGroup& group,
                      std::set<const LinearSummary*>& reported) {
  if (group.sizes.size() < 4) return;
  std::vector<double> sorted;
  for (const auto& [size, linear] : group.sizes) sorted.push_back(size);
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];
  for (const auto& [size, linear] : group.sizes) {
    const double ratio = std::max(size / median, median / size);
    if (ratio <= group.limit || !reported.insert(linear).second) continue;
    Finding f = about_global(
        context, *context.checkpoint.linear(linear->module), "P12", "weight-size-outlier",
        Severity::kWarning,
        fmt::format("{}: its weights have an rms of {:.3g}, {:.3g} times {} than the median {:.3g} "
                    "of {}",
                    quote_name(linear->module), size, ratio, size > median ? "larger" : "smaller",
                    median, group.name),
        "compare the layer with its source (doctor --against)");
    f.expected = fmt::format("within a factor of {}", group.limit);
    context.findings.add(std::move(f), ratio);
  }
}

// 3.1.3 for each linear by itself, so that a file of few linears is judged too.
void check_plausible_size(CheckContext& context, const LinearSummary& linear, double size) {
  if (size >= kLeastRms && size <= kMostRms) return;
  Finding f = about_global(
      context, *context.checkpoint.linear(linear.module), "P12", "weight-size-outlier",
      Severity::kWarning,
      fmt::format("{}: its weights have an rms of {:.3g}; those of trained linears lie within {} "
                  "to {}: a broken global scale",
                  quote_name(linear.module), size, kLeastRms, kMostRms),
      "compare the layer with its source (doctor --against)");
  f.value = size;
  f.expected = fmt::format("{} to {}", kLeastRms, kMostRms);
  context.findings.add(std::move(f), size > 1 ? size : 1 / size);
}

// MXFP4 has no global scale to be broken, but one block can make every result infinite.
void check_largest_block(CheckContext& context, const LinearSummary& linear) {
  const CodeStatistics s = linear.statistics.unpack();
  int top = 0xFE;  // 0xFF is NaN: C1
  while (top > 0 && s.scale_bytes[static_cast<size_t>(top)] == 0) --top;
  const int exponent = top - kUe8m0One;
  if (exponent <= kLargestMxExponent) return;
  Finding f = about_tensor(
      context.checkpoint.linear(linear.module)->scales, "P12", "weight-size-outlier",
      Severity::kWarning,
      fmt::format("{}: its largest block scale is 2^{} (byte 0x{:02X}), where trained weights stay "
                  "below 2^6: a broken block",
                  quote_name(linear.module), exponent, top),
      "compare the layer with its source (doctor --against)");
  f.value = std::ldexp(1.0, exponent);
  f.expected = fmt::format("at most 2^{}", kLargestMxExponent);
  context.findings.add(std::move(f), exponent);
}

void check_weight_sizes(CheckContext& context) {
  std::map<std::string, SizeGroup> projections;
  SizeGroup all{"all linears of this file", kFileOutlier, {}};
  for (const LinearSummary& linear : context.linears) {
    if (!linear.statistics) continue;
    if (linear.scheme == Scheme::kMxfp4) check_largest_block(context, linear);
    if (linear.scheme != Scheme::kNvfp4 || !linear.g) continue;
    const double size = linear.statistics.rms() * double{*linear.g};
    if (!(size > 0) || !std::isfinite(size)) continue;
    all.sizes.emplace_back(size, &linear);
    if (!linear.layer) continue;
    SizeGroup& group = projections[linear.projection];
    group.name = fmt::format("all {} linears", linear.projection);
    group.limit = kSizeOutlier;
    group.sizes.emplace_back(size, &linear);
  }
  std::set<const LinearSummary*> reported;
  for (const auto& [projection, group] : projections) check_size_group(context, group, reported);
  check_size_group(context, all, reported);
  for (const auto& [size, linear] : all.sizes)
    if (!reported.contains(linear)) check_plausible_size(context, *linear, size);
}

// More than half of the scales on the grid one way and under 1 % the other way decides; no producer
// mixes conventions inside a layer, so inverted input scales beside sound weights are an error.
void add_input_evidence(CheckContext& context, const GridTest& grid, Convention& out) {
  if (grid.n == 0) return;
  const auto share = [&](int64_t n) {
    return static_cast<double>(n) / static_cast<double>(grid.n);
  };
  std::string text = fmt::format(
      "of {} input scales, {} stand for a bf16 amax as they are named and {} if inverted", grid.n,
      grid.as_named, grid.inverted);
  if (share(grid.as_named) > 0.5 && share(grid.inverted) < 0.01)
    text += ": the names are right";
  else if (share(grid.inverted) > 0.5 && share(grid.as_named) < 0.01)
    report_inverted_inputs(context, grid, out, text);
  else
    text += ": inconclusive, the weights' convention stands";
  out.evidence.push_back(std::move(text));
}

}  // namespace

Convention check_convention(CheckContext& context) {
  Convention out;
  Votes by_name[2];  // multipliers, divisors
  GridTest grid;
  for (const auto& [module, record] : context.checkpoint.linears()) {
    if (record.scheme != Scheme::kNvfp4 || record.ranges.empty()) continue;
    const bool divisor = record.ranges.front().is_divisor;
    vote(record, by_name[divisor ? 1 : 0]);
    if (!record.input_scale) continue;
    ++grid.n;
    // The record's multiplier is g as named; for a divisor, 1/G was rounded once more, which the
    // grid test's tolerance covers.
    grid.as_named += on_bf16_grid(kNvfp4Range * *record.input_scale) ? 1 : 0;
    grid.inverted += on_bf16_grid(kNvfp4Range / *record.input_scale) ? 1 : 0;
  }
  constexpr std::string_view kKinds[2] = {"multiplier", "divisor"};
  constexpr std::string_view kNames[2] = {"a multiplier (weight_scale_2)",
                                          "a divisor (weight_global_scale)"};
  for (size_t i = 0; i < 2; ++i) {
    const Votes& votes = by_name[i];
    if (votes.n == 0) continue;
    out.evidence.push_back(fmt::format(
        "{} weight scalars are named {}s and lie in {:.3g} to {:.3g}: {} agree, {} contradict, {} "
        "could be either",
        votes.n, kKinds[i], votes.low, votes.high, votes.for_name, votes.against_name,
        votes.n - votes.for_name - votes.against_name));
    const bool inverted =
        votes.against_name > 0 &&
        report_against(context, votes, kNames[i], fmt::format("a {}", kKinds[1 - i]));
    const auto join = [](std::string& now, std::string_view kind) {
      now = now == "none" || now == kind ? kind : "mixed";
    };
    join(out.weight_global, kKinds[inverted ? 1 - i : i]);
    if (grid.n > 0) join(out.input, kKinds[i]);
  }
  add_input_evidence(context, grid, out);
  check_weight_sizes(context);
  return out;
}

}  // namespace sextant
