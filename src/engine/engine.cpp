// The scheduler: requests wait in a list, are active in another, and leave through finish(). What a
// request may need at most is reserved when it is admitted, so that an active request never runs
// out of pages.
#include "engine/engine.h"

#include <algorithm>

#include "base/arena.h"
#include "base/check.h"
#include "base/checked.h"
#include "base/clock.h"
#include "engine/memory_plan.h"
#include "engine/prefix_cache.h"
#include "engine/session.h"
#include "model/first_bad_tap.h"

namespace sextant {
namespace {

tl::unexpected<Error> bad_field(const char* field, std::string text) {
  return tl::unexpected<Error>(Error{Code::kUsage, std::move(text), {{}, {}, field, {}}});
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(std::shared_ptr<const Model> model, const EngineOptions& options, MemoryPlan plan,
             std::shared_ptr<ThreadPool> pool)
      : model_(std::move(model)),
        options_(options),
        pool_(std::move(pool)),
        n_vocab_(model_->config().n_vocab),
        max_context_(plan.max_context),
        kv_pool_(model_->kv_layout(), plan.n_pages),
        parked_(options.max_parked),
        sampler_(n_vocab_),
        logits_buffer_(options.max_batch * n_vocab_ * static_cast<int64_t>(sizeof(float))),
        logits_(logits_buffer_.as<float>(), options.max_batch, n_vocab_),
        buffers_(model_->make_buffers(
            std::max(std::min(options.prefill_chunk, max_context_), options.max_batch),
            options.max_batch)) {
    if (!plan.note.empty()) notes_.push_back(std::move(plan.note));
    waiting_.reserve(static_cast<size_t>(options.max_requests));
    active_.reserve(static_cast<size_t>(options.max_batch));
    step_seqs_.reserve(static_cast<size_t>(options.max_batch));
    step_sessions_.reserve(static_cast<size_t>(options.max_batch));
  }

  Result<RequestId> submit(Request request) override;
  void cancel(RequestId request) override;
  bool step(std::vector<Event>& events) override;
  EngineStats stats() const override;
  const Model& model() const override { return *model_; }
  int64_t max_context() const override { return max_context_; }
  const std::vector<std::string>& notes() const override { return notes_; }
  void reset() override { parked_.clear(); }

 private:
  using Sessions = std::vector<std::unique_ptr<Session>>;

  Status check(const Request& request) const;
  void end_cancelled(std::vector<Event>& events);
  void admit();
  bool try_admit(Session& session);
  void collect_prefill();
  void collect_decode();
  void run_collected(double& seconds, std::vector<Event>& events);
  void take_logits(Session& session, std::span<const float> logits, std::vector<Event>& events);
  Error bad_logits_error(Session& session, int64_t id, float value);
  void finish(Session& session, FinishReason reason, int32_t token, std::vector<Event>& events);
  void sweep();
  int64_t n_valid_of(const Session& session) const;
  bool ends(const Session& session, int32_t id) const;

  std::shared_ptr<const Model> model_;
  EngineOptions options_;
  std::shared_ptr<ThreadPool> pool_;
  int64_t n_vocab_;
  int64_t max_context_;
  KvPool kv_pool_;  // outlives every sequence below
  PrefixCache parked_;
  Sampler sampler_;
  AlignedBuffer logits_buffer_;
  Mat<float> logits_;
  StepBuffersPtr buffers_;
  std::vector<std::string> notes_;
  Sessions waiting_;  // first come, first served
  Sessions active_;
  std::vector<StepSeq> step_seqs_;  // of the pass being put together
  std::vector<Session*> step_sessions_;
  EngineStats stats_;
  RequestId next_id_ = 1;
};

Status EngineImpl::check(const Request& request) const {
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  if (n_prompt == 0) return bad_field("prompt", "the prompt is empty: expected at least one token");
  if (n_prompt >= max_context_)
    return fail_at(
        {{}, {}, "prompt", {}}, Code::kInput,
        "the maximum context length is {} tokens, the prompt has {}: shorten it, it must "
        "leave room for at least one token of the answer",
        max_context_, n_prompt);
  for (int64_t i = 0; i < n_prompt; ++i) {
    const int32_t id = request.prompt[static_cast<size_t>(i)];
    if (id < 0 || id >= n_vocab_)
      return fail_at({{}, {}, "prompt", {}}, Code::kInput,
                     "the prompt has token id {} at place {}: expected ids from 0 to {}", id, i,
                     n_vocab_ - 1);
  }
  if (request.max_tokens < 1 && request.max_tokens != -1)
    return bad_field("max_tokens",
                     fmt::format("max_tokens: expected at least 1, found {}", request.max_tokens));
  if (static_cast<int64_t>(request.stop_ids.size()) > options_.max_stop_ids)
    return bad_field("stop_ids", fmt::format("stop_ids: expected at most {}, found {}",
                                             options_.max_stop_ids, request.stop_ids.size()));
  if (request.n_logprobs < 0 || request.n_logprobs > options_.max_logprobs)
    return bad_field("logprobs", fmt::format("logprobs: expected 0 to {}, found {}",
                                             options_.max_logprobs, request.n_logprobs));
  if (request.n_valid_vocab < 0 || request.n_valid_vocab > n_vocab_)
    return bad_field("n_valid_vocab", fmt::format("n_valid_vocab: expected 0 to {}, found {}",
                                                  n_vocab_, request.n_valid_vocab));
  return check_sampling(request.sampling, n_vocab_, options_.sampling);
}

Result<RequestId> EngineImpl::submit(Request request) {
  SX_TRY(check(request));
  if (static_cast<int64_t>(waiting_.size() + active_.size()) >= options_.max_requests)
    return fail(Code::kResources, "the queue is full with {} requests: try again later",
                options_.max_requests);
  auto session = std::make_unique<Session>();
  session->id = next_id_++;
  session->request = std::move(request);
  const Request& kept = session->request;
  const int64_t n_prompt = session->n_prompt();
  session->n_limit =
      kept.max_tokens < 0
          ? max_context_
          : std::min(max_context_, n_prompt + std::min(kept.max_tokens, max_context_));
  session->ids.reserve(static_cast<size_t>(session->n_limit));
  session->ids = kept.prompt;
  session->ids.reserve(static_cast<size_t>(session->n_limit));
  const SamplingParams& sampling = kept.sampling;
  if (sampling.repetition_penalty != 1.0F || sampling.presence_penalty != 0.0F ||
      sampling.frequency_penalty != 0.0F) {
    session->counts = TokenCounts(n_vocab_, session->n_limit);
    session->counts.add_prompt(kept.prompt);
  }
  waiting_.push_back(std::move(session));
  return waiting_.back()->id;
}

void EngineImpl::cancel(RequestId request) {
  for (Sessions* sessions : {&waiting_, &active_})
    for (auto& session : *sessions)
      if (session->id == request) session->cancelled = true;
}

void EngineImpl::finish(Session& session, FinishReason reason, int32_t token,
                        std::vector<Event>& events) {
  session.finished = true;
  Event event;
  event.kind = Event::Kind::kFinished;
  event.request = session.id;
  event.token = token;
  event.reason = reason;
  event.n_prompt = session.n_prompt();
  event.n_reused = session.n_reused;
  event.n_generated = session.n_generated;
  events.push_back(std::move(event));
  // What is wrong with a sequence that gave bad logits may sit in its keys and values: never kept.
  if (session.kv != nullptr && reason != FinishReason::kError) {
    session.ids.resize(static_cast<size_t>(session.n_in_kv));
    session.kv->truncate(session.n_in_kv);
    parked_.park({std::move(session.kv), std::move(session.ids)});
  }
  session.kv.reset();
}

void EngineImpl::sweep() {
  const auto is_finished = [](const std::unique_ptr<Session>& s) { return s->finished; };
  std::erase_if(waiting_, is_finished);
  std::erase_if(active_, is_finished);
}

void EngineImpl::end_cancelled(std::vector<Event>& events) {
  for (Sessions* sessions : {&waiting_, &active_})
    for (auto& session : *sessions)
      if (session->cancelled) finish(*session, FinishReason::kCancelled, -1, events);
  sweep();
}

// Pages for all that the request may need, after a parked prefix was taken over and older parked
// sequences made room. False when it has to wait for active requests.
bool EngineImpl::try_admit(Session& session) {
  // At least one token of the prompt is fed: its logits are the first of the answer.
  ParkedSequence prefix = parked_.take(session.request.prompt, session.n_prompt() - 1);
  if (prefix.kv == nullptr) prefix.kv = std::make_unique<KvSequence>(kv_pool_);
  bool fits = prefix.kv->reserve(session.n_limit);
  while (!fits && parked_.evict_oldest()) fits = prefix.kv->reserve(session.n_limit);
  if (!fits) {
    const auto n_kept = static_cast<int64_t>(prefix.ids.size());
    prefix.kv->truncate(n_kept);
    parked_.park(std::move(prefix));
    return false;
  }
  session.kv = std::move(prefix.kv);
  session.n_reused = static_cast<int64_t>(prefix.ids.size());
  session.n_in_kv = session.n_reused;
  stats_.reused_tokens += session.n_reused;
  return true;
}

void EngineImpl::admit() {
  while (!waiting_.empty() && static_cast<int64_t>(active_.size()) < options_.max_batch) {
    if (!try_admit(*waiting_.front())) {
      SX_CHECK(!active_.empty(), "a request that passed its checks has no room in an idle engine");
      return;
    }
    active_.push_back(std::move(waiting_.front()));
    waiting_.erase(waiting_.begin());
  }
}

void EngineImpl::collect_prefill() {
  step_seqs_.clear();
  step_sessions_.clear();
  int64_t budget = std::min(options_.prefill_chunk, max_context_);
  for (auto& session : active_) {
    if (budget == 0) return;
    if (!session->prefilling()) continue;
    const int64_t n = std::min(budget, session->n_prompt() - session->n_in_kv);
    budget -= n;
    step_seqs_.push_back(
        {session->kv.get(),
         std::span(session->ids)
             .subspan(static_cast<size_t>(session->n_in_kv), static_cast<size_t>(n)),
         session->n_in_kv, session->n_in_kv + n == session->n_prompt() ? 1 : 0});
    step_sessions_.push_back(session.get());
  }
}

void EngineImpl::collect_decode() {
  step_seqs_.clear();
  step_sessions_.clear();
  for (auto& session : active_) {
    if (session->prefilling() || session->finished) continue;
    step_seqs_.push_back({session->kv.get(), std::span(session->ids).last(1), session->n_in_kv, 1});
    step_sessions_.push_back(session.get());
  }
}

void EngineImpl::run_collected(double& seconds, std::vector<Event>& events) {
  if (step_seqs_.empty()) return;
  int64_t n_rows = 0;
  for (const StepSeq& seq : step_seqs_) n_rows += seq.n_logits;
  const int64_t start_us = now_us();
  model_->forward(step_seqs_, *buffers_, logits_.row_range(0, n_rows), nullptr, *pool_);
  int64_t row = 0;
  for (size_t i = 0; i < step_seqs_.size(); ++i) {
    Session& session = *step_sessions_[i];
    session.n_in_kv += static_cast<int64_t>(step_seqs_[i].ids.size());
    if (step_seqs_[i].n_logits == 1) take_logits(session, logits_.row(row++), events);
  }
  seconds += seconds_since(start_us);
}

int64_t EngineImpl::n_valid_of(const Session& session) const {
  return session.request.n_valid_vocab > 0 ? session.request.n_valid_vocab : n_vocab_;
}

bool EngineImpl::ends(const Session& session, int32_t id) const {
  const auto has = [id](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return has(session.request.stop_ids) ||
         (!session.request.ignore_eos && has(model_->config().eos_ids));
}

void EngineImpl::take_logits(Session& session, std::span<const float> logits,
                             std::vector<Event>& events) {
  const int64_t n_valid = n_valid_of(session);
  const int64_t bad = Sampler::first_bad(logits, n_valid);
  if (bad >= 0) {
    Error error = bad_logits_error(session, bad, logits[static_cast<size_t>(bad)]);
    ++stats_.n_errors;
    finish(session, FinishReason::kError, -1, events);
    events.back().error = std::move(error);
    return;
  }
  const Request& request = session.request;
  const int32_t id = sampler_.sample(logits, n_valid, request.sampling, session.counts,
                                     static_cast<uint64_t>(session.n_generated));
  ++session.n_generated;
  ++stats_.generated_tokens;
  if (ends(session, id)) {
    finish(session, FinishReason::kStop, id, events);
    return;
  }
  session.ids.push_back(id);
  if (session.counts.enabled()) session.counts.add_answer(id);
  Event event;
  event.request = session.id;
  event.token = id;
  if (request.n_logprobs > 0) {
    event.top.resize(static_cast<size_t>(std::min<int64_t>(request.n_logprobs, n_valid)));
    event.logprob = sampler_.logprobs(logits, n_valid, id, event.top);
  }
  events.push_back(std::move(event));
  if (static_cast<int64_t>(session.ids.size()) >= session.n_limit)
    finish(session, FinishReason::kLength, -1, events);
}

// Runs the sequence again from its first token with a probe that notes the first tensor that is not
// finite. From the first, since a bad value may have come in through an earlier chunk's keys and
// values.
Error EngineImpl::bad_logits_error(Session& session, int64_t id, float value) {
  FirstBadTap probe;
  const int64_t chunk = std::min(options_.prefill_chunk, max_context_);
  int64_t begin = 0;
  for (; begin < session.n_in_kv && !probe.found(); begin += chunk) {
    const int64_t n = std::min(chunk, session.n_in_kv - begin);
    const bool is_last = begin + n == session.n_in_kv;
    const StepSeq seq{
        session.kv.get(),
        std::span(session.ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(n)), begin,
        is_last ? 1 : 0};
    // The row of this session in logits_ was read already; later rows of the pass must stay.
    AlignedBuffer scratch(n_vocab_ * static_cast<int64_t>(sizeof(float)));
    model_->forward({&seq, 1}, *buffers_,
                    Mat<float>(scratch.as<float>(), is_last ? 1 : 0, n_vocab_), &probe, *pool_);
  }
  Error error;
  error.code = Code::kModel;
  error.where.field = "logits";
  if (!probe.found()) {
    error.text = fmt::format(
        "the logits of token {} of this sequence are not finite (id {}: {}), but no tensor was "
        "when "
        "it was run again; a defect of memory or of sextant: please report it",
        session.n_in_kv - 1, id, value);
    error.code = Code::kInternal;
    return error;
  }
  const FirstBadTap::Found& found = *probe.found();
  error.where.tensor = found.module;
  error.text = fmt::format(
      "the logits are not finite (id {}: {}), so no token was chosen; the first bad tensor is {}; "
      "check the checkpoint's scales and weights there with sextant inspect",
      id, value, probe.describe());
  return error;
}

bool EngineImpl::step(std::vector<Event>& events) {
  if (waiting_.empty() && active_.empty()) return false;
  end_cancelled(events);
  admit();
  // Decode first: a prompt that ends in this step gets its second token from the next one.
  collect_decode();
  run_collected(stats_.decode_s, events);
  collect_prefill();
  for (const StepSeq& seq : step_seqs_)
    stats_.prompt_tokens += static_cast<int64_t>(seq.ids.size());
  run_collected(stats_.prefill_s, events);
  sweep();
  return true;
}

EngineStats EngineImpl::stats() const {
  EngineStats stats = stats_;
  stats.n_active = static_cast<int64_t>(active_.size());
  stats.n_waiting = static_cast<int64_t>(waiting_.size());
  stats.n_pages = kv_pool_.n_pages();
  stats.n_free_pages = kv_pool_.n_free();
  return stats;
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kError: return "error";
  }
  return "";
}

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<const Model> model,
                                               const EngineOptions& options,
                                               std::shared_ptr<ThreadPool> pool) {
  if (options.max_requests < 1 || options.max_batch < 1 || options.prefill_chunk < 1)
    return fail(Code::kUsage, "expected at least one request, one sequence and one token a step");
  SX_ASSIGN(MemoryPlan plan,
            plan_memory(model->kv_layout(), model->config().max_context, options.max_context,
                        options.kv_bytes, available_memory_bytes()));
  return std::make_unique<EngineImpl>(std::move(model), options, std::move(plan), std::move(pool));
}

}  // namespace sextant
