// `sextant run`: one answer to a prompt, to standard input or to token ids, or a chat on a
// terminal.
#include <unistd.h>

#include <random>

#include "base/clock.h"
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/signals.h"
#include "cli/warm_up.h"
#include "kernels/measure.h"

namespace sextant {
namespace {

constexpr int64_t kReadBytes = int64_t{192} << 20;  // measured after the model is gone
constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 256;

struct RunOptions {
  std::string model;
  std::optional<std::string> prompt;
  std::string ids_file;
  std::string system;
  bool raw = false;
  bool ignore_eos = false;
  int64_t max_tokens = -1;
  int64_t context = 0;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<int32_t> top_k;
  std::optional<float> repetition_penalty;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<std::string> stops;
};

class RunCommand {
 public:
  RunCommand(Context& context, const RunOptions& options) : context_(context), options_(options) {}

  Result<int> run() {
    if (context_.common.json) context_.out.use_lines();
    SX_TRY(check());
    SX_ASSIGN(loaded_, load_model(context_.common, options_.model));
    apply_defaults();
    SX_TRY(check_sampling(request_.sampling, loaded_.model->config().n_vocab));
    SX_ASSIGN(Generator generator, Generator::create(loaded_, options_.context));
    const bool interactive = !options_.prompt && options_.ids_file.empty() && isatty(0) == 1 &&
                             context_.out.is_terminal() && !context_.common.json;
    Result<int> status = interactive ? chat(generator) : one_answer(generator);
    if (!status) return status;
    SX_TRY(closing_line(std::move(generator)));
    return status;
  }

 private:
  // What can be refused before a model is read.
  Status check() {
    if (!options_.ids_file.empty() && options_.prompt)
      return fail_at(at_field("--ids"), Code::kUsage, "expected a prompt or --ids, found both");
    if (options_.stops.size() > kMaxStops)
      return fail_at(at_field("--stop"), Code::kUsage,
                     "--stop: expected at most {} strings, found {}", kMaxStops,
                     options_.stops.size());
    for (const std::string& stop : options_.stops)
      if (stop.empty() || stop.size() > kMaxStopBytes)
        return fail_at(at_field("--stop"), Code::kUsage,
                       "--stop: expected strings of 1 to {} bytes, found {}", kMaxStopBytes,
                       stop.size());
    SamplingParams& sampling = request_.sampling;
    sampling.temperature = options_.temperature.value_or(1.0F);
    sampling.top_p = options_.top_p.value_or(1.0F);
    sampling.min_p = options_.min_p.value_or(0.0F);
    sampling.top_k = options_.top_k.value_or(0);
    sampling.repetition_penalty = options_.repetition_penalty.value_or(1.0F);
    sampling.presence_penalty = options_.presence_penalty;
    sampling.frequency_penalty = options_.frequency_penalty;
    sampling.seed = context_.common.seed ? *context_.common.seed : std::random_device{}();
    request_.max_tokens = options_.max_tokens;
    request_.ignore_eos = options_.ignore_eos;
    return check_sampling(sampling, INT32_MAX);
  }

  // An option wins, then the model's generation_config.json, then what OpenAI's API has.
  void apply_defaults() {
    const GenerationDefaults& model = loaded_.generation;
    SamplingParams& sampling = request_.sampling;
    const auto take = [](auto& value, const auto& option, const auto& wish) {
      if (!option && wish) value = *wish;
    };
    take(sampling.temperature, options_.temperature, model.temperature);
    take(sampling.top_p, options_.top_p, model.top_p);
    take(sampling.min_p, options_.min_p, model.min_p);
    take(sampling.top_k, options_.top_k, model.top_k);
    take(sampling.repetition_penalty, options_.repetition_penalty, model.repetition_penalty);
  }

  Result<std::vector<int32_t>> prompt_ids() {
    if (!options_.ids_file.empty()) return read_ids(options_.ids_file);
    SX_TRY(need_tokenizer(loaded_));
    std::string text;
    if (options_.prompt) {
      text = *options_.prompt;
    } else {
      SX_ASSIGN(text, read_text("-"));
      if (text.ends_with('\n')) text.pop_back();
    }
    return encode_prompt(loaded_, text, options_.system, options_.raw);
  }

  Result<int> chat(Generator& generator) {
    SX_TRY(need_tokenizer(loaded_));
    SX_ASSIGN(auto prompt, ChatPrompt::of_model(loaded_.root));
    if (!prompt || options_.raw)
      return fail(Code::kUsage,
                  "a chat needs the model's chat template{}: give a prompt, as in sextant run {} "
                  "\"Once upon a time\" --raw",
                  prompt ? " (--raw turns it off)" : ", and it has none", options_.model);
    return run_chat(context_, loaded_, generator, *prompt,
                    {options_.system, request_, options_.stops}, totals_);
  }

  Result<int> one_answer(Generator& generator) {
    SX_ASSIGN(std::vector<int32_t> ids, prompt_ids());
    const bool json = context_.common.json;
    Output& out = context_.out;
    bool first = true;
    SX_ASSIGN(answer_,
              generator.answer(std::move(ids), request_, options_.stops,
                               [&](int32_t id, std::string_view text) {
                                 if (json) {
                                   Json line = {{"type", "token"}, {"id", id}, {"text", text}};
                                   if (id < 0) line.erase("id");
                                   if (id >= 0 || !text.empty()) out.json_line(line);
                                 } else if (loaded_.tokenizer == nullptr) {
                                   if (id >= 0) out.print("{}{}", first ? "" : " ", id);
                                 } else {
                                   out.write(text);
                                 }
                                 first = false;
                                 out.flush();
                                 return !out.reader_gone();
                               }));
    totals_.add(answer_);
    if (!json && !answer_.text.ends_with('\n')) out.write("\n");
    out.flush();
    if (answer_.finish_reason == "cancelled" && interrupted())
      return fail(Code::kCancelled, "{} after {} tokens",
                  interrupt_signal() == SIGTERM ? "terminated" : "interrupted",
                  answer_.n_generated);
    return 0;
  }

  // What it cost, beside what this machine can read. Measured last, when the weights are gone, so
  // that it neither delays the answer nor adds to the peak of memory.
  Status closing_line(Generator generator) {
    if (totals_.n_generated == 0 || context_.out.reader_gone()) return {};
    if (context_.common.quiet && !context_.common.json) return {};
    const auto bytes_per_token = static_cast<double>(loaded_.model->bytes_per_token());
    const double read_per_s = bytes_per_token * totals_.tokens_per_s();
    { const Generator ends_here = std::move(generator); }
    loaded_.model.reset();
    const double machine_per_s = measure_read_bytes_per_s(*loaded_.pool, kReadBytes);
    if (context_.common.json) {
      json_closing(read_per_s, machine_per_s);
      return {};
    }
    std::string line =
        fmt::format("{} tokens at {:.1f} tokens/s; prompt of {} tokens in {}", totals_.n_generated,
                    totals_.tokens_per_s(), totals_.n_prompt, format_seconds(totals_.prefill_s));
    line += fmt::format("; reading {}/s of weights, {:.0f} % of the {}/s that this machine reads",
                        format_bytes(read_per_s), 100 * read_per_s / machine_per_s,
                        format_bytes(machine_per_s));
    say_line(fmt::format("[{}]", line));
    return {};
  }

  void json_closing(double read_per_s, double machine_per_s) {
    Json done = {{"type", "done"}};
    done["text"] = answer_.text;
    done["ids"] = answer_.ids;
    done["finish_reason"] = answer_.finish_reason;
    done["seed"] = request_.sampling.seed;
    done["usage"] = {{"prompt_tokens", answer_.n_prompt},
                     {"completion_tokens", answer_.n_generated},
                     {"total_tokens", answer_.n_prompt + answer_.n_generated}};
    done["timings"] = {
        {"load_s", loaded_.load_s},       {"prefill_s", answer_.prefill_s},
        {"decode_s", answer_.decode_s},   {"tokens_per_s", totals_.tokens_per_s()},
        {"read_bytes_per_s", read_per_s}, {"machine_read_bytes_per_s", machine_per_s}};
    context_.out.json_line(done);
  }

  Context& context_;
  const RunOptions& options_;
  LoadedModel loaded_;
  Request request_;
  Answer answer_;
  Totals totals_;
};

void add_sampling_options(Command command, RunOptions& options) {
  const std::string group = "Sampling (default: the model's generation_config.json)";
  const auto number = [&](const char* name, Target value, const char* help) {
    command.option(name, value, help, {.value = "X", .group = group});
  };
  number("--temperature", &options.temperature, "0 for the most likely token each time");
  number("--top-p", &options.top_p, "the most likely tokens that make up this share");
  number("--top-k", &options.top_k, "the K most likely tokens; 0 for all");
  number("--min-p", &options.min_p, "tokens at least this share as likely as the best");
  number("--repetition-penalty", &options.repetition_penalty, "over prompt and answer; 1 is off");
  number("--presence-penalty", &options.presence_penalty, "for tokens of the answer, once");
  number("--frequency-penalty", &options.frequency_penalty, "for tokens of the answer, each time");
  command.option("--stop", &options.stops, "end the answer before this text; may be repeated",
                 {.value = "TEXT", .repeatable = true, .group = group});
}

}  // namespace

void add_run(Program& program, Context& context) {
  auto options = std::make_shared<RunOptions>();
  Command command = add_command(
      program, context, "run", "stream an answer, or chat",
      "  sextant run smollm2 \"Why is the sky blue?\"      one answer\n"
      "  sextant run smollm2                             a chat, on a terminal\n"
      "  sextant run smollm2 < question.txt              the prompt from standard input\n"
      "  sextant run smollm2 \"Once upon\" --raw           continue a text, no chat template\n"
      "  sextant run smollm2 \"Hi\" --temperature 0 --max-tokens 50 --json\n\n"
      "Only the answer goes to standard output. With --json each line there is an object:\n"
      "{\"type\": \"token\", \"id\", \"text\"} for every token, {\"type\": \"done\", \"text\", "
      "\"ids\",\n"
      "\"finish_reason\", \"usage\", \"timings\"} at the end. Ctrl-C in a chat stops the answer "
      "only.");
  command.option("MODEL", &options->model, "directory, snapshot, or name of a model",
                 {.required = true});
  command.option("PROMPT", &options->prompt, "what to answer (default: chat, or standard input)",
                 {.may_be_empty = true});
  command.option("--system", &options->system, "system message",
                 {.value = "TEXT", .may_be_empty = true});
  command.flag("--raw", &options->raw, "no chat template: continue the prompt as it is");
  command.option("--max-tokens", &options->max_tokens, "longest answer (default: the context)",
                 {.value = "N", .range = IntRange{1, INT64_MAX}});
  command.option("--ids", &options->ids_file, "token ids as the prompt, from a file (-: input)",
                 {.value = "FILE"});
  command.option("--context", &options->context, "tokens of prompt and answers (default: model's)",
                 {.value = "N", .range = IntRange{1, INT64_MAX}});
  add_warmup_options(command, context.common, true);
  command.flag("--ignore-eos", &options->ignore_eos, "do not stop at the model's end tokens");
  add_sampling_options(command, *options);
  add_allow_option(command, context.common);
  command.run([&context, options] { return RunCommand(context, *options).run(); });
}

}  // namespace sextant
