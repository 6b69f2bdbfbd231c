// Implements trace.h.
#include "forge/trace.h"

#include <algorithm>

#include "base/checked.h"
#include "base/clock.h"
#include "forge/run_sequence.h"

namespace sextant {
namespace {

constexpr double kRatioWarning = 1.05;
constexpr double kRatioError = 1.5;
constexpr double kRatioLow = 0x1p-12;
constexpr double kMostClipped = 1e-3;
constexpr double kMostZeroBlocks = 1e-3;

// Both probes of a step; the dump first, so that it has the row that turns out bad.
class TraceProbe : public Probe {
 public:
  TraceProbe(TapTrace& taps, DumpWriter* dump) : taps_(taps), dump_(dump) {}
  void begin_step(int64_t pos_begin, int64_t n_rows) {
    taps_.begin_step(pos_begin, n_rows);
    if (dump_ != nullptr) dump_->begin_step(pos_begin);
  }
  void visit(const Tap& tap, Mat<const float> values) override {
    if (dump_ != nullptr) dump_->visit(tap, values);
    taps_.visit(tap, values);
  }

 private:
  TapTrace& taps_;
  DumpWriter* dump_;
};

Status check_prompt(const ModelConfig& config, std::span<const int32_t> ids) {
  const auto n = static_cast<int64_t>(ids.size());
  if (n == 0) return fail(Code::kUsage, "the prompt is empty: expected at least one token");
  if (n > config.max_context)
    return fail_at({{}, {}, "prompt", {}}, Code::kInput,
                   "the maximum context length is {} tokens, the prompt has {}: shorten it",
                   config.max_context, n);
  return check_ids(config, ids, "the prompt");
}

Status run_steps(const Model& model, std::span<const int32_t> ids, const TraceOptions& options,
                 TraceProbe& probe, ThreadPool& pool) {
  const auto n = static_cast<int64_t>(ids.size());
  const int64_t chunk = is_one_step(model.config()) ? n : std::min(n, options.chunk);
  using Logits = SequenceRunner::Logits;
  SequenceRunner runner(model, n, chunk, options.dump != nullptr ? Logits::kAll : Logits::kLast,
                        pool);
  SequenceHooks hooks;
  hooks.probe = &probe;
  hooks.cancel = options.cancel;
  hooks.before = [&](int64_t begin, int64_t rows) { probe.begin_step(begin, rows); };
  hooks.after = [&](int64_t begin, int64_t rows, Mat<const float>) -> Status {
    if (options.progress) options.progress(begin + rows, n);
    return {};
  };
  return runner.run(ids, even_steps(n, chunk), hooks);
}

void explain(const Model& model, const Checkpoint& checkpoint, std::span<const int32_t> ids,
             const TapTrace& taps, TraceReport& report) {
  const ModelConfig& config = model.config();
  if (taps.first_bad()) {
    BadTap bad;
    bad.found = *taps.first_bad();
    bad.position = taps.bad_position();
    if (bad.position) bad.token = ids[static_cast<size_t>(*bad.position)];
    bad.cause = find_cause(checkpoint, config, bad.found, bad.token);
    report.first_bad = std::move(bad);
  }
  for (const TracedTap* tap : taps.dead())
    report.dead.push_back(
        {tap->name, tap->layer, tap->module,
         find_dead_cause(checkpoint, config, tap->module, model.linear_policy(tap->module))});
}

}  // namespace

std::vector<TraceAlarm> alarms_of(std::span<const TracedTap> taps) {
  std::vector<TraceAlarm> alarms;
  for (const TracedTap& tap : taps) {
    if (!tap.input) continue;
    const auto add = [&](const char* quantity, double value, double limit, Severity severity) {
      alarms.push_back({tap.module, tap.layer, quantity, value, limit, severity});
    };
    const double ratio = *tap.ratio();
    if (ratio > kRatioError)
      add("ratio", ratio, kRatioError, Severity::kError);
    else if (ratio > kRatioWarning)
      add("ratio", ratio, kRatioWarning, Severity::kWarning);
    else if (ratio < kRatioLow)
      add("ratio", ratio, kRatioLow, Severity::kWarning);
    const ScaleUse& use = tap.input->use;
    const double clipped = share_of(use.n_clipped, use.n_elements);
    if (clipped > kMostClipped) add("clipped", clipped, kMostClipped, Severity::kWarning);
    const double zero = share_of(use.n_zero_blocks, use.n_blocks);
    if (zero > kMostZeroBlocks) add("zero-blocks", zero, kMostZeroBlocks, Severity::kWarning);
  }
  return alarms;
}

Result<TraceReport> trace(const Model& model, const Checkpoint& checkpoint,
                          std::span<const int32_t> ids, const TraceOptions& options,
                          ThreadPool& pool) {
  SX_TRY(check_prompt(model.config(), ids));
  TapTrace taps(checkpoint, model.config(), pool);
  TraceProbe probe(taps, options.dump);
  TraceReport report;
  const int64_t start_us = now_us();
  SX_TRY(run_steps(model, ids, options, probe, pool));
  report.forward_s = seconds_since(start_us);
  report.taps_s = taps.seconds();
  explain(model, checkpoint, ids, taps, report);
  report.taps.assign(taps.taps().begin(), taps.taps().end());
  report.alarms = alarms_of(report.taps);
  return report;
}

}  // namespace sextant
