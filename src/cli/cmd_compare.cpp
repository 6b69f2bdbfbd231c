// `sextant compare MODEL --dump DIR`: the model against a forward pass of another framework, tensor
// by tensor, within the dump's bounds (status 1 where one does not hold).
#include "cli/commands.h"
#include "cli/load_model.h"
#include "cli/model_path.h"
#include "cli/table.h"
#include "forge/compare.h"

namespace sextant {
namespace {

struct CompareOptions {
  std::string model;
  std::string dump;
  DumpOptions options;
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
  if (options.dump.empty())
    return fail_at(at_field("--dump"), Code::kUsage,
                   "expected --dump DIR: this build compares a model with a dump");
  options.options.model.isa = context.common.isa;
  options.options.model.policies = context.common.policies;
  SX_ASSIGN(const std::filesystem::path path, find_model(options.model));
  SX_ASSIGN(std::vector<Allowance> allowed, parse_allowances(context.common.allow));
  for (Allowance& allowance : dump_allowances()) allowed.push_back(std::move(allowance));
  SX_ASSIGN(auto checkpoint, Checkpoint::open(path, {.limits = {}, .allow = std::move(allowed)}));
  const auto pool = make_pool(context.common);
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
      program, context, "compare", "a model against the numbers of another framework",
      "  sextant compare MODEL --dump MODEL                 the dump beside the model\n"
      "  sextant compare MODEL --dump DIR --prefill-chunk 7\n"
      "  sextant compare MODEL --dump DIR --decode-from 0   token by token\n\n"
      "A dump is DIR/NAME.safetensors and DIR/NAME.json. Without --policy the dump's is used.\n"
      "Status 1: a tensor is over its bound.");
  command.option("MODEL", &options->model, "directory, snapshot, or name of a model",
                 {.required = true});
  command.option("--dump", &options->dump, "directory of the dump", {.value = "DIR"});
  command.option("--dump-name", &options->options.name, "name of the dump (default: dump)",
                 {.value = "NAME"});
  command.option("--prefill-chunk", &options->options.prefill_chunk,
                 "feed the ids in steps of so many (default: all at once)",
                 {.value = "N", .range = IntRange{1, INT64_MAX}});
  command.option("--decode-from", &options->options.decode_from,
                 "from this position on one token a step",
                 {.value = "T", .range = IntRange{0, INT64_MAX}});
  add_allow_option(command, context.common);
  command.run([&context, options] { return run_compare(context, *options); });
}

}  // namespace sextant
