// `sextant quantize SRC DST`: a BF16, F16 or F32 checkpoint to NVFP4, weights only.
#include "cli/commands.h"
#include "cli/load_model.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/version.h"
#include "forge/quantize.h"

namespace sextant {
namespace {

struct QuantizeCommandOptions {
  std::string source;
  std::string destination;
  std::string scheme = "nvfp4a16";
  std::string dialect = "modelopt";
  std::string method = "rtn";
  std::string global_scale = "fused";
  std::vector<std::string> keep;
  std::string max_memory;
  bool force = false;
  bool resume = false;
  std::optional<std::string> calibration;
  std::optional<std::string> input_scales;
  std::optional<std::string> recipe;
};

// Parts of the contract that this build has not, each with what there is.
Status check_supported(const QuantizeCommandOptions& options) {
  if (options.scheme != "nvfp4a16")
    return fail_at(at_field("--scheme"), Code::kUnsupported,
                   "--scheme {}: this build makes nvfp4a16 (weights only)", options.scheme);
  if (options.method != "rtn")
    return fail_at(at_field("--method"), Code::kUnsupported,
                   "--method {}: this build rounds to nearest (rtn)", options.method);
  if (options.resume)
    return fail_at(at_field("--resume"), Code::kUnsupported,
                   "--resume: this build writes a checkpoint in one go; leave --resume away");
  if (options.calibration || options.input_scales)
    return fail_at(at_field("--calibration"), Code::kUnsupported,
                   "--calibration, --input-scales: this build quantizes weights only, which needs "
                   "no activation scales; leave them away");
  if (options.recipe)
    return fail_at(at_field("--recipe"), Code::kUnsupported,
                   "--recipe: this build takes one rule for all; keep modules with --keep");
  return {};
}

Json report_json(const QuantizeReport& report, const QuantizeCommandOptions& options) {
  Json kept = Json::array();
  for (const KeptModule& module : report.kept)
    kept.push_back({{"module", module.module}, {"reason", module.reason}});
  return Json{{"destination", options.destination},
              {"scheme", options.scheme},
              {"dialect", options.dialect},
              {"global_scale", options.global_scale},
              {"quantized", report.n_quantized},
              {"weights", report.n_weights},
              {"source_bytes", report.source_bytes},
              {"output_bytes", report.output_bytes},
              {"files", report.n_files},
              {"zero_tensors", report.n_zero_tensors},
              {"kept", kept},
              {"notes", report.notes},
              {"seconds", report.seconds}};
}

void print_report(const QuantizeReport& report, const QuantizeCommandOptions& options,
                  Output& out) {
  out.print("{}: {} linears in NVFP4 ({} weights), {} kept as they were\n", options.destination,
            report.n_quantized, format_count(report.n_weights), report.kept.size());
  out.print("{} became {} in {} file{}, {}\n",
            format_bytes(static_cast<double>(report.source_bytes)),
            format_bytes(static_cast<double>(report.output_bytes)), report.n_files,
            report.n_files == 1 ? "" : "s", format_seconds(report.seconds));
  if (talk_style().verbose)
    for (const KeptModule& module : report.kept)
      out.print("kept: {} ({})\n", module.module, module.reason);
  for (const std::string& text : report.notes) say_note(text);
}

Result<int> run_quantize(Context& context, const QuantizeCommandOptions& options) {
  SX_TRY(check_supported(options));
  QuantizeOptions quantize_options;
  quantize_options.dialect = options.dialect == "modelopt" ? QuantizeDialect::kModelOpt
                                                           : QuantizeDialect::kCompressedTensors;
  quantize_options.global_scale =
      options.global_scale == "own" ? GlobalScaleRule::kOwn : GlobalScaleRule::kFused;
  quantize_options.keep = options.keep;
  quantize_options.force = options.force;
  quantize_options.writer = std::string("sextant ") + SX_VERSION;
  if (!options.max_memory.empty()) {
    const auto bytes = parse_size(options.max_memory);
    if (!bytes || *bytes < (1 << 20))
      return fail_at(at_field("--max-memory"), Code::kUsage,
                     "--max-memory: expected a size from 1MB on, as 2GB or 512MiB, found {}",
                     options.max_memory);
    quantize_options.max_memory_bytes = *bytes;
  }
  SX_ASSIGN(const auto source, open_checkpoint(options.source));
  const PollSignals poll;
  quantize_options.cancel = &interrupt_flag();
  Progress progress("quantizing", Progress::Unit::kBytes);
  quantize_options.progress = [&](const QuantizeProgress& at) {
    progress.update(at.done_bytes, at.total_bytes, at.module);
  };
  const auto pool = make_pool(context.common);
  SX_ASSIGN(const QuantizeReport report,
            quantize(*source, options.destination, quantize_options, *pool));
  Progress::erase_shown();
  if (context.common.json)
    context.out.document(report_json(report, options));
  else
    print_report(report, options, context.out);
  return 0;
}

}  // namespace

void add_quantize(Program& program, Context& context) {
  auto options = std::make_shared<QuantizeCommandOptions>();
  Command command = add_command(
      program, context, "quantize", "a BF16 model to NVFP4",
      "  sextant quantize smollm2 ./smollm2-nvfp4\n"
      "  sextant quantize SRC DST --dialect compressed-tensors --keep 'model.layers.0.*'\n\n"
      "DST appears whole or not at all: Ctrl-C, a full disk or a crash leave nothing "
      "half-written.");
  command.alias("quantise");
  command.option("SRC", &options->source, "the model to read: a directory, snapshot or name",
                 {.required = true});
  command.option("DST", &options->destination, "the directory to write", {.required = true});
  command.option("--scheme", &options->scheme, "nvfp4a16: weights only (default)",
                 {.value = "NAME", .choices = {"nvfp4a16", "nvfp4"}});
  command.option("--dialect", &options->dialect, "form of the files (default: modelopt)",
                 {.value = "NAME", .choices = {"modelopt", "compressed-tensors"}});
  command.option("--method", &options->method, "rtn: round to nearest (default)",
                 {.value = "NAME", .choices = {"rtn", "mse", "four-over-six", "gptq"}});
  command.option("--global-scale", &options->global_scale,
                 "fused: q/k/v, gate/up share one (default); own: each its own",
                 {.value = "RULE", .choices = {"fused", "own"}});
  command.option("--keep", &options->keep, "modules that stay as they are (shell-style)",
                 {.value = "PATTERN", .repeatable = true});
  command.option("--max-memory", &options->max_memory, "working memory, as 2GB or 512MiB",
                 {.value = "SIZE"});
  command.flag("--force", &options->force, "replace DST where it exists");
  command.flag("--resume", &options->resume, "continue an interrupted run");
  command.option("--calibration", &options->calibration, "", {.value = "TEXT", .group = ""});
  command.option("--input-scales", &options->input_scales, "", {.value = "FILE", .group = ""});
  command.option("--recipe", &options->recipe, "", {.value = "FILE", .group = ""});
  command.run([&context, options] { return run_quantize(context, *options); });
}

}  // namespace sextant
