// `sextant bench [MODEL]`: what this machine can do, and with a model what is reached end to end.
#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/table.h"
#include "kernels/measure.h"

namespace sextant {
namespace {

struct BenchCommandOptions {
  std::string model;
  int64_t prompt_tokens = 512;
  int64_t generated_tokens = 64;
  int repetitions = 3;
  bool machine_only = false;
};

struct EndToEnd {
  int64_t n_prompt = 0;
  int64_t n_generated = 0;
  double load_s = 0;
  double prefill_per_s = 0;  // tokens, the best of the repetitions
  double decode_per_s = 0;
  double read_per_s = 0;  // bytes of weights
  int64_t weight_bytes = 0;
  std::string isa;
};

Result<EndToEnd> measure_model(const CommonOptions& common, const BenchCommandOptions& options) {
  SX_ASSIGN(const LoadedModel loaded, load_model(common, options.model));
  SX_ASSIGN(Generator generator, Generator::create(loaded, 0));
  const int64_t context = generator.engine().max_context();
  EndToEnd result;
  result.load_s = loaded.load_s;
  result.weight_bytes = loaded.model->weight_bytes();
  result.isa = loaded.model->ops().name;
  result.n_generated = std::max<int64_t>(2, std::min(options.generated_tokens, context / 2));
  result.n_prompt =
      std::max<int64_t>(1, std::min(options.prompt_tokens, context - result.n_generated));
  // Some ids that differ, so that no prefix is reused within a prompt.
  const int64_t n_vocab = loaded.model->config().n_vocab;
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < result.n_prompt; ++i)
    prompt.push_back(static_cast<int32_t>((i * 7919 + 13) % n_vocab));
  Request request;
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  request.max_tokens = result.n_generated;
  Progress progress("measuring");
  for (int i = 0; i < options.repetitions; ++i) {
    progress.update(i, options.repetitions);
    generator.reset();
    SX_ASSIGN(
        const Answer answer,
        generator.answer(prompt, request, {}, [](int32_t, std::string_view) { return true; }));
    if (interrupted()) return fail(Code::kCancelled, "interrupted");
    Totals totals;
    totals.add(answer);
    result.prefill_per_s =
        std::max(result.prefill_per_s, static_cast<double>(answer.n_prompt) / answer.prefill_s);
    result.decode_per_s = std::max(result.decode_per_s, totals.tokens_per_s());
  }
  result.read_per_s = result.decode_per_s * static_cast<double>(loaded.model->bytes_per_token());
  return result;
}

Json machine_json(const BenchReport& report) {
  Json threads = Json::array();
  for (const BenchThreads& at : report.threads) {
    Json kernels = Json::array();
    for (const BenchKernel& kernel : at.kernels)
      kernels.push_back({{"form", kernel.form},
                         {"m", kernel.m},
                         {"n", kernel.n},
                         {"k", kernel.k},
                         {"seconds", kernel.seconds},
                         {"bytes_per_s", kernel.bytes_per_s},
                         {"flops_per_s", kernel.flops_per_s},
                         {"read_share", kernel.read_share},
                         {"flops_share", kernel.flops_share}});
    threads.push_back({{"threads", at.n_threads},
                       {"read_bytes_per_s", at.read_bytes_per_s},
                       {"flops_per_s", at.flops_per_s},
                       {"kernels", kernels}});
  }
  return Json{{"cpu", report.cpu}, {"isa", report.isa}, {"threads", threads}};
}

void print_machine(const BenchReport& report, Output& out) {
  out.print("{}, kernels {}\n", report.cpu, report.isa);
  for (const BenchThreads& at : report.threads) {
    out.print("\n{} thread{}: reads {}/s, computes {:.1f} GFLOP/s (float32)\n", at.n_threads,
              at.n_threads == 1 ? "" : "s", format_bytes(at.read_bytes_per_s),
              at.flops_per_s * 1e-9);
    if (at.kernels.empty()) continue;
    using Align = Table::Align;
    Table table({{"weights"},
                 {"rows", Align::kRight},
                 {"n", Align::kRight},
                 {"k", Align::kRight},
                 {"time", Align::kRight},
                 {"read", Align::kRight},
                 {"of stream", Align::kRight},
                 {"GFLOP/s", Align::kRight},
                 {"of peak", Align::kRight}});
    for (const BenchKernel& kernel : at.kernels)
      table.add({kernel.form, fmt::format("{}", kernel.m), fmt::format("{}", kernel.n),
                 fmt::format("{}", kernel.k), format_seconds(kernel.seconds),
                 format_bytes(kernel.bytes_per_s) + "/s",
                 fmt::format("{:.0f} %", 100 * kernel.read_share),
                 fmt::format("{:.1f}", kernel.flops_per_s * 1e-9),
                 fmt::format("{:.0f} %", 100 * kernel.flops_share)});
    out.write(table.text());
  }
}

void print_model(const EndToEnd& model, double machine_read_per_s, Output& out) {
  out.print("\nmodel: {} of weights, loaded in {}, kernels {}\n",
            format_bytes(static_cast<double>(model.weight_bytes)), format_seconds(model.load_s),
            model.isa);
  out.print("prefill of {} tokens: {:.1f} tokens/s\n", model.n_prompt, model.prefill_per_s);
  out.print(
      "decode of {} tokens: {:.1f} tokens/s, reading {}/s of weights ({:.0f} % of the stream)\n",
      model.n_generated, model.decode_per_s, format_bytes(model.read_per_s),
      100 * model.read_per_s / machine_read_per_s);
}

Json model_json(const EndToEnd& model, double machine_read_per_s) {
  return Json{{"isa", model.isa},
              {"weight_bytes", model.weight_bytes},
              {"load_s", model.load_s},
              {"prefill_tokens", model.n_prompt},
              {"prefill_tokens_per_s", model.prefill_per_s},
              {"decode_tokens", model.n_generated},
              {"decode_tokens_per_s", model.decode_per_s},
              {"read_bytes_per_s", model.read_per_s},
              {"read_share", model.read_per_s / machine_read_per_s}};
}

Result<int> run_bench(Context& context, const BenchCommandOptions& options) {
  std::optional<EndToEnd> model;
  if (!options.model.empty()) {
    SX_ASSIGN(model, measure_model(context.common, options));
  }
  BenchOptions bench;
  bench.isa = context.common.isa;
  // With a model its own numbers are what counts; the stream they are compared with suffices.
  bench.kernels = options.model.empty() && !options.machine_only;
  const int n_threads = make_pool(context.common)->n_threads();
  bench.threads = n_threads == 1 ? std::vector<int>{1} : std::vector<int>{1, n_threads};
  note("measuring this machine; other work on it now makes the numbers worse");
  SX_ASSIGN(const BenchReport report, bench_machine(bench));
  const double read_per_s = report.threads.back().read_bytes_per_s;
  if (context.common.json) {
    Json document = {{"machine", machine_json(report)}};
    if (model) document["model"] = model_json(*model, read_per_s);
    context.out.document(document);
    return 0;
  }
  print_machine(report, context.out);
  if (model) print_model(*model, read_per_s, context.out);
  return 0;
}

}  // namespace

void add_bench(Program& program, Context& context) {
  auto options = std::make_shared<BenchCommandOptions>();
  Command command = add_command(
      program, context, "bench", "how fast this machine is, and a model on it",
      "  sextant bench                       memory, arithmetic and kernels of this machine\n"
      "  sextant bench smollm2               tokens per second, beside what memory allows\n"
      "  sextant bench smollm2 --threads 1 --json");
  command.option("MODEL", &options->model, "measure this model end to end");
  command.option("--prompt-tokens", &options->prompt_tokens, "tokens to prefill (default 512)",
                 {.value = "N", .range = IntRange{1, int64_t{1} << 20}});
  command.option("--max-tokens", &options->generated_tokens, "tokens to generate (default 64)",
                 {.value = "N", .range = IntRange{2, int64_t{1} << 20}});
  command.option("--repetitions", &options->repetitions, "how often; the best counts (default 3)",
                 {.value = "N", .range = IntRange{1, 1000}});
  command.flag("--machine", &options->machine_only, "memory and arithmetic only, no kernels");
  add_allow_option(command, context.common);
  command.run([&context, options] { return run_bench(context, *options); });
}

}  // namespace sextant
