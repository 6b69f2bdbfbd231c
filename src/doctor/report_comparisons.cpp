// Implements report_comparisons.h.
#include "doctor/report_comparisons.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "doctor/engine_table.h"
#include "doctor/report_svg.h"

namespace sextant {
namespace {

// The edge of a block has the color of a finding of this severity.
std::string_view harm_class(const EnginePrediction& p) {
  const int rank = harm_rank(p.symptom);
  if (rank >= harm_rank("not known")) return "note";
  return rank >= harm_rank("clipped") ? "warning" : "error";
}

std::string prediction_block(const EnginePrediction& p) {
  std::string out = fmt::format(
      "<details open>\n<summary><span class=\"id\">{}</span>{}</summary>\n<p>{}</p>\n"
      "<dl class=\"facts\">\n",
      html_escape(p.effect),
      p.count > 1 ? fmt::format(" <span class=\"count\">{} times</span>", count_text(p.count)) : "",
      html_escape(p.message));
  out += html_term("Symptom", p.symptom);
  if (p.first_layer) out += html_term("First layer", fmt::format("{}", *p.first_layer));
  out +=
      html_term(p.count > 1 ? "Worst tensor" : "Tensor", p.tensor) + html_term("Source", p.source);
  return out + "</dl>\n</details>\n";
}

std::string difference_row(const WeightDifference& d) {
  const std::string module = d.reference_module.empty() || d.reference_module == d.module
                                 ? d.module
                                 : fmt::format("{} (there {})", d.module, d.reference_module);
  return fmt::format(
      "<tr><th scope=\"row\">{}</th><td>{} of {}</td><td>{:.5f}</td><td>{:.4f}</td>"
      "<td>{:.5f}</td><td>{}</td><td>{}</td></tr>\n",
      html_escape(module), scheme_name(d.scheme), scheme_name(d.reference_scheme), d.cosine,
      d.relative_l2, d.rms_ratio, html_escape(d.ratio_name),
      d.worst_row < 0 ? ""
                      : fmt::format("row {}, group {}: {:.3f}", d.worst_row, d.worst_block,
                                    d.worst_block_error));
}

std::string difference_table(const AgainstReport& report) {
  if (report.tensors.empty()) return "<p>No linear is in both.</p>\n";
  const size_t n_shown = std::min(report.tensors.size(), kMaxComparedRows);
  std::string out =
      "<div class=\"scroll\"><table>\n<caption>Linears, the worst first. The worst block is the "
      "group of 16 columns with the largest relative error.</caption>\n"
      "<thead><tr><th scope=\"col\">Linear</th><th scope=\"col\">As</th>"
      "<th scope=\"col\">Cosine</th><th scope=\"col\">Relative L2</th>"
      "<th scope=\"col\">RMS ratio</th><th scope=\"col\">Which is</th>"
      "<th scope=\"col\">Worst block</th></tr></thead>\n<tbody>\n";
  for (size_t i = 0; i < n_shown; ++i) out += difference_row(report.tensors[i]);
  out += "</tbody>\n</table></div>\n";
  if (n_shown < report.tensors.size())
    out += fmt::format("<p>And {} more, better than these.</p>\n",
                       count_text(static_cast<int64_t>(report.tensors.size() - n_shown)));
  return out;
}

std::string names_block(std::string_view title, const std::vector<std::string>& names) {
  if (names.empty()) return {};
  const size_t n_shown = std::min(names.size(), kMaxComparedRows);
  std::string out =
      fmt::format("<details>\n<summary>{} <span class=\"count\">{}</span></summary>\n{}", title,
                  count_text(static_cast<int64_t>(names.size())),
                  html_list({names.begin(), names.begin() + static_cast<std::ptrdiff_t>(n_shown)}));
  if (n_shown < names.size())
    out += fmt::format("<p>And {} more.</p>\n",
                       count_text(static_cast<int64_t>(names.size() - n_shown)));
  return out + "</details>\n";
}

}  // namespace

std::string engine_section(const ReportComparisons& beside) {
  if (beside.engine.empty()) return {};
  const std::string engine = html_escape(beside.engine);
  std::string out = fmt::format("<section>\n<h2>What {} would do</h2>\n", engine);
  if (beside.predictions.empty())
    return out + fmt::format(
                     "<p>Nothing that is known keeps {} from reading this file as it is."
                     "</p>\n</section>\n",
                     engine);
  out += "<p>In order of harm.</p>\n";
  for (const EnginePrediction& p : beside.predictions)
    out += fmt::format("<div class=\"group {}\">\n{}</div>\n", harm_class(p), prediction_block(p));
  return out + "</section>\n";
}

std::string against_section(const AgainstReport& report) {
  std::string out =
      fmt::format("<section>\n<h2>Against the reference</h2>\n{}", difference_table(report));
  out += fmt::format("<p>{} of {} norms, biases and other vectors are equal.</p>\n",
                     count_text(report.n_plain_equal), count_text(report.n_plain));
  out += names_block("Only here", report.only_here) +
         names_block("Only in the reference", report.only_reference) +
         names_block("Not compared", report.not_compared);
  return out + "</section>\n";
}

}  // namespace sextant
