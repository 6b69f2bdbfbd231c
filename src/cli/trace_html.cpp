// One page that needs no network and no script, in the look of doctor's: what was found, charts by
// layer, the same as a table. Every text from the model or the prompt is escaped.
#include <algorithm>

#include "cli/format.h"
#include "cli/trace_report.h"
#include "doctor/layer_charts.h"
#include "doctor/report_charts.h"
#include "doctor/report_svg.h"

namespace sextant {
namespace {

constexpr size_t kAlarmsOnPage = 24;
constexpr double kShareLimit = 1e-3;  // nvfp4.md 6.2
constexpr std::string_view kCharted[] = {"hidden", "attn_in",  "q_rope", "k_rope",
                                         "v",      "attn_out", "mlp_in", "mlp_act"};

// Layers and rows of a chart in the order they come, with a bound.
class ChartGrid {
 public:
  std::vector<int64_t> layers;
  std::vector<std::string> rows;

  // The place of a tap's cell; nothing for what is in no layer, or beyond the bound.
  std::optional<std::pair<size_t, size_t>> place(int64_t layer, const std::string& row) {
    if (layer < 0) return std::nullopt;
    const auto l = index_of(layers, layer, kMaxChartLayers);
    const auto r = index_of(rows, row, kMaxChartRows);
    if (!l || !r) return std::nullopt;
    return std::pair(*r, *l);
  }

 private:
  template <class T>
  static std::optional<size_t> index_of(std::vector<T>& list, const T& value, size_t most) {
    const auto at = std::find(list.begin(), list.end(), value);
    if (at == list.end() && list.size() == most) return std::nullopt;
    const auto index = static_cast<size_t>(at - list.begin());
    if (at == list.end()) list.push_back(value);
    return index;
  }
};

// value(tap) of the taps that row(tap) gives a name; the range over experts.
template <class Row, class Value>
std::string lines_chart(const TraceReport& report, LayerLines chart, Row row, Value value) {
  ChartGrid grid;
  std::map<std::pair<size_t, size_t>, LayerRange> cells;
  for (const TracedTap& tap : report.taps) {
    const std::string label = row(tap);
    if (label.empty()) continue;
    const auto at = grid.place(tap.layer, label);
    const double x = value(tap);
    if (!at || !(x > 0)) continue;
    LayerRange& cell = cells[*at];
    cell.low = cell.high == 0 ? x : std::min(cell.low, x);
    cell.high = std::max(cell.high, x);
  }
  chart.layers = grid.layers;
  for (const std::string& label : grid.rows)
    chart.series.push_back({label, std::vector<LayerRange>(grid.layers.size())});
  for (const auto& [at, range] : cells) chart.series[at.first].at[at.second] = range;
  return layer_lines_chart(chart);
}

std::string charted_name(const TracedTap& tap) {
  const bool charted =
      std::find(std::begin(kCharted), std::end(kCharted), tap.name) != std::end(kCharted);
  return charted && !tap.expert ? tap.name : std::string();
}

std::string scaled_projection(const TracedTap& tap) {
  return tap.input ? projection_of(tap) : std::string();
}

// A share of an input's elements by projection and layer; a sentence where it is nowhere above 0.
std::string shares_chart(const TraceReport& report, std::string_view id, std::string_view title,
                         std::string_view what, int64_t ScaleUse::*count) {
  ChartGrid grid;
  std::map<std::pair<size_t, size_t>, ScaleUse> cells;
  ScaleUse all;
  for (const TracedTap& tap : report.taps) {
    if (!tap.input) continue;
    all.add(tap.input->use);
    if (const auto at = grid.place(tap.layer, projection_of(tap))) cells[*at].add(tap.input->use);
  }
  if (all.n_elements == 0) return {};
  if (all.*count == 0)
    return fmt::format("<p>No element {} among {}.</p>\n", what, count_text(all.n_elements));
  const double share = static_cast<double>(all.*count) / static_cast<double>(all.n_elements);
  LayerShares chart;
  chart.id = id;
  chart.title = title;
  chart.description =
      fmt::format("Rows are projections, columns are layers, stronger is more. {} of all elements.",
                  percent_text(share));
  chart.rows = grid.rows;
  chart.layers = grid.layers;
  chart.threshold = kShareLimit;
  for (const auto& [at, use] : cells)
    if (use.n_elements > 0)
      chart.cells[at] = static_cast<double>(use.*count) / static_cast<double>(use.n_elements);
  chart.caption =
      fmt::format("{} of {} elements of inputs. Strong and outlined above {}.", percent_text(share),
                  count_text(all.n_elements), percent_text(kShareLimit));
  return layer_shares_chart(chart);
}

std::string verdict_of(const TraceSubject& subject, const TraceReport& report) {
  const bool alarmed = !report.alarms.empty() || !report.dead.empty();
  const char* look = report.first_bad ? "errors" : alarmed ? "warnings" : "healthy";
  const std::string sentence =
      report.first_bad ? bad_tap_text(*report.first_bad, subject)
                       : fmt::format("every value is finite at {} taps",
                                     count_text(static_cast<int64_t>(report.taps.size())));
  std::string out = fmt::format(
      "<header>\n<p class=\"kicker\">Sextant trace</p>\n<h1>{}</h1>\n"
      "<p class=\"verdict {}\"><strong>{}</strong> {}</p>\n<dl class=\"facts\">\n",
      html_escape(subject.model), look, report.first_bad ? "not finite" : "finite",
      html_escape(sentence));
  if (report.first_bad) {
    const BadTapCause& cause = report.first_bad->cause;
    out += html_term("Because", cause.message) + html_term("Tensor", cause.tensor);
    if (cause.offset)
      out += html_term("Place", fmt::format("{}, byte {}", cause.file, *cause.offset));
  }
  out += html_term("Tokens", count_text(static_cast<int64_t>(subject.ids.size())));
  out += html_term("Policy", join(subject.policies, " ")) + html_term("Kernels", subject.isa);
  return out + "</dl>\n</header>\n";
}

std::string findings_of(const TraceReport& report) {
  if (report.alarms.empty() && report.dead.empty()) return {};
  std::string out = "<section>\n<h2>Out of the ordinary</h2>\n<ul>\n";
  for (const DeadTap& dead : report.dead)
    out += fmt::format("<li>{} is zero throughout, its input is not: {}</li>\n",
                       html_escape(tap_text(dead.name, dead.layer, dead.module)),
                       html_escape(dead.cause.message));
  for (size_t i = 0; i < std::min(report.alarms.size(), kAlarmsOnPage); ++i)
    out += fmt::format("<li>{}</li>\n", html_escape(alarm_text(report.alarms[i])));
  if (report.alarms.size() > kAlarmsOnPage)
    out += fmt::format("<li>and {} more like these</li>\n", report.alarms.size() - kAlarmsOnPage);
  return out + "</ul>\n</section>\n";
}

std::string charts_of(const TraceReport& report) {
  std::string out = "<section>\n<h2>By layer</h2>\n";
  LayerLines chart;
  chart.lines = "tensors";
  chart.id = "amax";
  chart.title = "Largest magnitude by layer";
  chart.what = "Amax";
  chart.caption = "The largest finite magnitude over all tokens.";
  out += lines_chart(report, chart, charted_name,
                     [](const TracedTap& tap) { return static_cast<double>(tap.statistics.amax); });
  chart.id = "rms";
  chart.title = "Root mean square by layer";
  chart.what = "Rms";
  chart.caption = "Of the finite elements, over all tokens.";
  out += lines_chart(report, chart, charted_name,
                     [](const TracedTap& tap) { return tap.statistics.rms(); });
  out += "</section>\n<section>\n<h2>Inputs under their static scales</h2>\n";
  const bool scaled = std::any_of(report.taps.begin(), report.taps.end(),
                                  [](const TracedTap& tap) { return tap.input.has_value(); });
  if (!scaled)
    return out +
           "<p>No linear has an activation scale: there is nothing to compare with.</p>\n"
           "</section>\n";
  chart.id = "ratio";
  chart.lines = "projections";
  chart.title = "r, the input's amax as a share of the calibrated one";
  chart.what = "r";
  chart.caption =
      "Expected from 2<sup>-10</sup> to 1; above 1 an NVFP4 quantizer clips. Where experts differ, "
      "the largest, with a bar down to the smallest.";
  out += lines_chart(report, chart, scaled_projection,
                     [](const TracedTap& tap) { return *tap.ratio(); });
  out += shares_chart(report, "clipped", "Saturated: elements that the scale clips",
                      "is clipped by its scale", &ScaleUse::n_clipped);
  out += shares_chart(report, "underflowed", "Underflowed: elements that the scale flushes to zero",
                      "is flushed to zero by its scale", &ScaleUse::n_underflowed);
  return out + "</section>\n";
}

std::string table_of(const TraceReport& report) {
  std::string out =
      "<section>\n<h2>Numbers</h2>\n<div class=\"scroll\"><table>\n<thead><tr>"
      "<th scope=\"col\">Layer</th><th scope=\"col\">Amax</th><th scope=\"col\">Rms</th>"
      "<th scope=\"col\">Not finite</th><th scope=\"col\">Largest r</th><th scope=\"col\">Of</th>"
      "<th scope=\"col\">Clipped</th><th scope=\"col\">Underflowed</th></tr></thead>\n<tbody>\n";
  for (const TraceLayer& layer : trace_layers(report)) {
    const auto part = [&](int64_t n) {
      return layer.use.n_elements == 0
                 ? std::string()
                 : percent_text(static_cast<double>(n) / static_cast<double>(layer.use.n_elements));
    };
    out += fmt::format(
        "<tr><th scope=\"row\">{}</th><td>{:.4g}</td><td>{:.4g}</td><td>{}</td><td>{}</td>"
        "<td>{}</td><td>{}</td><td>{}</td></tr>\n",
        html_escape(layer.label), layer.amax, layer.rms, count_text(layer.n_bad),
        layer.ratio ? fmt::format("{:.3g}", *layer.ratio) : "", html_escape(layer.ratio_module),
        part(layer.use.n_clipped), part(layer.use.n_underflowed));
  }
  return out + "</tbody>\n</table></div>\n</section>\n";
}

}  // namespace

std::string trace_html(const TraceSubject& subject, const TraceReport& report) {
  std::string out =
      page_begin(fmt::format("{}: {}", subject.model, report.first_bad ? "not finite" : "finite"));
  out += verdict_of(subject, report) + findings_of(report) + charts_of(report) + table_of(report);
  out += fmt::format("<footer><p>Forward pass {}, of it {} in the taps.</p></footer>\n",
                     format_seconds(report.forward_s), format_seconds(report.taps_s));
  return out + std::string(kPageEnd);
}

}  // namespace sextant
