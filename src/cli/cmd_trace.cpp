// `sextant trace`: a prompt through a model with a probe at every tap. Exit status 2 where a tap
// holds something that is not finite.
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/load_model.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/signals.h"
#include "cli/trace_report.h"
#include "cli/version.h"
#include "cli/warm_up.h"

namespace sextant {
namespace {

struct TraceCommandOptions {
  std::string model;
  std::optional<std::string> prompt;
  std::string ids_file;
  std::string system;
  bool raw = false;
  std::string taps;
  std::string html;
  std::string dump;
  int64_t chunk = 0;
};

// What can be refused before a model is read.
Status check_trace(const TraceCommandOptions& options, const CommonOptions& common) {
  if (options.prompt.has_value() == !options.ids_file.empty())
    return fail(Code::kUsage, "expected one of --prompt TEXT and --ids FILE, found {}",
                options.prompt ? "both" : "neither");
  if (options.prompt && options.prompt->empty())
    return fail_at(at_field("--prompt"), Code::kUsage,
                   "the prompt is empty: expected at least one token");
  return check_page_path(options.html, common.output);
}

Result<TraceReport> traced(const TraceCommandOptions& options, const LoadedModel& loaded,
                           const Checkpoint& checkpoint, const TraceSubject& subject) {
  std::unique_ptr<DumpWriter> dump;
  if (!options.dump.empty()) {
    SX_ASSIGN(dump, DumpWriter::create(options.dump, *loaded.model, subject.policies, subject.ids));
  }
  const PollSignals poll;
  Progress progress("tracing", Progress::Unit::kTokens);
  TraceOptions wanted;
  if (options.chunk > 0) wanted.chunk = options.chunk;
  wanted.dump = dump.get();
  wanted.cancel = &interrupt_flag();
  wanted.progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
  SX_ASSIGN(TraceReport report,
            trace(*loaded.model, checkpoint, subject.ids, wanted, *loaded.pool));
  Progress::erase_shown();
  if (!options.taps.empty()) SX_TRY(check_taps_pattern(report, options.taps));
  if (dump != nullptr) SX_TRY(dump->commit(fmt::format("sextant {} trace", SX_VERSION)));
  return report;
}

Result<int> run_trace(Context& context, const TraceCommandOptions& options) {
  const CommonOptions& common = context.common;
  SX_TRY(check_trace(options, common));
  // Beside the model's own: it gives pages back as it packs, and causes are read from the file.
  SX_ASSIGN(std::vector<Allowance> allowed, parse_allowances(common.allow));
  SX_ASSIGN(const auto checkpoint, open_checkpoint(options.model, std::move(allowed)));
  SX_TRY(check_output_file(options.html, *checkpoint));
  SX_TRY(check_output_file(common.output, *checkpoint));
  SX_ASSIGN(const LoadedModel loaded, load_model(common, options.model));
  TraceSubject subject;
  subject.model = options.model;
  subject.policies = loaded.policies;
  subject.isa = loaded.model->ops().name;
  subject.tokenizer = loaded.tokenizer;
  subject.load_s = loaded.load_s;
  if (options.prompt) {
    SX_ASSIGN(subject.ids, encode_prompt(loaded, *options.prompt, options.system, options.raw));
  } else {
    SX_ASSIGN(subject.ids, read_ids(options.ids_file));
  }
  SX_ASSIGN(const TraceReport report, traced(options, loaded, *checkpoint, subject));
  if (common.json)
    context.out.document(trace_json(subject, report, options.taps));
  else
    context.out.write(
        trace_text(subject, report, {.all_taps = common.verbose, .taps_pattern = options.taps}));
  if (!options.html.empty()) SX_TRY(write_page(options.html, trace_html(subject, report)));
  return report.first_bad ? exit_status(Code::kModel) : 0;
}

}  // namespace

void add_trace(Program& program, Context& context) {
  auto options = std::make_shared<TraceCommandOptions>();
  Command command = add_command(
      program, context, "trace", "every tensor of a forward pass, and the first bad one",
      "  sextant trace MODEL --prompt \"Why is the sky blue?\"   a line a layer\n"
      "  sextant trace MODEL --prompt Hi --taps '3.*'          every tap of layer 3\n"
      "  sextant trace MODEL --ids ids.json --json             all taps, for programs\n"
      "  sextant trace MODEL --prompt Hi --html trace.html     charts\n"
      "  sextant trace MODEL --prompt Hi --write-dump DIR      for sextant compare --dump DIR\n\n"
      "r is an input's amax over the one its static scale was calibrated for. Status 2: a value "
      "is\n"
      "not finite; the report names tensor, layer, expert and token.");
  command.option("MODEL", &options->model, "directory, snapshot, or name of a model",
                 {.required = true});
  command.option("--prompt", &options->prompt, "what to run, through the model's chat template",
                 {.value = "TEXT"});
  command.option("--ids", &options->ids_file, "token ids in place of a prompt (-: input)",
                 {.value = "FILE"});
  command.option("--system", &options->system, "system message", {.value = "TEXT"});
  command.flag("--raw", &options->raw, "no chat template: the prompt as it is");
  command.option("--taps", &options->taps,
                 "a line for each tap whose name, LAYER.NAME or module matches (-v: all)",
                 {.value = "PATTERN"});
  command.option("--html", &options->html, "write the report as one self-contained page",
                 {.value = "FILE"});
  command.option("--write-dump", &options->dump, "write hidden states and logits as a dump",
                 {.value = "DIR"});
  command.option("--prefill-chunk", &options->chunk, "feed the ids in steps of so many",
                 {.value = "N", .range = IntRange{1, INT64_MAX}});
  add_allow_option(command, context.common);
  add_warmup_options(command, context.common, true);
  command.run([&context, options] { return run_trace(context, *options); });
}

}  // namespace sextant
