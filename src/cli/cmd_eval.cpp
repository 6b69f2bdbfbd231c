// `sextant eval`: perplexity on a text, and distance from another model on the same text; gates for
// scripts (status 1).
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/load_model.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/table.h"
#include "cli/warm_up.h"
#include "forge/evaluate.h"

namespace sextant {
namespace {

struct EvalCommandOptions {
  std::string model;
  ScoredText files;
  std::string against;
  int64_t window = 1024;
  int64_t max_windows = 0;
  std::optional<double> max_kl;
  std::optional<double> max_ppl;
};

Json result_json(const EvalResult& result, const LoadedModel& loaded, double seconds) {
  Json json = {{"perplexity", json_number(result.perplexity)},
               {"nll", json_number(result.nll)},
               {"tokens", result.n_tokens},
               {"scored", result.n_scored},
               {"windows", result.n_windows},
               {"window", result.window},
               {"isa", loaded.model->ops().name},
               {"seconds", seconds}};
  Json sums = Json::array();
  for (const double sum : result.window_nll_sum) sums.push_back(json_number(sum));
  json["window_nll_sum"] = sums;
  if (!result.against) return json;
  const EvalAgainst& against = *result.against;
  Json worst = Json::array();
  for (const EvalPosition& at : against.worst)
    worst.push_back({{"position", at.position},
                     {"token", at.token},
                     {"kl", json_number(at.kl)},
                     {"logprob", json_number(at.logprob)},
                     {"logprob_reference", json_number(at.logprob_reference)}});
  json["against"] = {{"perplexity", json_number(against.perplexity)},
                     {"nll", json_number(against.nll)},
                     {"mean_kl", json_number(against.mean_kl)},
                     {"mean_kl_reverse", json_number(against.mean_kl_reverse)},
                     {"max_kl", json_number(against.max_kl)},
                     {"top1_agreement", json_number(against.top1_agreement)},
                     {"worst", worst}};
  return json;
}

void print_result(const EvalResult& result, const EvalCommandOptions& options, double seconds,
                  Output& out) {
  out.print("perplexity  {:.4f}\n", result.perplexity);
  out.print("nll         {:.6f} per token (natural logarithm)\n", result.nll);
  out.print(
      "counted     {} of {} tokens in {} windows of {}, without overlap; the first token of\n"
      "            each window is not scored\n",
      format_count(result.n_scored), format_count(result.n_tokens), result.n_windows,
      result.window);
  if (result.against) {
    const EvalAgainst& against = *result.against;
    out.print("\nagainst {}\n", options.against);
    out.print("perplexity  {:.4f} there\n", against.perplexity);
    out.print("KL          {:.6f} mean, {:.4f} largest; {:.6f} the other way round\n",
              against.mean_kl, against.max_kl, against.mean_kl_reverse);
    out.print("top-1       {:.2f} % agree\n", 100 * against.top1_agreement);
    using Align = Table::Align;
    Table table({{"position", Align::kRight},
                 {"token", Align::kRight},
                 {"KL", Align::kRight},
                 {"log p", Align::kRight},
                 {"log p there", Align::kRight}});
    for (const EvalPosition& at : against.worst)
      table.add({fmt::format("{}", at.position), fmt::format("{}", at.token),
                 fmt::format("{:.4f}", at.kl), fmt::format("{:.4f}", at.logprob),
                 fmt::format("{:.4f}", at.logprob_reference)});
    if (!table.empty()) out.print("\nlargest KL\n{}", table.text());
  }
  note("took {}, {:.0f} tokens/s", format_seconds(seconds),
       static_cast<double>(result.n_tokens) / seconds);
}

// The policies of the model are the reference's too, but for a4:warmup, whose scales are measured
// on the model.
Result<CommonOptions> of_reference(const CommonOptions& common) {
  CommonOptions reference = common;
  if (!common.warmup && common.input_scales.empty()) return reference;
  reference.warmup = false;
  reference.input_scales.clear();
  SX_ASSIGN(const Policy policy, parse_policy(common.policies));
  reference.policies.clear();
  for (const PolicyRule& rule : std::span(policy.rules).subspan(1))
    if (rule.act != Act::kA4Warmup) reference.policies.push_back(rule.spec);
  say_note("the reference takes no warm-up scales: they are the model's");
  return reference;
}

Result<int> run_eval(Context& context, const EvalCommandOptions& options) {
  SX_TRY(check_scored_text(options.files));
  if (options.max_kl && options.against.empty())
    return fail_at(at_field("--max-kl"), Code::kUsage, "--max-kl needs --against MODEL");
  SX_TRY(check_gate_option("--max-kl", options.max_kl));
  SX_TRY(check_gate_option("--max-ppl", options.max_ppl));
  SX_ASSIGN(const LoadedModel loaded, load_model(context.common, options.model));
  std::optional<LoadedModel> reference;
  if (!options.against.empty()) {
    SX_ASSIGN(const CommonOptions common, of_reference(context.common));
    SX_ASSIGN(reference, load_model(common, options.against));
  }
  SX_ASSIGN(const std::vector<int32_t> ids, read_scored_text(options.files, loaded));
  EvalOptions eval;
  eval.window = options.window;
  eval.max_windows = options.max_windows;
  const PollSignals poll;
  eval.cancel = &interrupt_flag();
  Progress progress("evaluating", Progress::Unit::kTokens);
  eval.progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
  const int64_t start_us = now_us();
  SX_ASSIGN(const EvalResult result,
            evaluate(*loaded.model, reference ? reference->model.get() : nullptr, ids, eval,
                     *loaded.pool));
  Progress::erase_shown();
  const double seconds = seconds_since(start_us);
  const Status gates = check_eval_gates(result, options.max_ppl, options.max_kl);
  if (context.common.json) {
    Json json = result_json(result, loaded, seconds);
    json["ok"] = gates.has_value();
    if (!gates) json["gate"] = gates.error().text;
    context.out.document(json);
  } else {
    print_result(result, options, seconds, context.out);
  }
  if (gates) return 0;
  say_line(fmt::format("sextant: error: {}", one_line(gates.error().text)));
  return exit_status(Code::kGate);
}

}  // namespace

void add_eval(Program& program, Context& context) {
  auto options = std::make_shared<EvalCommandOptions>();
  Command command = add_command(
      program, context, "eval", "perplexity, and distance from another model",
      "  sextant eval smollm2-nvfp4 --text book.txt\n"
      "  sextant eval smollm2-nvfp4 --text book.txt --against smollm2 --max-kl 0.2\n"
      "  sextant eval smollm2 --ids tokens.json --window 512 --policy f32 --json\n\n"
      "Text is tokenized without BOS. Status 1: a gate (--max-kl, --max-ppl) does not hold.");
  command.option("MODEL", &options->model, "directory, snapshot, or name of a model",
                 {.required = true});
  command.option("--text", &options->files.text_file, "the text (- for standard input)",
                 {.value = "FILE"});
  command.option("--ids", &options->files.ids_file, "token ids in place of a text",
                 {.value = "FILE"});
  command.option("--window", &options->window, "tokens a window (default 1024)",
                 {.value = "N", .range = IntRange{2, INT64_MAX}});
  command.option("--max-windows", &options->max_windows, "only the first so many (default: all)",
                 {.value = "N", .range = IntRange{1, INT64_MAX}});
  command.option("--against", &options->against, "a reference model on the same tokens",
                 {.value = "MODEL"});
  command.option("--max-kl", &options->max_kl, "gate: largest mean KL", {.value = "X"});
  command.option("--max-ppl", &options->max_ppl, "gate: largest perplexity", {.value = "X"});
  add_allow_option(command, context.common);
  add_warmup_options(command, context.common, true);
  command.run([&context, options] { return run_eval(context, *options); });
}

}  // namespace sextant
