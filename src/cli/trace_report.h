// A trace as text for a terminal, as the JSON of docs/trace.schema.json, and as one page of HTML
// that needs no network.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "forge/trace.h"
#include "io/json.h"
#include "text/tokenizer.h"

namespace sextant {

// What a trace was of.
struct TraceSubject {
  std::string model;
  std::vector<std::string> policies;
  std::string isa;
  std::vector<int32_t> ids;
  std::shared_ptr<const Tokenizer> tokenizer;  // may be null: tokens without text
  double load_s = 0;
};

struct TraceTextOptions {
  bool all_taps = false;     // a line a tap, not a line a layer
  std::string taps_pattern;  // of these only; "" for all
};
// kUsage where no tap matches.
Status check_taps_pattern(const TraceReport& report, const std::string& pattern);
// shell-style, on the tap's name, on LAYER.NAME and on its module.
bool matches_tap(const TracedTap& tap, const std::string& pattern);

std::string trace_text(const TraceSubject& subject, const TraceReport& report,
                       const TraceTextOptions& options);
Json trace_json(const TraceSubject& subject, const TraceReport& report,
                const std::string& taps_pattern);
std::string trace_html(const TraceSubject& subject, const TraceReport& report);

// "up of layer 3 (module), position 7 (token 42 " the"), column 3: nan", and why.
std::string bad_tap_text(const BadTap& bad, const TraceSubject& subject);
std::string alarm_text(const TraceAlarm& alarm);

// What a layer comes to: a line of the table. Layer -1 is before and after the layers.
struct TraceLayer {
  std::string label;  // "embed", "0", "norm", "logits"
  double amax = 0;    // of its last tensor, as rms is
  double rms = 0;
  int64_t n_bad = 0;            // over all its taps
  std::optional<double> ratio;  // the largest
  std::string ratio_module;     // last part of the module
  ScaleUse use;
};
std::vector<TraceLayer> trace_layers(const TraceReport& report);
// "q_proj", or "expert q_proj".
std::string projection_of(const TracedTap& tap);

}  // namespace sextant
