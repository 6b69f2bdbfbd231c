// One answer after another from one engine: tokens to text, stop strings, Ctrl-C, and what it cost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/load_model.h"
#include "engine/engine.h"

namespace sextant {

struct Answer {
  std::string text;
  std::vector<int32_t> ids;   // the end token is not among them
  std::string finish_reason;  // "stop", "length", "cancelled"
  bool cut_by_stop = false;   // a stop string ended it: ids say more than text
  int64_t n_prompt = 0;
  int64_t n_reused = 0;
  int64_t n_generated = 0;
  double prefill_s = 0;
  double decode_s = 0;
};

// Sums over answers, for the closing line.
struct Totals {
  int64_t n_prompt = 0;  // prefilled
  int64_t n_generated = 0;
  int64_t n_decoded = 0;  // tokens that a decode step gave (the first comes from the prompt)
  double prefill_s = 0;
  double decode_s = 0;
  void add(const Answer& answer);
  double tokens_per_s() const {
    return decode_s > 0 ? static_cast<double>(n_decoded) / decode_s : 0;
  }
};

class Generator {
 public:
  static Result<Generator> create(const LoadedModel& loaded, int64_t max_context);

  // Called with every token and the text that became final with it; false stops the answer.
  using Sink = std::function<bool(int32_t id, std::string_view text)>;

  // request: all but the prompt. A signal ends the answer with "cancelled".
  Result<Answer> answer(std::vector<int32_t> prompt, const Request& request,
                        const std::vector<std::string>& stops, const Sink& sink);
  const Engine& engine() const { return *engine_; }
  void reset() { engine_->reset(); }

 private:
  Generator(std::unique_ptr<Engine> engine, std::shared_ptr<const Tokenizer> tokenizer)
      : engine_(std::move(engine)), tokenizer_(std::move(tokenizer)) {}
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const Tokenizer> tokenizer_;  // may be null: tokens without text
};

}  // namespace sextant
