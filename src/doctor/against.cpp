// What the differences of two checkpoints mean: thresholds and sentences.
#include "doctor/against.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"
#include "doctor/plain_difference.h"
#include "doctor/weight_difference.h"
#include "doctor/weight_match.h"
#include "io/quote.h"

namespace sextant {
namespace {

constexpr double kGainTolerance = 0.05;  // healthy weights keep their rms within 1 %
constexpr double kBadBlockError = 0.9;   // rounding to NVFP4 costs a block at most about 0.25
constexpr double kPlainErrorL2 = 0.05;   // A6: warning below, error above
constexpr double kSwappedCosine = 0.98;
constexpr size_t kListedNames = 8;  // as FindingSet lists them

// Noise to signal, in power, of a healthy weight against its source (nvfp4.md 4.3).
double healthy_noise(Scheme scheme) {
  if (scheme == Scheme::kNvfp4) return 0.010;  // 20 dB
  if (scheme == Scheme::kMxfp4) return 0.016;  // 18 dB
  return is_fp8(scheme) ? 0.0007 : 0.0;        // 31.5 dB
}

std::string expected_text(const WeightDifference& d) {
  const double noise = healthy_noise(d.scheme) + healthy_noise(d.reference_scheme);
  if (noise == 0) return "a cosine of 1: neither copy is quantized";
  return fmt::format("a cosine of about {:.3f} ({:.0f} dB) for healthy {} against {}",
                     1 / std::sqrt(1 + noise), -10 * std::log10(noise), scheme_name(d.scheme),
                     scheme_name(d.reference_scheme));
}

double warn_cosine(const WeightDifference& d) {
  return has_codes(d.scheme) || has_codes(d.reference_scheme) ? kAgainstWarnCosine
                                                              : kAgainstWarnCosinePlain;
}

std::string name_of(const WeightDifference& d) {
  if (d.reference_module.empty()) return quote_name(d.module);
  return fmt::format("{} (in the reference {})", quote_name(d.module),
                     quote_name(d.reference_module));
}

Finding about_weight(const WeightDifference& d, std::string id, std::string slug, double value) {
  Finding f;
  f.id = std::move(id);
  f.slug = std::move(slug);
  f.tensor = d.module;
  f.value = value;
  f.expected = expected_text(d);
  if (d.worst_row >= 0) f.index = {d.worst_row, d.worst_block};
  return f;
}

// What a low cosine looks like, where it looks like something.
std::string likely_cause(const WeightDifference& d) {
  if (d.swapped_cosine > kSwappedCosine)
    return fmt::format(
        "; with each two neighboring columns exchanged it is {:.4f}, so the two "
        "codes of each byte are in the other order",
        d.swapped_cosine);
  if (d.rms_ratio == 0) return "; every value here is zero";
  if (std::isinf(d.rms_ratio)) return "; every value of the reference is zero";
  return {};
}

void judge_cosine(const WeightDifference& d, FindingSet& findings) {
  Finding f = about_weight(d, "A1", "low-cosine", d.cosine);
  f.severity = d.cosine < kAgainstErrorCosine ? Severity::kError : Severity::kWarning;
  f.message = fmt::format(
      "{} has a cosine of {:.4f} with the reference (relative error {:.3f}, rms ratio {:.4g}); "
      "below {} is an error, below {} a warning; expected is {}{}",
      name_of(d), d.cosine, d.relative_l2, d.rms_ratio, kAgainstErrorCosine, warn_cosine(d),
      f.expected, likely_cause(d));
  f.remedy = d.swapped_cosine > kSwappedCosine
                 ? "pack the codes with the even column in the low half of each byte"
                 : "quantize this tensor again from its source";
  findings.add(std::move(f), 1 - d.cosine);
}

void judge_gain(const WeightDifference& d, FindingSet& findings) {
  Finding f = about_weight(d, "A2", "clean-gain", d.rms_ratio);
  const bool convention = d.ratio_name.ends_with("g^2");
  std::string name;
  if (convention)
    name = fmt::format(
        ", which is {} of its global scale {:.6g}: one side's is stored in the "
        "convention of the other dialect",
        d.ratio_name, d.g.value_or(0.0F));
  else if (!d.ratio_name.empty())
    name = fmt::format(", a factor of {}", d.ratio_name);
  f.message =
      fmt::format("all of {} is {:.6g} times the reference{}; the cosine, {:.4f}, cannot show it",
                  name_of(d), d.rms_ratio, name, d.cosine);
  f.remedy = convention ? "store the reciprocal of the global scale, or name it as its convention "
                          "has it: weight_scale_2 multiplies, weight_global_scale divides"
                        : "divide the global scale (weight_scale_2) by the factor, or multiply "
                          "weight_global_scale by it";
  f.expected = fmt::format("an rms ratio within {:.0f} % of 1", 100 * kGainTolerance);
  findings.add(std::move(f), std::abs(std::log(d.rms_ratio)));
}

// Two copies that are stored alike and unquantized should be equal.
void judge_copy(const std::string& quoted, const std::string& name, double relative_l2,
                const std::string& where, FindingSet& findings) {
  Finding f;
  f.id = "A6";
  f.slug = "plain-tensor-differs";
  f.severity = relative_l2 > kPlainErrorL2 ? Severity::kError : Severity::kWarning;
  f.message = fmt::format("{} differs from the reference by a relative error of {:.3g}{}", quoted,
                          relative_l2, where);
  f.remedy = "take this tensor from the reference, or compare with the model this was made from";
  f.tensor = name;
  f.value = relative_l2;
  f.expected = fmt::format("equal values; a relative error above {} is an error", kPlainErrorL2);
  findings.add(std::move(f), relative_l2);
}

void judge_weight(const WeightDifference& d, FindingSet& findings) {
  if (d.n_nonfinite > 0 || d.n_nonfinite_reference > 0) {
    const bool ours = d.n_nonfinite > 0;
    const int64_t n = ours ? d.n_nonfinite : d.n_nonfinite_reference;
    Finding f = about_weight(d, "A7", "non-finite-weight", static_cast<double>(n));
    f.severity = ours ? Severity::kError : Severity::kWarning;
    f.message =
        fmt::format("{} values of {} are no finite numbers{}, first in block {} of row {}", n,
                    name_of(d), ours ? "" : " in the reference", d.worst_block, d.worst_row);
    f.remedy = "take this tensor from its source again";
    f.expected = "finite weights";
    findings.add(std::move(f), static_cast<double>(n));
  }
  const bool gain = d.cosine > kAgainstWarnCosine && std::abs(d.rms_ratio - 1) > kGainTolerance;
  if (gain) judge_gain(d, findings);
  if (d.cosine < warn_cosine(d)) {
    judge_cosine(d, findings);
  } else if (!gain && std::isfinite(d.worst_block_error) && d.worst_block_error > kBadBlockError) {
    Finding f = about_weight(d, "A8", "bad-block", d.worst_block_error);
    f.severity = Severity::kWarning;
    f.message = fmt::format(
        "block {} of row {} of {} (columns {} to {}) has a relative error of {:.3f}, while the "
        "whole has {:.4f}: a scale or codes that were damaged?",
        d.worst_block, d.worst_row, name_of(d), 16 * d.worst_block, 16 * d.worst_block + 15,
        d.worst_block_error, d.relative_l2);
    f.remedy = "compare the file's checksum with its source";
    f.expected = fmt::format("at most {}", kBadBlockError);
    findings.add(std::move(f), d.worst_block_error);
  } else if (!gain && d.relative_l2 > 0 && !is_quantized(d.scheme) &&
             d.scheme == d.reference_scheme) {
    judge_copy(name_of(d), d.module, d.relative_l2, "", findings);
  }
}

void judge_plain(const PlainDifference& d, AgainstReport& report, FindingSet& findings) {
  if (d.kind == PlainDifference::Kind::kNotComparable) {
    report.not_compared.push_back(d.name);
    return;
  }
  if (d.kind == PlainDifference::Kind::kShape) {
    Finding f;
    f.id = "A5";
    f.slug = "shape-differs";
    f.message = fmt::format("{} is {} here and {} in the reference", quote_name(d.name), d.form,
                            d.reference_form);
    f.remedy = "compare with the model that this one was made from";
    f.tensor = d.name;
    f.expected = d.reference_form;
    findings.add(std::move(f));
    return;
  }
  ++report.n_plain;
  if (d.n_different == 0)
    ++report.n_plain_equal;
  else
    judge_copy(
        quote_name(d.name), d.name, d.relative_l2,
        fmt::format(", in {} of {} values, first at {}", d.n_different, d.n, d.first_different),
        findings);
}

void judge_missing(const std::vector<std::string>& names, bool from_reference, bool nothing_shared,
                   FindingSet& findings) {
  if (names.empty()) return;
  Finding f;
  f.id = from_reference ? "A3" : "A4";
  f.slug = from_reference ? "missing-in-reference" : "missing-here";
  f.severity = nothing_shared && from_reference ? Severity::kError : Severity::kWarning;
  f.count = static_cast<int64_t>(names.size());
  f.instances.assign(names.begin(),
                     names.begin() + static_cast<int64_t>(std::min(names.size(), kListedNames)));
  f.tensor = names.front();
  std::vector<std::string> quoted;
  for (const std::string& name : f.instances) quoted.push_back(quote_name(name));
  f.message = fmt::format("{} of {} {} not {}: {}{}", names.size(),
                          from_reference ? "this checkpoint" : "the reference",
                          names.size() == 1 ? "is" : "are",
                          from_reference ? "in the reference" : "in this checkpoint",
                          fmt::join(quoted, ", "), names.size() > kListedNames ? ", ..." : "");
  if (nothing_shared) f.message += "; no linear of the two could be compared";
  f.remedy = from_reference ? "compare with a complete copy of the same model"
                            : "copy what is missing from the reference, unless it was left out "
                              "on purpose";
  findings.add(std::move(f));
}

}  // namespace

AgainstReport compare_weights(const Checkpoint& checkpoint, const Checkpoint& reference,
                              ThreadPool& pool) {
  AgainstReport report;
  FindingSet findings(checkpoint.allowed());
  WeightMatch match = match_weights(checkpoint, reference, findings);
  for (const WeightPair& pair : match.pairs) {
    report.tensors.push_back(
        weight_difference(pair.module, pair.here, pair.reference, pair.n, pool));
    WeightDifference& d = report.tensors.back();
    const std::string& other = pair.reference.record->module;
    if (other != pair.module) d.reference_module = other;
    judge_weight(d, findings);
  }
  report.only_here = std::move(match.only_here);
  report.only_reference = std::move(match.only_reference);
  const PlainComparison plain = compare_plain(checkpoint, reference, pool);
  for (const PlainDifference& d : plain.tensors) judge_plain(d, report, findings);
  report.only_here.insert(report.only_here.end(), plain.only_here.begin(), plain.only_here.end());
  report.only_reference.insert(report.only_reference.end(), plain.only_reference.begin(),
                               plain.only_reference.end());
  const bool nothing_shared = report.tensors.empty();
  judge_missing(report.only_here, true, nothing_shared, findings);
  judge_missing(report.only_reference, false, nothing_shared, findings);
  std::stable_sort(report.tensors.begin(), report.tensors.end(),
                   [](const WeightDifference& a, const WeightDifference& b) {
                     const bool a_bad = a.n_nonfinite > 0;
                     const bool b_bad = b.n_nonfinite > 0;
                     return a_bad != b_bad ? a_bad : a.relative_l2 > b.relative_l2;
                   });
  report.findings = findings.take();
  return report;
}

}  // namespace sextant
