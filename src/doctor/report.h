// A diagnosis as text for a terminal, as the JSON of cli.md section 4, and as one page of HTML
// that needs no network.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "doctor/against.h"
#include "doctor/diagnosis.h"
#include "doctor/engines.h"
#include "io/json.h"

namespace sextant {

struct TextReportOptions {
  bool color = false;
  bool details = false;  // every instance of every finding, notes included
};
std::string text_report(const Diagnosis& diagnosis, const TextReportOptions& options);
Json json_report(const Diagnosis& diagnosis);
Json finding_json(const Finding& finding);
// What one engine would do.
std::string text_report(std::string_view engine, std::span<const EnginePrediction> predictions);
Json json_report(std::span<const EnginePrediction> predictions);

// What was asked for beside the diagnosis.
struct ReportComparisons {
  std::string_view engine = {};  // empty: none
  std::span<const EnginePrediction> predictions = {};
  const AgainstReport* against = nullptr;
};
std::string html_report(const Diagnosis& diagnosis, const ReportComparisons& beside = {});

}  // namespace sextant
