// The report for a terminal.
#include <algorithm>

#include "cli/compare_report.h"
#include "cli/format.h"
#include "cli/output.h"
#include "cli/table.h"
#include "model/first_bad_tap.h"

namespace sextant {
namespace {

constexpr size_t kShown = 8;  // divergences

std::string cosine_text(double x) { return fmt::format("{:.6f}", x); }
std::string ratio_text(double x) { return fmt::format("{:.4f}", x); }
std::string error_text(double x) { return x == 0 ? "0" : fmt::format("{:.3g}", x); }

std::string bad_text(const DifferenceOfRows& d) {
  if (d.n_bad_a + d.n_bad_b == 0) return "";
  return fmt::format("{} / {}", format_count(d.n_bad_a), format_count(d.n_bad_b));
}

std::string tap_name(const ComparedTap& tap) {
  return tap.expert ? fmt::format("{} of expert {}", tap.name, *tap.expert) : tap.name;
}

// The tap that is furthest from A's.
const ComparedTap* worst_of(const StageReport& stage) {
  const ComparedTap* worst = nullptr;
  for (const ComparedTap& tap : stage.taps)
    if (worst == nullptr || tap.difference.relative_l2() > worst->difference.relative_l2())
      worst = &tap;
  return worst;
}

std::string stages_table(const CompareReport& report) {
  using Align = Table::Align;
  const bool has_experts =
      std::any_of(report.stages.begin(), report.stages.end(),
                  [](const StageReport& stage) { return stage.same_experts.has_value(); });
  std::vector<Table::Column> columns = {{"layer"},
                                        {"cosine", Align::kRight},
                                        {"rms ratio", Align::kRight},
                                        {"relative L2", Align::kRight},
                                        {"worst tap"},
                                        {"there", Align::kRight},
                                        {"beyond"},
                                        {"streams: cosine", Align::kRight},
                                        {"rms ratio", Align::kRight},
                                        {"relative L2", Align::kRight},
                                        {"not finite", Align::kRight}};
  if (has_experts) columns.push_back({"same experts", Align::kRight});
  Table table(std::move(columns));
  for (const StageReport& stage : report.stages) {
    const ComparedTap* worst = worst_of(stage);
    if (worst == nullptr) continue;
    const DifferenceOfRows& own = stage.taps.back().difference;
    std::vector<std::string> cells = {
        stage_label(report, stage),
        cosine_text(own.cosine()),
        ratio_text(own.rms_ratio()),
        error_text(own.relative_l2()),
        worst->difference.n_different > 0 ? tap_name(*worst) : "",
        worst->difference.n_different > 0 ? error_text(worst->difference.relative_l2()) : "",
        stage.divergence ? tap_name(stage.divergence->tap) : "",
        cosine_text(stage.drift.cosine()),
        ratio_text(stage.drift.rms_ratio()),
        error_text(stage.drift.relative_l2()),
        bad_text(stage.drift)};
    if (has_experts)
      cells.push_back(stage.same_experts ? fmt::format("{:.2f} %", 100 * *stage.same_experts) : "");
    table.add(std::move(cells));
  }
  return table.text();
}

std::string taps_table(const CompareReport& report) {
  using Align = Table::Align;
  Table table({{"tap"},
               {"rows", Align::kRight},
               {"cosine", Align::kRight},
               {"rms ratio", Align::kRight},
               {"relative L2", Align::kRight},
               {"limit", Align::kRight},
               {"not finite", Align::kRight},
               {""},
               {"module"}});
  for (const StageReport& stage : report.stages)
    for (const ComparedTap& tap : stage.taps)
      table.add({tap.layer >= 0 ? fmt::format("{}.{}", tap.layer, tap.name) : tap.name,
                 format_count(tap.n_rows), cosine_text(tap.difference.cosine()),
                 ratio_text(tap.difference.rms_ratio()), error_text(tap.difference.relative_l2()),
                 error_text(tap.limit), bad_text(tap.difference), tap.stands_out ? "BEYOND" : "",
                 one_line(tap.module)});
  return table.text();
}

std::string end_text(const CompareReport& report, const CompareSubject& subject) {
  const EvalResult& scores = report.scores;
  const EvalAgainst& against = *scores.against;
  std::string out = fmt::format(
      "perplexity  A {:.4f}, B {:.4f}\n"
      "KL(A || B)  {:.6f} mean, {:.4f} largest; {:.6f} the other way round\n"
      "top-1       {:.2f} % agree\n"
      "counted     {} of {} tokens in {} windows of {}; the first token of each is not scored\n",
      against.perplexity, scores.perplexity, against.mean_kl, against.max_kl,
      against.mean_kl_reverse, 100 * against.top1_agreement, format_count(scores.n_scored),
      format_count(scores.n_tokens), scores.n_windows, scores.window);
  if (scores.n_tokens < subject.n_ids)
    out += fmt::format("left out    {} more tokens (--max-windows)\n",
                       format_count(subject.n_ids - scores.n_tokens));
  return out;
}

}  // namespace

std::string_view compare_verdict(const CompareReport& report) {
  if (report.is_bad) return "bad";
  if (!report.first_difference) return "identical";
  return report.divergences().empty() ? "explained" : "diverges";
}

std::string stage_label(const CompareReport& report, const StageReport& stage) {
  if (stage.stage == 0) return "embed";
  if (stage.stage + 1 == static_cast<int64_t>(report.stages.size())) return "head";
  return fmt::format("{}", stage.stage - 1);
}

std::string divergence_text(const Divergence& divergence) {
  const ComparedTap& tap = divergence.tap;
  std::string text = tap_text(tap.name, tap.layer, tap.module);
  if (tap.first_bad) {
    const TapElement& at = *tap.first_bad;
    text += fmt::format(", token {}, column {}: ", at.position, at.column);
    text += divergence.in_own_stream ? fmt::format("{} in B's own stream", at.b)
                                     : fmt::format("{} in A, {} in B", at.a, at.b);
    return text;
  }
  text += fmt::format(": relative L2 {}, cosine {}, rms ratio {}",
                      error_text(tap.difference.relative_l2()),
                      cosine_text(tap.difference.cosine()), ratio_text(tap.difference.rms_ratio()));
  if (!divergence.ratio.empty()) text += fmt::format(" ({})", divergence.ratio);
  return text;
}

std::string compare_text(const CompareSubject& subject, const CompareReport& report,
                         bool all_taps) {
  std::string out =
      fmt::format("A  {}, policy {}\nB  {}, policy {}\n\n", one_line(subject.a),
                  join(subject.policy_a, " "), one_line(subject.b), join(subject.policy_b, " "));
  out += all_taps ? taps_table(report) : stages_table(report);
  out += "\n";
  if (const auto divergences = report.divergences(); !divergences.empty()) {
    const size_t n_shown = all_taps ? divergences.size() : std::min(divergences.size(), kShown);
    for (size_t i = 0; i < n_shown; ++i)
      out += fmt::format("{}{}\n  because: {}\n",
                         i == 0 ? "first divergence: " : "and: ", divergence_text(*divergences[i]),
                         one_line(divergences[i]->cause.message));
    if (n_shown < divergences.size())
      out += fmt::format("and {} more layers like these (-v)\n", divergences.size() - n_shown);
  } else if (!report.first_difference) {
    out += "identical: every tap is equal, bit for bit\n";
  } else {
    out +=
        fmt::format("every tap is within what formats and policies explain\nfirst difference: {}\n",
                    divergence_text(*report.first_difference));
  }
  return out + "\n" + end_text(report, subject);
}

}  // namespace sextant
