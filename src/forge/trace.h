// One sequence through a model with a probe at every tap: statistics, the first bad tap with its
// cause, and what of the numbers is out of the ordinary (nvfp4.md 6.2). Runs and judges; shows
// nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/directory.h"
#include "forge/dump_writer.h"
#include "model/bad_tap_cause.h"
#include "model/model.h"
#include "model/tap_trace.h"

namespace sextant {

struct TraceOptions {
  int64_t chunk = 512;         // ids a step
  DumpWriter* dump = nullptr;  // gets every row; the caller commits it
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(int64_t done, int64_t total)> progress;
};

struct BadTap {
  FirstBadTap::Found found;
  std::optional<int64_t> position;
  std::optional<int32_t> token;
  BadTapCause cause;
};

struct DeadTap {
  std::string name;
  int64_t layer = -1;
  std::string module;
  BadTapCause cause;
};

// A number beyond its limit in the table of nvfp4.md 6.2.
struct TraceAlarm {
  std::string module;
  int64_t layer = -1;
  std::string quantity;  // "ratio", "clipped", "zero-blocks"
  double value = 0;
  double limit = 0;
  Severity severity = Severity::kWarning;
};

struct TraceReport {
  std::vector<TracedTap> taps;  // in execution order
  std::optional<BadTap> first_bad;
  std::vector<DeadTap> dead;
  std::vector<TraceAlarm> alarms;
  double forward_s = 0;  // with the probe
  double taps_s = 0;     // of that, in the probe
};

// kInput for ids that the model cannot take. checkpoint: what the model was loaded from.
Result<TraceReport> trace(const Model& model, const Checkpoint& checkpoint,
                          std::span<const int32_t> ids, const TraceOptions& options,
                          ThreadPool& pool);

std::vector<TraceAlarm> alarms_of(std::span<const TracedTap> taps);

}  // namespace sextant
