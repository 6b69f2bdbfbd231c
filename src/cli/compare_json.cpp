// The JSON of docs/compare.schema.json.
#include "cli/compare_report.h"
#include "cli/version.h"
#include "io/ordered_json.h"

namespace sextant {
namespace {

Json layer_of(int64_t layer) { return layer < 0 ? Json(nullptr) : Json(layer); }

Json difference_json(const DifferenceOfRows& d) {
  return {{"cosine", json_number(d.cosine())},
          {"rms_ratio", json_number(d.rms_ratio())},
          {"relative_l2", json_number(d.relative_l2())},
          {"different", d.n_different},
          {"bad_a", d.n_bad_a},
          {"bad_b", d.n_bad_b}};
}

Json compared_tap_json(const ComparedTap& tap) {
  Json json = {{"tap", tap.name},
               {"layer", layer_of(tap.layer)},
               {"expert", or_null(tap.expert)},
               {"module", text_or_null(tap.module)},
               {"rows", tap.n_rows},
               {"columns", tap.n_columns}};
  json.update(difference_json(tap.difference));
  json["limit"] = json_number(tap.limit);
  json["weight_ratio"] = tap.weight_ratio ? json_number(*tap.weight_ratio) : Json(nullptr);
  json["beyond"] = tap.stands_out;
  return json;
}

Json element_json(const std::optional<TapElement>& element, bool has_a) {
  if (!element) return nullptr;
  return {{"position", element->position},
          {"row", element->row},
          {"column", element->column},
          {"a", has_a ? json_number(static_cast<double>(element->a)) : Json(nullptr)},
          {"b", json_number(static_cast<double>(element->b))}};
}

Json divergence_json(const Divergence& divergence) {
  const DifferenceCause& cause = divergence.cause;
  const auto number = [](std::optional<double> x) { return x ? json_number(*x) : Json(nullptr); };
  Json json = compared_tap_json(divergence.tap);
  json["ratio"] = text_or_null(divergence.ratio);
  json["own_stream"] = divergence.in_own_stream;
  json["first_different"] = element_json(divergence.tap.first_different, true);
  json["first_bad"] = element_json(divergence.tap.first_bad, !divergence.in_own_stream);
  json["cause"] = {{"kind", cause.kind},
                   {"side", std::string(1, cause.side)},
                   {"tensors", cause.tensors},
                   {"index", cause.index},
                   {"value_a", number(cause.value_a)},
                   {"value_b", number(cause.value_b)},
                   {"ratio", text_or_null(cause.ratio)},
                   {"message", cause.message}};
  json["message"] = divergence_text(divergence) + ": " + cause.message;
  return json;
}

Json end_json(const EvalResult& scores) {
  const EvalAgainst& against = *scores.against;
  Json worst = Json::array();
  for (const EvalPosition& at : against.worst)
    worst.push_back({{"position", at.position},
                     {"token", at.token},
                     {"kl", json_number(at.kl)},
                     {"logprob_a", json_number(at.logprob_reference)},
                     {"logprob_b", json_number(at.logprob)}});
  return {{"perplexity_a", json_number(against.perplexity)},
          {"perplexity_b", json_number(scores.perplexity)},
          {"nll_a", json_number(against.nll)},
          {"nll_b", json_number(scores.nll)},
          {"mean_kl", json_number(against.mean_kl)},
          {"mean_kl_reverse", json_number(against.mean_kl_reverse)},
          {"max_kl", json_number(against.max_kl)},
          {"top1_agreement", json_number(against.top1_agreement)},
          {"worst", std::move(worst)}};
}

Json stage_json(const CompareReport& report, const StageReport& stage) {
  Json taps = Json::array();
  for (const ComparedTap& tap : stage.taps) taps.push_back(compared_tap_json(tap));
  return {{"stage", stage_label(report, stage)},
          {"taps", std::move(taps)},
          {"drift", difference_json(stage.drift)},
          {"same_experts", or_null(stage.same_experts)},
          {"resident_bytes", {{"a", stage.weight_bytes_a}, {"b", stage.weight_bytes_b}}}};
}

}  // namespace

Json compare_json(const CompareSubject& subject, const CompareReport& report) {
  Json stages = Json::array();
  Json divergences = Json::array();
  for (const StageReport& stage : report.stages) stages.push_back(stage_json(report, stage));
  for (const Divergence* divergence : report.divergences())
    divergences.push_back(divergence_json(*divergence));
  Json json = {
      {"version", SX_VERSION},
      {"a", {{"model", subject.a}, {"policy", subject.policy_a}}},
      {"b", {{"model", subject.b}, {"policy", subject.policy_b}}},
      {"isa", subject.isa},
      {"tokens", report.scores.n_tokens},
      {"scored", report.scores.n_scored},
      {"windows", report.scores.n_windows},
      {"window", report.scores.window},
      {"left_out", subject.n_ids - report.scores.n_tokens},
      {"verdict", compare_verdict(report)},
      {"first_difference",
       report.first_difference ? divergence_json(*report.first_difference) : Json(nullptr)},
      {"first_divergence", divergences.empty() ? Json(nullptr) : divergences.front()}};
  json["divergences"] = std::move(divergences);
  json["stages"] = std::move(stages);
  json["end"] = end_json(report.scores);
  json["ok"] = subject.gate.empty();
  json["gate"] = text_or_null(subject.gate);
  json["seconds"] = subject.seconds;
  return json;
}

}  // namespace sextant
