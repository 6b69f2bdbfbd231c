// The JSON of docs/trace.schema.json.
#include "base/checked.h"
#include "cli/trace_report.h"
#include "cli/version.h"
#include "doctor/diagnosis.h"
#include "io/ordered_json.h"

namespace sextant {
namespace {

Json layer_json(int64_t layer) { return layer < 0 ? Json(nullptr) : Json(layer); }

Json cause_json(const BadTapCause& cause) {
  return {{"kind", cause_name(cause.kind)},
          {"tensor", text_or_null(cause.tensor)},
          {"index", cause.index},
          {"file", text_or_null(cause.file)},
          {"offset", or_null(cause.offset)},
          {"value", cause.value ? json_number(*cause.value) : Json(nullptr)},
          {"message", cause.message}};
}

Json bad_json(const BadTap& bad, const TraceSubject& subject) {
  Json text = nullptr;
  if (bad.token && subject.tokenizer != nullptr)
    text = subject.tokenizer->decode({&*bad.token, 1}, false);
  return {{"tap", bad.found.name},
          {"layer", layer_json(bad.found.layer)},
          {"expert", or_null(name_position(bad.found.module).expert)},
          {"module", text_or_null(bad.found.module)},
          {"row", bad.found.row},
          {"column", bad.found.col},
          {"position", or_null(bad.position)},
          {"token", or_null(bad.token)},
          {"text", std::move(text)},
          {"value", json_number(static_cast<double>(bad.found.value))},
          {"cause", cause_json(bad.cause)},
          {"message", bad_tap_text(bad, subject) + ": " + bad.cause.message}};
}

Json input_json(const TracedTap& tap) {
  if (!tap.is_input()) return nullptr;
  if (!tap.input) return {{"scale", nullptr}};
  const ScaleUse& use = tap.input->use;
  Json json = {{"scale", json_number(static_cast<double>(tap.input->scale))},
               {"format", tap.input->is_nvfp4 ? "nvfp4" : "fp8"},
               {"calibrated_amax", json_number(static_cast<double>(tap.input->calibrated_amax))},
               {"ratio", json_number(*tap.ratio())},
               {"clipped", share_of(use.n_clipped, use.n_elements)},
               {"underflowed", share_of(use.n_underflowed, use.n_elements)}};
  if (tap.input->is_nvfp4) {
    json["saturated_blocks"] = share_of(use.n_saturated_blocks, use.n_blocks);
    json["zero_blocks"] = share_of(use.n_zero_blocks, use.n_blocks);
    json["subnormal_blocks"] = share_of(use.n_subnormal_blocks, use.n_blocks);
  } else {
    json["subnormal"] = share_of(use.n_subnormal, use.n_elements);
  }
  return json;
}

Json tap_json(const TracedTap& tap) {
  return {{"tap", tap.name},
          {"layer", layer_json(tap.layer)},
          {"expert", or_null(tap.expert)},
          {"module", text_or_null(tap.module)},
          {"rows", tap.statistics.n_rows},
          {"columns", tap.statistics.n_cols},
          {"amax", json_number(static_cast<double>(tap.statistics.amax))},
          {"rms", json_number(tap.statistics.rms())},
          {"nan", tap.statistics.n_nan},
          {"inf", tap.statistics.n_inf},
          {"input", input_json(tap)}};
}

}  // namespace

Json trace_json(const TraceSubject& subject, const TraceReport& report,
                const std::string& taps_pattern) {
  Json dead = Json::array();
  for (const DeadTap& tap : report.dead)
    dead.push_back({{"tap", tap.name},
                    {"layer", layer_json(tap.layer)},
                    {"module", tap.module},
                    {"cause", cause_json(tap.cause)}});
  Json alarms = Json::array();
  for (const TraceAlarm& alarm : report.alarms)
    alarms.push_back({{"module", alarm.module},
                      {"layer", layer_json(alarm.layer)},
                      {"quantity", alarm.quantity},
                      {"value", json_number(alarm.value)},
                      {"limit", alarm.limit},
                      {"severity", severity_name(alarm.severity)},
                      {"message", alarm_text(alarm)}});
  Json taps = Json::array();
  for (const TracedTap& tap : report.taps)
    if (matches_tap(tap, taps_pattern)) taps.push_back(tap_json(tap));
  return {
      {"version", SX_VERSION},
      {"model", subject.model},
      {"policy", subject.policies},
      {"isa", subject.isa},
      {"ids", subject.ids},
      {"verdict", report.first_bad ? "bad" : "finite"},
      {"first_bad", report.first_bad ? bad_json(*report.first_bad, subject) : Json(nullptr)},
      {"dead", std::move(dead)},
      {"alarms", std::move(alarms)},
      {"taps", std::move(taps)},
      {"timings",
       {{"load_s", subject.load_s}, {"forward_s", report.forward_s}, {"taps_s", report.taps_s}}}};
}

}  // namespace sextant
