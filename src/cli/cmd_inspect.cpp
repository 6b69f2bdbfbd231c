// `sextant inspect MODEL`: what is in a checkpoint, without running it: tensors, schemes, sizes,
// the quantization patterns with what each matched, and what was found on the way.
#include "checkpoint/scan.h"
#include "checkpoint/summary.h"
#include "cli/commands.h"
#include "cli/model_path.h"
#include "cli/table.h"
#include "cli/tensor_stats.h"
#include "doctor/report.h"

namespace sextant {
namespace {

struct InspectOptions {
  std::string model;
  std::string tensor;
  int64_t n_first = 16;
  bool tensors = false;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape)
    text += fmt::format("{}{}", text.size() > 1 ? ", " : "", extent);
  return text + "]";
}

Json linear_json(const LinearRecord& linear) {
  Json ranges = Json::array();
  for (const ScaleRange& range : linear.ranges)
    ranges.push_back({{"rows", {range.row_begin, range.row_end}},
                      {"g", json_number(range.g)},
                      {"stored", json_number(range.stored)},
                      {"stored_is", range.is_divisor ? "divisor" : "multiplier"}});
  return Json{
      {"module", linear.module},
      {"scheme", scheme_name(linear.scheme)},
      {"rows", linear.n},
      {"columns", linear.k},
      {"bytes", linear.n_bytes},
      {"ranges", ranges},
      {"input_scale", linear.input_scale ? json_number(*linear.input_scale) : Json(nullptr)},
      {"config_group", linear.config_group}};
}

Json document_of(const Checkpoint& checkpoint, const std::vector<Finding>& findings) {
  const CheckpointSummary summary = summarize(checkpoint);
  Json linears_by_scheme = Json::object();
  for (const auto& [scheme, sum] : summary.schemes) linears_by_scheme[scheme] = sum.n_linears;
  Json tensors = Json::array();
  for (const auto& [name, tensor] : checkpoint.tensors())
    tensors.push_back({{"name", name},
                       {"dtype", dtype_name(tensor.info->dtype)},
                       {"shape", tensor.info->shape},
                       {"bytes", tensor.info->n_bytes()},
                       {"file", tensor.file->path().filename().string()},
                       {"offset", tensor.info->begin}});
  Json linears = Json::array();
  for (const auto& [module, linear] : checkpoint.linears()) linears.push_back(linear_json(linear));
  Json patterns = Json::array();
  for (const PatternReport& pattern : checkpoint.patterns())
    patterns.push_back(
        {{"source", pattern.source}, {"pattern", pattern.pattern}, {"matched", pattern.matched}});
  Json found = Json::array();
  for (const Finding& finding : findings) found.push_back(finding_json(finding));
  return Json{{"model", checkpoint.root().string()},
              {"dialect", checkpoint.dialect()},
              {"summary",
               {{"files", checkpoint.files().size()},
                {"tensors", checkpoint.tensors().size()},
                {"bytes", summary.n_bytes},
                {"linears", linears_by_scheme},
                {"bits_per_weight", summary.bits_per_weight()}}},
              {"tensors", tensors},
              {"linears", linears},
              {"patterns", patterns},
              {"findings", found}};
}

std::string string_member(const JsonValue* config, std::string_view name) {
  const JsonValue* value = config != nullptr ? config->find(name) : nullptr;
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

void print_summary(const Checkpoint& checkpoint, Output& out) {
  const CheckpointSummary summary = summarize(checkpoint);
  out.print("model       {}\n", one_line(checkpoint.root().string()));
  const JsonValue* config = checkpoint.config();
  const JsonValue* names = config != nullptr ? config->find("architectures") : nullptr;
  if (names != nullptr && names->is_array() && !names->array().empty() &&
      names->array().front().is_string())
    out.print("family      {} ({})\n", one_line(names->array().front().as_string()),
              one_line(string_member(config, "model_type")));
  out.print("dialect     {}\n", checkpoint.dialect());
  out.print("size        {} in {} tensors, {} file{}\n",
            format_bytes(static_cast<double>(summary.n_bytes)), checkpoint.tensors().size(),
            checkpoint.files().size(), checkpoint.files().size() == 1 ? "" : "s");
  out.print("weights     {} in matrices, {:.2f} bits each\n\n",
            format_count(summary.linears.n_weights), summary.bits_per_weight());
  using Align = Table::Align;
  Table table({{"scheme"},
               {"linears", Align::kRight},
               {"weights", Align::kRight},
               {"size", Align::kRight}});
  for (const auto& [scheme, sum] : summary.schemes)
    table.add({scheme, fmt::format("{}", sum.n_linears), format_count(sum.n_weights),
               format_bytes(static_cast<double>(sum.n_bytes))});
  out.write(table.text());
}

void print_patterns(const Checkpoint& checkpoint, Output& out) {
  if (checkpoint.patterns().empty()) return;
  Table table({{"from"}, {"pattern"}, {"matched", Table::Align::kRight}, {"for example"}});
  for (const PatternReport& pattern : checkpoint.patterns())
    table.add({pattern.source, one_line(pattern.pattern), fmt::format("{}", pattern.matched.size()),
               pattern.matched.empty() ? "" : one_line(pattern.matched.front())});
  out.print("\n{}", table.text());
}

void print_findings(const std::vector<Finding>& findings, Output& out) {
  out.write("\n");
  if (findings.empty()) out.write("nothing wrong was found\n");
  for (const Finding& finding : findings) {
    out.print("{} {} {}: {}\n", severity_name(finding.severity), finding.id, finding.slug,
              one_line(finding.message));
    if (!finding.remedy.empty()) out.print("  {}\n", one_line(finding.remedy));
  }
}

// All tensors; with the scheme of the linear that each belongs to.
void print_tensors(const Checkpoint& checkpoint, Output& out) {
  std::map<std::string, std::string, std::less<>> scheme_of;
  for (const auto& [module, linear] : checkpoint.linears())
    for (const std::string_view name : checkpoint.tensors_of(linear))
      scheme_of[std::string(name)] = scheme_name(linear.scheme);
  Table table(
      {{"tensor"}, {"dtype"}, {"shape"}, {"size", Table::Align::kRight}, {"part of"}, {"file"}});
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const auto scheme = scheme_of.find(name);
    table.add({one_line(name), std::string(dtype_name(tensor.info->dtype)),
               shape_text(tensor.info->shape),
               format_bytes(static_cast<double>(tensor.info->n_bytes())),
               scheme == scheme_of.end() ? "" : scheme->second,
               one_line(tensor.file->path().filename().string())});
  }
  out.print("\n{}", table.text());
}

Result<int> inspect_tensor(Context& context, const Checkpoint& checkpoint,
                           const InspectOptions& options) {
  SX_ASSIGN(const TensorStats stats, tensor_stats(checkpoint, options.tensor, options.n_first));
  if (context.common.json) {
    Json first = Json::array();
    for (const float value : stats.first) first.push_back(json_number(value));
    context.out.document(Json{{"name", stats.name},
                              {"kind", stats.kind},
                              {"shape", stats.shape},
                              {"elements", stats.n},
                              {"min", json_number(stats.min)},
                              {"max", json_number(stats.max)},
                              {"mean", json_number(stats.mean)},
                              {"rms", json_number(stats.rms)},
                              {"zeros", stats.n_zero},
                              {"nan", stats.n_nan},
                              {"inf", stats.n_inf},
                              {"first", first}});
    return 0;
  }
  Output& out = context.out;
  out.print("{}  {} {}\n", one_line(stats.name), stats.kind, shape_text(stats.shape));
  out.print("elements  {}, {} zero, {} NaN, {} infinite\n", format_count(stats.n),
            format_count(stats.n_zero), stats.n_nan, stats.n_inf);
  out.print("range     {:.6g} to {:.6g}, mean {:.6g}, rms {:.6g}\n", stats.min, stats.max,
            stats.mean, stats.rms);
  out.write("first    ");
  for (const float value : stats.first) out.print(" {:.6g}", value);
  out.write("\n");
  return 0;
}

Result<int> run_inspect(Context& context, const InspectOptions& options) {
  SX_ASSIGN(const std::filesystem::path path, find_model(options.model));
  SX_ASSIGN(const auto checkpoint, Checkpoint::open(path));
  if (!options.tensor.empty()) return inspect_tensor(context, *checkpoint, options);
  std::vector<Finding> findings = checkpoint->findings();
  for (Finding& finding : scan_scales(*checkpoint, *make_pool(context.common)))
    findings.push_back(std::move(finding));
  if (context.common.json) {
    context.out.document(document_of(*checkpoint, findings));
  } else {
    print_summary(*checkpoint, context.out);
    print_patterns(*checkpoint, context.out);
    print_findings(findings, context.out);
    if (options.tensors || context.common.verbose) print_tensors(*checkpoint, context.out);
  }
  const bool has_error = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.severity == Severity::kError;
  });
  return has_error ? exit_status(Code::kModel) : 0;
}

}  // namespace

void add_inspect(Program& program, Context& context) {
  auto options = std::make_shared<InspectOptions>();
  Command command = add_command(
      program, context, "inspect", "what is in a checkpoint",
      "  sextant inspect MODEL                    schemes, sizes, patterns, findings\n"
      "  sextant inspect MODEL --tensors          every tensor as well\n"
      "  sextant inspect MODEL --tensor model.layers.0.mlp.down_proj\n"
      "                                           the numbers of one linear, dequantized\n"
      "  sextant inspect MODEL --json | jq .summary\n\n"
      "Status 2: the checkpoint has errors.");
  command.option("MODEL", &options->model, "directory, snapshot, .safetensors file, or name",
                 {.required = true});
  command.flag("--tensors", &options->tensors, "list every tensor");
  command.option("--tensor", &options->tensor, "statistics and first values of this one",
                 {.value = "NAME"});
  command.option("--first", &options->n_first, "how many first values (default 16)",
                 {.value = "N", .range = IntRange{0, int64_t{1} << 20}});
  command.run([&context, options] { return run_inspect(context, *options); });
}

}  // namespace sextant
