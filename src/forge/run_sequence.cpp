// Implements run_sequence.h.
#include "forge/run_sequence.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked.h"

namespace sextant {

Status check_ids(const ModelConfig& config, std::span<const int32_t> ids, std::string_view what) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= config.n_vocab)
      return fail_at({{}, {}, std::string(what), {}}, Code::kInput,
                     "token {} of {} is {}, but the model's ids go from 0 to {}", i, what, ids[i],
                     config.n_vocab - 1);
  return {};
}

std::vector<int64_t> even_steps(int64_t n, int64_t chunk) {
  std::vector<int64_t> steps;
  for (int64_t at = 0; at < n; at += chunk) steps.push_back(std::min(chunk, n - at));
  return steps;
}

SequenceRunner::SequenceRunner(const Model& model, int64_t max_tokens, int64_t max_step,
                               Logits logits, ThreadPool& pool)
    : model_(model),
      pool_(pool),
      wanted_(logits),
      pages_(model.kv_layout(), ceil_div(max_tokens, model.kv_layout().page_tokens)),
      kv_(pages_) {
  const int64_t most = logits == Logits::kAll ? max_step : 1;
  buffers_ = model.make_buffers(max_step, most);
  logits_.resize(static_cast<size_t>(most * model.config().n_vocab));
}

Mat<const float> SequenceRunner::step(std::span<const int32_t> ids, int64_t begin, int64_t n,
                                      int64_t n_logits, Probe* probe) {
  if (begin == 0) kv_.truncate(0);
  const bool has_pages = kv_.reserve(begin + n);
  SX_CHECK(has_pages, "no pages for {} tokens", begin + n);
  const Mat<float> logits(logits_.data(), n_logits, model_.config().n_vocab);
  const StepSeq seq{&kv_, ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(n)), begin,
                    n_logits};
  model_.forward({&seq, 1}, *buffers_, logits, probe, pool_);
  return logits;
}

Status SequenceRunner::run(std::span<const int32_t> ids, std::span<const int64_t> steps,
                           const SequenceHooks& hooks) {
  const auto total = static_cast<int64_t>(ids.size());
  int64_t begin = 0;
  for (const int64_t n : steps) {
    if (hooks.cancel != nullptr && hooks.cancel->load(std::memory_order_relaxed))
      return fail(Code::kCancelled, "interrupted");
    if (hooks.before) hooks.before(begin, n);
    const Mat<const float> logits =
        step(ids, begin, n, n_logits(begin + n == total, n), hooks.probe);
    if (hooks.after) SX_TRY(hooks.after(begin, n, logits));
    begin += n;
  }
  return {};
}

FirstBadTap SequenceRunner::first_bad(std::span<const int32_t> ids,
                                      std::span<const int64_t> steps) {
  FirstBadTap bad;
  int64_t begin = 0;
  for (const int64_t n : steps) {
    const bool is_last = begin + n == static_cast<int64_t>(ids.size());
    step(ids, begin, n, n_logits(is_last, n), &bad);
    if (bad.found()) break;
    begin += n;
  }
  return bad;
}

}  // namespace sextant
