// The report for a terminal, and what all three reports share.
#include <algorithm>

#include "checkpoint/patterns.h"
#include "cli/format.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/trace_report.h"

namespace sextant {
namespace {

constexpr size_t kAlarmsShown = 8;

std::string number_text(double x) { return fmt::format("{:.4g}", x); }

std::string share_text(int64_t part, int64_t whole) {
  if (whole == 0) return "";
  if (part == 0) return "0";
  return fmt::format("{:.3g} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string count_or_nothing(int64_t n) { return n == 0 ? "" : format_count(n); }

// Blocks of NVFP4, elements of FP8.
std::string saturated_text(const ScaleUse& use) {
  return use.n_blocks > 0 ? share_text(use.n_saturated_blocks, use.n_blocks)
                          : share_text(use.n_clipped, use.n_elements);
}
std::string subnormal_text(const ScaleUse& use) {
  return use.n_blocks > 0 ? share_text(use.n_subnormal_blocks, use.n_blocks)
                          : share_text(use.n_subnormal, use.n_elements);
}

std::string layers_table(const TraceReport& report) {
  using Align = Table::Align;
  const auto layers = trace_layers(report);
  const bool scaled = std::any_of(layers.begin(), layers.end(),
                                  [](const TraceLayer& layer) { return layer.ratio.has_value(); });
  std::vector<Table::Column> columns = {
      {"layer"}, {"amax", Align::kRight}, {"rms", Align::kRight}, {"not finite", Align::kRight}};
  if (scaled)
    for (const char* title : {"largest r", "of", "clipped", "underflowed", "subnormal"})
      columns.push_back({title, std::string_view(title) == "of" ? Align::kLeft : Align::kRight});
  Table table(std::move(columns));
  for (const TraceLayer& layer : layers) {
    std::vector<std::string> cells = {layer.label, number_text(layer.amax), number_text(layer.rms),
                                      count_or_nothing(layer.n_bad)};
    if (scaled) {
      cells.push_back(layer.ratio ? fmt::format("{:.3g}", *layer.ratio) : "");
      cells.push_back(layer.ratio_module);
      cells.push_back(share_text(layer.use.n_clipped, layer.use.n_elements));
      cells.push_back(share_text(layer.use.n_underflowed, layer.use.n_elements));
      cells.push_back(subnormal_text(layer.use));
    }
    table.add(std::move(cells));
  }
  return table.text() +
         (scaled ? "" : "no linear has an activation scale: there is no r to compare with\n");
}

std::string taps_table(const TraceReport& report, const std::string& pattern) {
  using Align = Table::Align;
  Table table({{"tap"},
               {"rows", Align::kRight},
               {"amax", Align::kRight},
               {"rms", Align::kRight},
               {"NaN", Align::kRight},
               {"Inf", Align::kRight},
               {"r", Align::kRight},
               {"saturated", Align::kRight},
               {"clipped", Align::kRight},
               {"underflowed", Align::kRight},
               {"subnormal", Align::kRight},
               {"module"}});
  for (const TracedTap& tap : report.taps) {
    if (!matches_tap(tap, pattern)) continue;
    const TapStatistics& s = tap.statistics;
    const ScaleUse use = tap.input ? tap.input->use : ScaleUse();
    std::string r;
    if (tap.is_input()) r = tap.input ? fmt::format("{:.3g}", *tap.ratio()) : "no scale";
    table.add({tap.layer >= 0 ? fmt::format("{}.{}", tap.layer, tap.name) : tap.name,
               format_count(s.n_rows), number_text(double{s.amax}), number_text(s.rms()),
               count_or_nothing(s.n_nan), count_or_nothing(s.n_inf), r, saturated_text(use),
               share_text(use.n_clipped, use.n_elements),
               share_text(use.n_underflowed, use.n_elements), subnormal_text(use),
               one_line(tap.module)});
  }
  return table.text();
}

}  // namespace

bool matches_tap(const TracedTap& tap, const std::string& pattern) {
  return pattern.empty() || shell_match(pattern, tap.name) ||
         shell_match(pattern, fmt::format("{}.{}", tap.layer, tap.name)) ||
         (!tap.module.empty() && shell_match(pattern, tap.module));
}

Status check_taps_pattern(const TraceReport& report, const std::string& pattern) {
  std::vector<std::string> names;
  for (const TracedTap& tap : report.taps) {
    if (matches_tap(tap, pattern)) return {};
    if (std::find(names.begin(), names.end(), tap.name) == names.end()) names.push_back(tap.name);
  }
  return fail_at(at_field("--taps"), Code::kUsage,
                 "--taps {}: no tap matches; there are {}, each also as LAYER.NAME, and modules "
                 "such as model.layers.0.*",
                 pattern, join(names, ", "));
}

std::string projection_of(const TracedTap& tap) {
  const size_t dot = tap.module.rfind('.');
  const std::string part = dot == std::string::npos ? tap.module : tap.module.substr(dot + 1);
  return tap.expert ? "expert " + part : part;
}

std::vector<TraceLayer> trace_layers(const TraceReport& report) {
  std::vector<TraceLayer> out;
  int64_t layer = -1;
  for (const TracedTap& tap : report.taps) {
    const bool of_head = tap.layer < 0 && tap.is_input();  // counts to what comes of it
    if (of_head) continue;
    if (out.empty() || tap.layer < 0 || tap.layer != layer) {
      out.emplace_back();
      out.back().label = tap.layer < 0 ? tap.name : fmt::format("{}", tap.layer);
    }
    layer = tap.layer;
    TraceLayer& line = out.back();
    line.n_bad += tap.statistics.n_bad();
    // The last tap of a layer is its output.
    line.amax = static_cast<double>(tap.statistics.amax);
    line.rms = tap.statistics.rms();
    if (!tap.input) continue;
    line.use.add(tap.input->use);
    if (!line.ratio || *tap.ratio() > *line.ratio) {
      line.ratio = tap.ratio();
      line.ratio_module = projection_of(tap);
    }
  }
  return out;
}

std::string bad_tap_text(const BadTap& bad, const TraceSubject& subject) {
  const FirstBadTap::Found& found = bad.found;
  std::string text = tap_text(found.name, found.layer, found.module);
  if (bad.position) {
    text += fmt::format(", position {}", *bad.position);
    if (bad.token) {
      text += fmt::format(" (token {}", *bad.token);
      if (subject.tokenizer != nullptr)
        text +=
            fmt::format(" \"{}\"", one_line(subject.tokenizer->decode({&*bad.token, 1}, false)));
      text += ")";
    }
  } else {
    text += fmt::format(", row {}", found.row);
  }
  return text + fmt::format(", column {}: {}", found.col, found.value);
}

std::string alarm_text(const TraceAlarm& alarm) {
  if (alarm.quantity == "ratio")
    return fmt::format("{}: the input's amax is {:.3g} times the calibrated one, {} {:.3g}",
                       alarm.module, alarm.value, alarm.value < alarm.limit ? "below" : "above",
                       alarm.limit);
  return fmt::format("{}: {:.3g} % of its input's {}, above {:.3g} %", alarm.module,
                     100 * alarm.value,
                     alarm.quantity == "clipped" ? "elements are clipped by its scale"
                                                 : "blocks are flushed to zero by its scale",
                     100 * alarm.limit);
}

std::string trace_text(const TraceSubject& subject, const TraceReport& report,
                       const TraceTextOptions& options) {
  std::string out = fmt::format("{}: {} tokens, policy {}, {}\n\n", one_line(subject.model),
                                format_count(static_cast<int64_t>(subject.ids.size())),
                                join(subject.policies, " "), subject.isa);
  out += options.all_taps || !options.taps_pattern.empty()
             ? taps_table(report, options.taps_pattern)
             : layers_table(report);
  out += "\n";
  if (report.first_bad) {
    out += fmt::format("first bad tap: {}\nbecause: {}\n", bad_tap_text(*report.first_bad, subject),
                       one_line(report.first_bad->cause.message));
  } else {
    out += fmt::format("every value is finite at {} taps\n",
                       format_count(static_cast<int64_t>(report.taps.size())));
  }
  for (const DeadTap& dead : report.dead)
    out += fmt::format("warning: {} is zero throughout, its input is not: {}\n",
                       tap_text(dead.name, dead.layer, dead.module), one_line(dead.cause.message));
  size_t n_shown = 0;
  for (const TraceAlarm& alarm : report.alarms) {
    if (n_shown == kAlarmsShown && !options.all_taps) break;
    out += fmt::format("{}: {}\n", alarm.severity == Severity::kError ? "alarm" : "warning",
                       one_line(alarm_text(alarm)));
    ++n_shown;
  }
  if (n_shown < report.alarms.size())
    out += fmt::format("and {} more like these (-v)\n", report.alarms.size() - n_shown);
  return out;
}

}  // namespace sextant
