// Implements trace.h.
#include "forge/trace.h"

#include <algorithm>

#include "base/checked.h"
#include "base/clock.h"
#include "model/kv_cache.h"

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

Status check_ids(const ModelConfig& config, std::span<const int32_t> ids) {
  const auto n = static_cast<int64_t>(ids.size());
  if (n == 0) return fail(Code::kUsage, "the prompt is empty: expected at least one token");
  if (n > config.max_context)
    return fail_at({{}, {}, "prompt", {}}, Code::kInput,
                   "the maximum context length is {} tokens, the prompt has {}: shorten it",
                   config.max_context, n);
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= config.n_vocab)
      return fail_at({{}, {}, "prompt", {}}, Code::kInput,
                     "token {} of the prompt is {}, but the model's ids go from 0 to {}", i, ids[i],
                     config.n_vocab - 1);
  return {};
}

Status run_steps(const Model& model, std::span<const int32_t> ids, const TraceOptions& options,
                 TraceProbe& probe, ThreadPool& pool) {
  const auto n = static_cast<int64_t>(ids.size());
  // The frequencies of dynamic NTK are those of the longest position of a call: one call.
  const bool one_step = model.config().rope.kind == RopeKind::kDynamic;
  const int64_t chunk = one_step ? n : std::min(n, options.chunk);
  const bool all_logits = options.dump != nullptr;
  const KvLayout layout = model.kv_layout();
  KvPool pages(layout, ceil_div(n, layout.page_tokens));
  KvSequence kv(pages);
  if (!kv.reserve(n)) return fail(Code::kInternal, "no pages for {} positions", n);
  const int64_t most_logits = all_logits ? chunk : 1;
  const StepBuffersPtr buffers = model.make_buffers(chunk, most_logits);
  std::vector<float> logits(static_cast<size_t>(most_logits * model.config().n_vocab));
  for (int64_t begin = 0; begin < n; begin += chunk) {
    if (options.cancel != nullptr && *options.cancel)
      return fail(Code::kCancelled, "interrupted after {} of {} tokens", begin, n);
    const int64_t rows = std::min(chunk, n - begin);
    const int64_t n_logits = all_logits ? rows : begin + rows == n ? 1 : 0;
    const StepSeq seq{&kv, ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)),
                      begin, n_logits};
    probe.begin_step(begin, rows);
    model.forward({&seq, 1}, *buffers, Mat<float>(logits.data(), n_logits, model.config().n_vocab),
                  &probe, pool);
    if (options.progress) options.progress(begin + rows, n);
  }
  return {};
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
        {tap->name, tap->layer, tap->module, find_dead_cause(checkpoint, config, tap->module)});
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
  SX_TRY(check_ids(model.config(), ids));
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
