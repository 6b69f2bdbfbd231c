// The JSON of cli.md section 4; docs/doctor.schema.json describes it.
#include "doctor/check_list.h"
#include "doctor/report.h"
#include "io/ordered_json.h"

namespace sextant {
Json finding_json(const Finding& finding) {
  const CheckInfo* check = find_check(finding.id, finding.slug);
  Json engines = Json::object();
  for (const auto& [engine, effect] : finding.engines) engines[engine] = effect;
  return Json{{"id", finding.id},
              {"slug", finding.slug},
              {"severity", severity_name(finding.severity)},
              {"title", check == nullptr ? "" : check->title},
              {"message", finding.message},
              {"remedy", finding.remedy},
              {"tensor", text_or_null(finding.tensor)},
              {"layer", or_null(finding.layer)},
              {"expert", or_null(finding.expert)},
              {"index", finding.index.empty() ? Json(nullptr) : Json(finding.index)},
              {"file", finding.file},
              {"offset", or_null(finding.offset)},
              {"value", finding.value ? json_number(*finding.value) : Json(nullptr)},
              {"expected", finding.expected},
              {"count", finding.count},
              {"instances", finding.instances},
              {"engines", engines}};
}

Json json_report(std::span<const EnginePrediction> predictions) {
  Json list = Json::array();
  for (const EnginePrediction& p : predictions)
    list.push_back({{"engine", p.engine},
                    {"effect", p.effect},
                    {"symptom", p.symptom},
                    {"tensor", text_or_null(p.tensor)},
                    {"first_layer", or_null(p.first_layer)},
                    {"count", p.count},
                    {"message", p.message},
                    {"source", p.source}});
  return list;
}

Json json_report(const Diagnosis& d) {
  Json linears = Json::object();
  for (const auto& [scheme, n] : d.summary.linears) linears[scheme] = n;
  Json findings = Json::array();
  for (const Finding& finding : d.findings) findings.push_back(finding_json(finding));
  return Json{{"version", ""},
              {"model", d.model},
              {"verdict", verdict_name(d.verdict)},
              {"dialect", {{"name", d.dialect}, {"evidence", d.dialect_evidence}}},
              {"convention",
               {{"weight_global", d.convention.weight_global},
                {"input", d.convention.input},
                {"evidence", d.convention.evidence}}},
              {"summary",
               {{"files", d.summary.n_files},
                {"tensors", d.summary.n_tensors},
                {"bytes", d.summary.n_bytes},
                {"linears", linears},
                {"bits_per_weight", d.summary.bits_per_weight},
                {"quantized_share", d.summary.quantized_share},
                {"checked_bytes", d.summary.checked_bytes},
                {"seconds", d.summary.seconds}}},
              {"skipped", d.skipped},
              {"findings", findings}};
}

}  // namespace sextant
