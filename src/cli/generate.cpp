#include "cli/generate.h"

#include "cli/signals.h"
#include "engine/stop_matcher.h"

namespace sextant {

void Totals::add(const Answer& answer) {
  n_prompt += answer.n_prompt - answer.n_reused;
  n_generated += answer.n_generated;
  n_decoded += answer.n_generated > 0 ? answer.n_generated - 1 : 0;
  prefill_s += answer.prefill_s;
  decode_s += answer.decode_s;
}

Result<Generator> Generator::create(const LoadedModel& loaded, int64_t max_context) {
  EngineOptions options;
  options.max_context = max_context;
  options.max_requests = 1;
  options.max_batch = 1;
  SX_ASSIGN(auto engine, Engine::create(loaded.model, options, loaded.pool));
  for (const std::string& text : engine->notes()) say_note(text);
  return Generator(std::move(engine), loaded.tokenizer);
}

Result<Answer> Generator::answer(std::vector<int32_t> prompt, const Request& request,
                                 const std::vector<std::string>& stops, const Sink& sink) {
  Request full = request;
  full.prompt = std::move(prompt);
  // Rows of the embedding that no token has (padded vocabularies) are never sampled.
  const int64_t n_rows = engine_->model().config().n_vocab;
  if (tokenizer_ != nullptr && tokenizer_->n_vocab() < n_rows)
    full.n_valid_vocab = tokenizer_->n_vocab();
  const PollSignals poll;
  const EngineStats before = engine_->stats();
  SX_ASSIGN(const RequestId id, engine_->submit(std::move(full)));

  Answer answer;
  std::optional<StreamDecoder> decoder;
  if (tokenizer_ != nullptr) decoder.emplace(tokenizer_, true);
  StopMatcher matcher(stops);
  std::vector<Event> events;
  bool wanted = true;  // the reader of the sink is still there
  bool stopped = false;
  const auto show = [&](int32_t token, std::string_view piece) {
    const std::string text = matcher.push(piece);
    answer.text += text;
    if (!sink(token, text)) wanted = false;
  };
  for (bool busy = true; busy;) {
    events.clear();
    busy = engine_->step(events);
    for (Event& event : events) {
      if (event.kind == Event::Kind::kFinished) {
        if (event.error) return tl::unexpected<Error>(std::move(*event.error));
        answer.finish_reason = finish_reason_name(event.reason);
        answer.n_prompt = event.n_prompt;
        answer.n_reused = event.n_reused;
        answer.n_generated = event.n_generated;
        busy = false;
      } else if (!stopped) {
        answer.ids.push_back(event.token);
        show(event.token, decoder ? decoder->push(event.token) : std::string());
        if (matcher.matched() || !wanted || interrupted()) {
          stopped = true;
          engine_->cancel(id);
        }
      }
    }
    if (busy && !stopped && interrupted()) {
      stopped = true;
      engine_->cancel(id);
    }
  }
  answer.cut_by_stop = matcher.matched();
  if (answer.cut_by_stop) {
    answer.finish_reason = "stop";
  } else {
    // An incomplete character at the end shows as U+FFFD, in the stream as in the whole text.
    if (decoder) show(-1, decoder->finish());
    const std::string rest = matcher.finish();
    answer.text += rest;
    if (!rest.empty()) sink(-1, rest);
  }
  const EngineStats after = engine_->stats();
  answer.prefill_s = after.prefill_s - before.prefill_s;
  answer.decode_s = after.decode_s - before.decode_s;
  return answer;
}

}  // namespace sextant
