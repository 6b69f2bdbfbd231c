// One page that needs no network and no script: verdict, how the checkpoint was read, findings,
// an engine, a reference, charts, the tensors to look at first. Every text from the checkpoint goes
// through html_escape.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "doctor/check_list.h"
#include "doctor/report.h"
#include "doctor/report_charts.h"
#include "doctor/report_comparisons.h"
#include "doctor/report_svg.h"

namespace sextant {
namespace {

constexpr size_t kWorstTensors = 12;
constexpr double kWorthALook = 0.25;  // of a check's threshold

// --- verdict ---

std::string verdict_sentence(const Diagnosis& diagnosis) {
  std::vector<std::string> parts;
  for (const Severity severity : {Severity::kError, Severity::kWarning, Severity::kNote}) {
    const auto n = std::count_if(diagnosis.findings.begin(), diagnosis.findings.end(),
                                 [&](const Finding& f) { return f.severity == severity; });
    if (n > 0) parts.push_back(plural_text(n, severity_name(severity)));
  }
  return parts.empty() ? "nothing was found" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string verdict_section(const Diagnosis& diagnosis) {
  const DiagnosisSummary& s = diagnosis.summary;
  const std::string name(verdict_name(diagnosis.verdict));
  std::string out = fmt::format(
      "<header>\n<p class=\"kicker\">Sextant doctor</p>\n<h1>{}</h1>\n"
      "<p class=\"verdict {}\"><strong>{}</strong> {}</p>\n<dl class=\"facts\">\n",
      html_escape(diagnosis.model), name, name, verdict_sentence(diagnosis));
  if (s.n_files > 0) {
    out += html_term(
        "Stored", fmt::format("{}, {}, {}", bytes_text(static_cast<double>(s.n_bytes)),
                              plural_text(s.n_files, "file"), plural_text(s.n_tensors, "tensor")));
    std::vector<std::string> linears;
    for (const auto& [scheme, n] : s.linears)
      linears.push_back(fmt::format("{} {}", count_text(n), scheme));
    out += html_term("Linears", fmt::format("{}", fmt::join(linears, ", ")));
    out += html_term("Bits per weight",
                     s.bits_per_weight > 0 ? fmt::format("{:.2f}", s.bits_per_weight) : "");
    out += html_term("Quantized", fmt::format("{:.3g} % of the parameters in matrices",
                                              100 * s.quantized_share));
  }
  return out + "</dl>\n</header>\n";
}

std::string reading_section(const Diagnosis& diagnosis) {
  const Convention& convention = diagnosis.convention;
  std::string out = "<section>\n<h2>How it was read</h2>\n";
  out += fmt::format("<h3>Dialect: {}</h3>\n{}",
                     html_escape(diagnosis.dialect.empty() ? "unknown" : diagnosis.dialect),
                     html_list(diagnosis.dialect_evidence));
  out += fmt::format("<h3>Global scales: weights {}, activations {}</h3>\n{}",
                     html_escape(convention.weight_global), html_escape(convention.input),
                     html_list(convention.evidence));
  return out + "</section>\n";
}

// --- findings ---

std::string place_of(const Finding& f) {
  std::string place = f.file;
  if (f.offset) place += fmt::format("{}byte {}", place.empty() ? "" : ", ", *f.offset);
  return place;
}

std::string value_of(const Finding& f) {
  return f.value ? fmt::format("{:.6g}", *f.value) : std::string();
}

std::string finding_block(const Finding& f) {
  const CheckInfo* check = find_check(f.id, f.slug);
  const std::string title =
      check != nullptr ? html_escape(check->title) + " " : std::string();  // the slug says it too
  std::string out = fmt::format(
      "<details{}>\n<summary><span class=\"id\">{}</span> {}<code>{}</code>{}</summary>\n"
      "<p>{}</p>\n",
      f.severity == Severity::kNote ? "" : " open", html_escape(f.id), title, html_escape(f.slug),
      f.count > 1 ? fmt::format(" <span class=\"count\">{} times</span>", count_text(f.count)) : "",
      html_escape(f.message));
  if (!f.remedy.empty())
    out += fmt::format("<p class=\"remedy\">What to do: {}</p>\n", html_escape(f.remedy));
  std::string facts = html_term("Tensor", f.tensor);
  if (f.layer) facts += html_term("Layer", fmt::format("{}", *f.layer));
  if (f.expert) facts += html_term("Expert", fmt::format("{}", *f.expert));
  if (!f.index.empty()) facts += html_term("Index", fmt::format("{}", fmt::join(f.index, ", ")));
  facts += html_term("Value", value_of(f)) + html_term("Expected", f.expected) +
           html_term("File", place_of(f));
  if (check != nullptr)
    facts += html_term("Threshold", check->threshold) + html_term("Why", check->reason);
  if (!facts.empty()) out += fmt::format("<dl class=\"facts\">\n{}</dl>\n", facts);
  if (f.activation_only) out += "<p>It concerns activation scales alone.</p>\n";
  if (f.instances.size() > 1) out += fmt::format("<p>Worst first:</p>\n{}", html_list(f.instances));
  return out + "</details>\n";
}

std::string findings_section(const Diagnosis& diagnosis) {
  std::string out = "<section>\n<h2>Findings</h2>\n";
  struct Group {
    Severity severity;
    std::string_view title;
  };
  constexpr Group kGroups[] = {
      {Severity::kError, "Errors"}, {Severity::kWarning, "Warnings"}, {Severity::kNote, "Notes"}};
  if (diagnosis.findings.empty()) out += "<p>None.</p>\n";
  for (const Group& group : kGroups) {
    std::string blocks;
    int64_t n = 0;
    for (const Finding& finding : diagnosis.findings) {
      if (finding.severity != group.severity) continue;
      blocks += finding_block(finding);
      ++n;
    }
    if (n == 0) continue;
    out += fmt::format(
        "<div class=\"group {}\">\n<h3>{} <span class=\"count\">{}</span></h3>\n{}"
        "</div>\n",
        severity_name(group.severity), group.title, n, blocks);
  }
  return out + "</section>\n";
}

// --- numbers ---

// A linear's shares of blocks, and how far the worst of them is on the way to the threshold of its
// check (1: there).
struct TensorShares {
  const LinearSummary* linear = nullptr;
  double saturated = 0;
  double subnormal = 0;
  double zero = 0;
  double lost = 0;
  double full = 0;
  double badness = 0;
};

TensorShares shares_of(const LinearSummary& linear) {
  const CodeStatistics s = linear.statistics.unpack();
  const auto n = static_cast<double>(std::max<int64_t>(1, s.n_blocks));
  TensorShares t;
  t.linear = &linear;
  if (linear.scheme == Scheme::kNvfp4) {
    int64_t subnormal = 0;
    for (size_t byte = 0; byte < 8; ++byte) subnormal += s.scale_bytes[byte];
    t.saturated = static_cast<double>(s.scale_bytes[0x7E]) / n;
    t.subnormal = static_cast<double>(subnormal) / n;
    t.lost = static_cast<double>(s.n_lost_blocks) / n;
    t.badness = std::max({t.saturated / 0.01, t.subnormal / 0.001, t.lost > 0 ? 1 + t.lost : 0.0});
  }
  t.zero = static_cast<double>(s.n_zero_blocks) / n;
  t.full = static_cast<double>(s.n_full_blocks) / n;
  t.badness = std::max(t.badness, t.zero / 0.05);
  return t;
}

std::string worst_table(const Diagnosis& diagnosis) {
  std::vector<TensorShares> worst;
  for (const LinearSummary& linear : diagnosis.linears)
    if (has_codes(linear.scheme) && linear.statistics)
      if (const TensorShares t = shares_of(linear); t.badness >= kWorthALook) worst.push_back(t);
  if (worst.empty()) return {};
  std::stable_sort(worst.begin(), worst.end(), [](const TensorShares& a, const TensorShares& b) {
    return a.badness > b.badness;
  });
  if (worst.size() > kWorstTensors) worst.resize(kWorstTensors);
  std::string out =
      "<section>\n<h2>Tensors to look at first</h2>\n<div class=\"scroll\"><table>\n"
      "<caption>Shares of their blocks, by nearness to the threshold of a check (at 448: 1 %, "
      "subnormal: 0.1 %, zeros: 5 %, lost: any).</caption>\n"
      "<thead><tr><th scope=\"col\">Linear</th><th scope=\"col\">Kind</th>"
      "<th scope=\"col\">Shape</th><th scope=\"col\">g</th><th scope=\"col\">At 448</th>"
      "<th scope=\"col\">Subnormal</th><th scope=\"col\">Zeros</th><th scope=\"col\">Lost</th>"
      "<th scope=\"col\">With a 6</th></tr></thead>\n<tbody>\n";
  for (const TensorShares& t : worst)
    out += fmt::format(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td>{} x {}</td><td>{}</td><td>{}</td><td>{}</td>"
        "<td>{}</td><td>{}</td><td>{}</td></tr>\n",
        html_escape(t.linear->module), scheme_name(t.linear->scheme), t.linear->n, t.linear->k,
        t.linear->g ? scale_text(*t.linear->g) : "", percent_text(t.saturated),
        percent_text(t.subnormal), percent_text(t.zero), percent_text(t.lost),
        percent_text(t.full));
  return out + "</tbody>\n</table></div>\n</section>\n";
}

// The charts' numbers for those who read tables.
std::string projection_table(const LayerGrid& grid) {
  if (grid.rows.empty()) return {};
  std::vector<LayerCell> rows(grid.rows.size());
  for (const auto& [at, cell] : grid.cells) {
    LayerCell& row = rows[at.first];
    row.n_linears += cell.n_linears;
    if (cell.g_max > 0) {
      row.g_min = row.g_min == 0 ? cell.g_min : std::min(row.g_min, cell.g_min);
      row.g_max = std::max(row.g_max, cell.g_max);
    }
    for (const BlockShare& share : block_shares()) row.*share.count += cell.*share.count;
    row.n_e4m3_blocks += cell.n_e4m3_blocks;
    row.n_blocks += cell.n_blocks;
  }
  std::string out =
      "<details>\n<summary>The same as a table, by projection</summary>\n<div class=\"scroll\">"
      "<table>\n<thead><tr><th scope=\"col\">Projection</th><th scope=\"col\">Linears</th>"
      "<th scope=\"col\">Smallest g</th><th scope=\"col\">Largest g</th>"
      "<th scope=\"col\">At 448</th><th scope=\"col\">Subnormal</th><th scope=\"col\">Zeros</th>"
      "</tr></thead>\n<tbody>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    out += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td>",
                       html_escape(grid.rows[i]), rows[i].n_linears,
                       rows[i].g_max > 0 ? scale_text(rows[i].g_min) : "",
                       rows[i].g_max > 0 ? scale_text(rows[i].g_max) : "");
    for (const BlockShare& share : block_shares()) {
      const auto of = rows[i].*share.of;
      out += fmt::format("<td>{}</td>",
                         of == 0 ? ""
                                 : percent_text(static_cast<double>(rows[i].*share.count) /
                                                static_cast<double>(of)));
    }
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table></div>\n</details>\n";
}

std::string charts_section(const Diagnosis& diagnosis) {
  std::string out = "<section>\n<h2>4-bit weights</h2>\n";
  const auto four_bit =
      std::count_if(diagnosis.linears.begin(), diagnosis.linears.end(),
                    [](const LinearSummary& linear) { return has_codes(linear.scheme); });
  if (four_bit == 0)
    return out + "<p>No linear has 4-bit weights: there is nothing to chart.</p>\n</section>\n";
  const bool counted = std::any_of(diagnosis.linears.begin(), diagnosis.linears.end(),
                                   [](const LinearSummary& l) { return bool{l.statistics}; });
  const LayerGrid grid = layer_grid(diagnosis);
  out += global_scale_chart(grid);
  if (!counted)
    out += "<p>Codes and block scales were not read, so only global scales are shown.</p>\n";
  for (const BlockShare& share : block_shares()) out += block_share_chart(grid, share);
  out += code_chart(diagnosis) + projection_table(grid);
  if (!grid.elsewhere.empty()) {
    const size_t shown = std::min<size_t>(grid.elsewhere.size(), 8);
    const std::vector<std::string> names(grid.elsewhere.begin(),
                                         grid.elsewhere.begin() + static_cast<int64_t>(shown));
    out += fmt::format("<p>In no layer, so not in the charts by layer: {}{}.</p>\n",
                       html_escape(fmt::format("{}", fmt::join(names, ", "))),
                       shown < grid.elsewhere.size() ? ", ..." : "");
  }
  return out + "</section>\n";
}

}  // namespace

std::string html_report(const Diagnosis& diagnosis, const ReportComparisons& beside) {
  std::string out =
      page_begin(fmt::format("{}: {}", diagnosis.model, verdict_name(diagnosis.verdict)));
  out += verdict_section(diagnosis) + reading_section(diagnosis) + findings_section(diagnosis);
  out += engine_section(beside);
  if (beside.against != nullptr) out += against_section(*beside.against);
  if (diagnosis.verdict != Verdict::kUnreadable)
    out += charts_section(diagnosis) + worst_table(diagnosis);
  if (!diagnosis.skipped.empty())
    out +=
        fmt::format("<section>\n<h2>Not judged</h2>\n{}</section>\n", html_list(diagnosis.skipped));
  out += fmt::format("<footer><p>{} checked in {:.3g} s.</p></footer>\n",
                     bytes_text(static_cast<double>(diagnosis.summary.checked_bytes)),
                     diagnosis.summary.seconds);
  return out + std::string(kPageEnd);
}

}  // namespace sextant
