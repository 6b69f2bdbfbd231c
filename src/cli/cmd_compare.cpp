// `sextant compare`: two models (compare_models_command.cpp), or with --dump DIR a model against a
// forward pass of another framework, tensor by tensor, within the dump's bounds (status 1 where one
// does not hold).
#include "cli/commands.h"
#include "cli/compare_report.h"
#include "cli/load_model.h"
#include "cli/model_path.h"
#include "cli/table.h"
#include "cli/warm_up.h"
#include "doctor/diagnosis.h"
#include "forge/compare.h"

namespace sextant {
namespace {

struct CompareOptions {
  std::string dump;
  DumpOptions options;
  CompareModelsCommand models;
};

std::string index_text(const std::vector<int64_t>& index) {
  std::string text;
  for (const int64_t i : index) text += fmt::format("{}{}", text.empty() ? "" : ",", i);
  return text;
}

Json report_json(const DumpReport& report) {
  Json rows = Json::array();
  for (const DumpRow& row : report.rows)
    rows.push_back({{"tensor", row.tensor},
                    {"elements", row.n_elements},
                    {"max_abs_diff", json_number(row.max_abs_diff)},
                    {"bound", row.min_cosine ? Json(nullptr) : json_number(row.bound)},
                    {"min_cosine", row.min_cosine ? json_number(*row.min_cosine) : Json(nullptr)},
                    {"cosine", json_number(row.cosine)},
                    {"rms_ratio", json_number(row.rms_ratio)},
                    {"first_over", row.first_over.empty() ? Json(nullptr) : Json(row.first_over)},
                    {"ok", row.ok}});
  return Json{
      {"ok", report.ok()}, {"policy", report.policy},         {"applied", report.applied},
      {"isa", report.isa}, {"sequences", report.n_sequences}, {"positions", report.n_positions},
      {"rows", rows},      {"unknown", report.unknown},       {"skipped", report.skipped}};
}

void print_report(const DumpReport& report, Output& out) {
  using Align = Table::Align;
  Table table({{"tensor"},
               {"largest difference", Align::kRight},
               {"bound", Align::kRight},
               {"cosine", Align::kRight},
               {"rms ratio", Align::kRight},
               {"first over"},
               {""}});
  int64_t n_bad = 0;
  for (const DumpRow& row : report.rows) {
    table.add({row.tensor, fmt::format("{:.3g}", row.max_abs_diff),
               row.min_cosine ? fmt::format("cosine {}", *row.min_cosine)
                              : fmt::format("{:.3g}", row.bound),
               fmt::format("{:.8f}", row.cosine), fmt::format("{:.6f}", row.rms_ratio),
               index_text(row.first_over), row.ok ? "ok" : "OVER"});
    n_bad += row.ok ? 0 : 1;
  }
  out.write(table.text());
  for (const std::string& name : report.skipped) out.print("not compared: {}\n", name);
  for (const std::string& name : report.unknown) out.print("unknown tensor: {}\n", name);
  out.print(
      "{} of {} tensors within their bounds; policy {} as {}, kernels {}, {} sequences of {}\n",
      static_cast<int64_t>(report.rows.size()) - n_bad, report.rows.size(), report.policy,
      join(report.applied, " "), report.isa, report.n_sequences, report.n_positions);
}

Result<int> run_compare(Context& context, CompareOptions& options) {
  const DumpOptions& of_dump = options.options;
  if (options.dump.empty()) {
    if (of_dump.prefill_chunk > 0 || of_dump.decode_from >= 0 || of_dump.name != DumpOptions().name)
      return fail_at(at_field("--dump"), Code::kUsage,
                     "--dump-name, --prefill-chunk and --decode-from need --dump DIR");
    return run_compare_models(context, options.models);
  }
  if (!options.models.b.empty())
    return fail_at(at_field("--dump"), Code::kUsage,
                   "expected one model with --dump DIR, found two: {} and {}", options.models.a,
                   options.models.b);
  options.options.model.isa = context.common.isa;
  options.options.model.policies = context.common.policies;
  SX_ASSIGN(const std::filesystem::path path, find_model(options.models.a));
  SX_ASSIGN(std::vector<Allowance> allowed, parse_allowances(context.common.allow));
  for (Allowance& allowance : dump_allowances()) allowed.push_back(std::move(allowance));
  SX_ASSIGN(auto checkpoint, Checkpoint::open(path, {.limits = {}, .allow = std::move(allowed)}));
  const auto pool = make_pool(context.common);
  LoadedModel loaded;
  loaded.root = checkpoint->root();
  loaded.pool = pool;
  ModelOptions& model = options.options.model;
  const bool own_policies = model.policies.empty();  // the dump's, which may say a4:warmup
  SX_TRY(prepare_warm_up(context.common, *checkpoint, loaded, model));
  if (own_policies) model.policies.clear();
  model.distrusted_inputs =
      diagnose(*checkpoint, {.quick = true, .progress = {}}, *pool).distrusted_inputs;
  SX_ASSIGN(const DumpReport report,
            compare_dump(std::move(checkpoint), options.dump, options.options, *pool));
  show_findings(report.findings);
  if (context.common.json)
    context.out.document(report_json(report));
  else
    print_report(report, context.out);
  return report.ok() ? 0 : exit_status(Code::kGate);
}

}  // namespace

void add_compare(Program& program, Context& context) {
  auto options = std::make_shared<CompareOptions>();
  Command command = add_command(
      program, context, "compare", "two models layer by layer, or a model against a dump",
      "  sextant compare BF16 NVFP4 --text book.txt            a line a layer, KL at the end\n"
      "  sextant compare BF16 NVFP4 --text book.txt -v         a line a tap\n"
      "  sextant compare BF16 NVFP4 --ids ids.json --max-kl 0.2\n"
      "  sextant compare MODEL --policy-a f32 --policy-b a16 --text book.txt\n"
      "  sextant compare MODEL --dump DIR                      numbers of another framework\n"
      "  sextant compare MODEL --dump DIR --decode-from 0      token by token\n\n"
      "B's layer is given what A's is given, so that a layer's error is its own; beside that both\n"
      "run on their own. A dump is DIR/NAME.safetensors and DIR/NAME.json; without --policy its\n"
      "own is used. Status 1: a gate (--max-kl) or a bound of the dump does not hold; 2: a value\n"
      "is not finite.");
  command.option("MODEL", &options->models.a, "directory, snapshot, or name of a model",
                 {.required = true});
  command.option("B", &options->models.b, "the other model (default: MODEL under --policy-b)");
  command.option("--dump", &options->dump, "directory of the dump", {.value = "DIR"});
  command.option("--dump-name", &options->options.name, "name of the dump (default: dump)",
                 {.value = "NAME"});
  command.option("--prefill-chunk", &options->options.prefill_chunk,
                 "feed the ids in steps of so many (default: all at once)",
                 {.value = "N", .range = IntRange{1, INT64_MAX}});
  command.option("--decode-from", &options->options.decode_from,
                 "from this position on one token a step",
                 {.value = "T", .range = IntRange{0, INT64_MAX}});
  const auto of_models = [](const char* value) {
    return OptionSpec{.value = value, .excludes = {"--dump"}};
  };
  CompareModelsCommand& models = options->models;
  OptionSpec policies = of_models("SPEC");
  policies.repeatable = true;
  command.option("--policy-a", &models.policy_a, "policies of A, after those of --policy",
                 policies);
  command.option("--policy-b", &models.policy_b, "policies of B, after those of --policy",
                 policies);
  command.option("--text", &models.files.text_file, "the text (- for standard input)",
                 of_models("FILE"));
  command.option("--ids", &models.files.ids_file, "token ids in place of a text",
                 of_models("FILE"));
  OptionSpec count = of_models("N");
  count.range = IntRange{2, INT64_MAX};
  command.option("--window", &models.window, "tokens a window (default 512)", count);
  count.range = IntRange{1, INT64_MAX};
  command.option("--max-windows", &models.max_windows, "only the first so many (default 16)",
                 count);
  command.option("--max-kl", &models.max_kl, "gate: largest mean KL(A || B)", of_models("X"));
  add_allow_option(command, context.common);
  add_warmup_options(command, context.common, false);
  command.run([&context, options] { return run_compare(context, *options); });
}

}  // namespace sextant
