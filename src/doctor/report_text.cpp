// The terminal report: verdict first, what was read and how, then findings by severity. A healthy
// file fits a screen; notes and further instances come with details.
#include <algorithm>

#include <fmt/format.h>

#include "doctor/check_list.h"
#include "doctor/report.h"
#include "doctor/report_svg.h"
#include "io/quote.h"

namespace sextant {
namespace {

constexpr size_t kShownFindings = 20;

struct Paint {
  bool on = false;
  std::string operator()(std::string_view code, std::string_view text) const {
    return on ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
  }
};

std::string_view color_of(Severity severity) {
  return severity == Severity::kError ? "1;31" : severity == Severity::kWarning ? "33" : "2";
}

int64_t count_of(const Diagnosis& d, Severity severity) {
  return std::count_if(d.findings.begin(), d.findings.end(),
                       [&](const Finding& f) { return f.severity == severity; });
}

std::string verdict_line(const Diagnosis& d, const Paint& paint) {
  const int64_t errors = count_of(d, Severity::kError);
  const int64_t warnings = count_of(d, Severity::kWarning);
  const auto plural = [](int64_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  switch (d.verdict) {
    case Verdict::kHealthy: return paint("1;32", "healthy") + "  nothing wrong was found";
    case Verdict::kWarnings:
      return paint("1;33", "warnings") +
             fmt::format("  {}, no errors", plural(warnings, "warning"));
    case Verdict::kErrors:
      return paint("1;31", "errors") +
             fmt::format("  {}, {}", plural(errors, "error"), plural(warnings, "warning"));
    case Verdict::kUnreadable: return paint("1;31", "unreadable");
  }
  return {};
}

std::string head(const Diagnosis& d, const Paint& paint) {
  std::string out =
      fmt::format("verdict     {}\nmodel       {}\n", verdict_line(d, paint), escape_text(d.model));
  if (d.verdict == Verdict::kUnreadable) return out;
  std::string schemes;
  for (const auto& [scheme, n] : d.summary.linears)
    schemes += fmt::format("{}{} {}", schemes.empty() ? "" : ", ", n, scheme);
  out += fmt::format("dialect     {} ({})\n", d.dialect, schemes.empty() ? "no linears" : schemes);
  out += fmt::format(
      "size        {} in {} tensors, {} file{}; {:.2f} bits a weight, {:.0f} % of "
      "the weights quantized\n",
      bytes_text(static_cast<double>(d.summary.n_bytes)), d.summary.n_tensors, d.summary.n_files,
      d.summary.n_files == 1 ? "" : "s", d.summary.bits_per_weight,
      100 * d.summary.quantized_share);
  if (d.convention.weight_global != "none")
    out += fmt::format("scales      global: {}, activations: {}\n", d.convention.weight_global,
                       d.convention.input);
  const double seconds = std::max(d.summary.seconds, 1e-9);
  out += fmt::format("checked     {} in {:.3g} s",
                     bytes_text(static_cast<double>(d.summary.checked_bytes)), d.summary.seconds);
  if (d.summary.checked_bytes > 1'000'000)
    out +=
        fmt::format(" ({}/s)", bytes_text(static_cast<double>(d.summary.checked_bytes) / seconds));
  return out + "\n";
}

std::string finding_text(const Finding& f, const Paint& paint, bool details) {
  const CheckInfo* check = find_check(f.id, f.slug);
  std::string out =
      fmt::format("\n{} {} {}{}\n", paint(color_of(f.severity), severity_name(f.severity)),
                  paint("1", f.id + " " + f.slug), check == nullptr ? "" : check->title,
                  f.count > 1 ? fmt::format("  ({} in all)", f.count) : "");
  out += fmt::format("  {}\n", escape_text(f.message));
  if (!f.remedy.empty()) out += fmt::format("  -> {}\n", escape_text(f.remedy));
  for (const auto& [engine, effect] : f.engines)
    out += fmt::format("  {}: {}\n", engine, escape_text(effect));
  if (!details) return out;
  if (!f.file.empty())
    out += fmt::format("  at {}{}\n", escape_text(f.file),
                       f.offset ? fmt::format(", byte {}", *f.offset) : "");
  if (check != nullptr)
    out += fmt::format("  speaks when: {}; why: {}\n", check->threshold, check->reason);
  for (const std::string& name : f.instances) out += fmt::format("  - {}\n", escape_text(name));
  return out;
}

}  // namespace

std::string text_report(const Diagnosis& d, const TextReportOptions& options) {
  const Paint paint{options.color};
  std::string out = head(d, paint);
  size_t shown = 0;
  int64_t notes = 0;
  for (const Finding& f : d.findings) {
    if (f.severity == Severity::kNote && !options.details) {
      ++notes;
      continue;
    }
    if (shown++ >= kShownFindings && !options.details) continue;
    out += finding_text(f, paint, options.details);
  }
  if (shown > kShownFindings && !options.details)
    out += fmt::format("\nand {} more kinds of findings (-v)\n", shown - kShownFindings);
  if (options.details) {
    out += "\n";
    for (const std::string& line : d.dialect_evidence)
      out += fmt::format("dialect: {}\n", escape_text(line));
    for (const std::string& line : d.convention.evidence)
      out += fmt::format("scales: {}\n", escape_text(line));
    for (const std::string& line : d.skipped)
      out += fmt::format("not judged: {}\n", escape_text(line));
  } else if (notes > 0 || !d.skipped.empty()) {
    out += fmt::format(
        "\n{}\n",
        paint("2", fmt::format(
                       "{} note{}{} (-v)", notes, notes == 1 ? "" : "s",
                       d.skipped.empty() ? "" : fmt::format(", {} not judged", d.skipped.size()))));
  }
  return out;
}

std::string text_report(std::string_view engine, std::span<const EnginePrediction> predictions) {
  if (predictions.empty())
    return fmt::format("\n{}: nothing that is known keeps it from reading this file as it is\n",
                       engine);
  std::string out = fmt::format("\n{} would\n", engine);
  for (const EnginePrediction& p : predictions) {
    out += fmt::format("  {}: {}{}{}\n", p.effect, escape_text(p.symptom),
                       p.first_layer ? fmt::format(", first in layer {}", *p.first_layer) : "",
                       p.count > 1 ? fmt::format(" ({} in all)", p.count) : "");
    out += fmt::format("    {} [{}]\n", escape_text(p.message), p.source);
  }
  return out;
}

}  // namespace sextant
