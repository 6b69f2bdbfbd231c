// `sextant doctor MODEL`: what is wrong with a checkpoint, in seconds, without running it. The
// checks are in doctor/; here are options, what only floors above doctor/ know (binding, the
// tokenizer's vocabulary), and the exit status.
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/load_model.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/version.h"
#include "doctor/against.h"
#include "doctor/check_list.h"
#include "doctor/lock.h"
#include "doctor/report.h"
#include "model/model.h"

namespace sextant {
namespace {

struct DoctorOptions {
  std::string model;
  std::string against;
  std::string engine;
  std::string html;
  bool quick = false;
  bool strict = false;
  bool list_checks = false;
  bool write_lock = false;
};

int print_checks(Context& context) {
  if (context.common.json) {
    Json list = Json::array();
    for (const CheckInfo& check : all_checks())
      list.push_back({{"id", check.id},
                      {"slug", check.slug},
                      {"severity", severity_name(check.severity)},
                      {"title", check.title},
                      {"threshold", check.threshold},
                      {"reason", check.reason}});
    context.out.document(list);
    return 0;
  }
  Table table({{"id"}, {"check"}, {"severity"}, {"speaks when"}, {"because"}});
  for (const CheckInfo& check : all_checks())
    table.add({std::string(check.id), std::string(check.slug),
               std::string(severity_name(check.severity)), std::string(check.threshold),
               std::string(check.reason)});
  context.out.write(table.text());
  return 0;
}

// What binding would refuse, for architectures that this program runs.
void add_binding(const Checkpoint& checkpoint, Diagnosis& diagnosis) {
  auto problems = check_parameters(checkpoint);
  if (problems) {
    add_findings(diagnosis, std::move(*problems));
    return;
  }
  const Error& error = problems.error();
  if (checkpoint.config() == nullptr || error.code == Code::kUnsupported) {
    diagnosis.skipped.push_back("C16, whether every parameter has a tensor: " + error.text);
    return;
  }
  Finding f;
  f.id = "P7";
  f.slug = "malformed-config";
  f.message = error.text;
  f.file = "config.json";
  f.remedy = "correct config.json";
  add_findings(diagnosis, {std::move(f)});
}

Json against_json(const AgainstReport& report) {
  Json tensors = Json::array();
  for (const WeightDifference& d : report.tensors)
    tensors.push_back({{"module", d.module},
                       {"scheme", scheme_name(d.scheme)},
                       {"reference_scheme", scheme_name(d.reference_scheme)},
                       {"cosine", json_number(d.cosine)},
                       {"relative_l2", json_number(d.relative_l2)},
                       {"rms_ratio", json_number(d.rms_ratio)},
                       {"ratio_name", d.ratio_name},
                       {"worst_block",
                        {{"row", d.worst_row},
                         {"group", d.worst_block},
                         {"error", json_number(d.worst_block_error)}}}});
  return Json{{"tensors", tensors},
              {"only_here", report.only_here},
              {"only_reference", report.only_reference},
              {"not_compared", report.not_compared},
              {"plain", {{"compared", report.n_plain}, {"equal", report.n_plain_equal}}}};
}

// The worst linears; all of them with details.
void print_against(const AgainstReport& report, bool details, Output& out) {
  constexpr size_t kShown = 10;
  using Align = Table::Align;
  Table table({{"against the reference"},
               {"as"},
               {"cosine", Align::kRight},
               {"rel. error", Align::kRight},
               {"rms ratio", Align::kRight},
               {"worst block"}});
  for (const WeightDifference& d : report.tensors) {
    if (!details && &d - report.tensors.data() >= static_cast<int64_t>(kShown)) break;
    table.add(
        {one_line(d.module),
         fmt::format("{} of {}", scheme_name(d.scheme), scheme_name(d.reference_scheme)),
         fmt::format("{:.5f}", d.cosine), fmt::format("{:.4f}", d.relative_l2),
         fmt::format("{:.5f}{}", d.rms_ratio, d.ratio_name.empty() ? "" : " = " + d.ratio_name),
         d.worst_row < 0 ? ""
                         : fmt::format("row {}, group {}: {:.3f}", d.worst_row, d.worst_block,
                                       d.worst_block_error)});
  }
  out.print("\n{}", table.text());
  if (!details && report.tensors.size() > kShown)
    out.print("and {} more, better than these (-v)\n", report.tensors.size() - kShown);
  out.print("{} of {} norms, biases and other vectors are equal\n", report.n_plain_equal,
            report.n_plain);
}

int status_of(const Diagnosis& diagnosis, bool strict) {
  switch (diagnosis.verdict) {
    case Verdict::kHealthy: return 0;
    case Verdict::kWarnings: return strict ? exit_status(Code::kGate) : 0;
    case Verdict::kErrors: return exit_status(Code::kModel);
    case Verdict::kUnreadable: return exit_status(Code::kInput);
  }
  return 0;
}

struct Examined {
  Diagnosis diagnosis;
  std::optional<std::vector<EnginePrediction>> predictions;  // none of what cannot be read
  std::optional<AgainstReport> against;
};

AgainstReport compare_with(const Checkpoint& checkpoint, const Checkpoint& reference,
                           ThreadPool& pool) {
  AgainstReport report = compare_weights(checkpoint, reference, pool);
  for (Finding& finding : compare_copies(checkpoint, reference))
    report.findings.push_back(std::move(finding));
  return report;
}

// Ids that no check has allow nothing, which their author should hear of.
Status check_ids(const std::vector<Allowance>& allowed) {
  for (const Allowance& allowance : allowed) {
    const auto checks = all_checks();
    if (std::none_of(checks.begin(), checks.end(),
                     [&](const CheckInfo& check) { return check.id == allowance.id; }))
      return fail_at(at_field("--allow"), Code::kUsage,
                     "--allow {}: no check has this id; sextant doctor --list-checks shows them",
                     allowance.id);
  }
  return {};
}

// To the end of the process, which frees hundreds of thousands of small objects at once; one by one
// that takes a fifth of the time of --quick on a large model.
const Checkpoint& keep(std::unique_ptr<Checkpoint> checkpoint) {
  static auto& kept = *new std::vector<std::unique_ptr<Checkpoint>>();
  kept.push_back(std::move(checkpoint));
  return *kept.back();
}

Result<Examined> examine(Context& context, const DoctorOptions& options) {
  const int64_t start_us = now_us();
  SX_ASSIGN(const std::filesystem::path path, find_model(options.model));
  SX_ASSIGN(const std::vector<Allowance> allowed, parse_allowances(context.common.allow));
  auto opened = Checkpoint::open(path, {.limits = {}, .allow = allowed});
  if (!opened) {
    if (opened.error().code == Code::kUsage) return tl::unexpected(opened.error());
    return Examined{unreadable(path.string(), opened.error()), std::nullopt, std::nullopt};
  }
  const Checkpoint& checkpoint = keep(std::move(*opened));
  // What can be refused is refused before minutes of reading.
  SX_TRY(check_ids(allowed));
  SX_TRY(check_output_file(options.html, checkpoint));
  SX_TRY(check_output_file(context.common.output, checkpoint));
  std::unique_ptr<Checkpoint> reference;
  if (!options.against.empty()) {
    SX_ASSIGN(const std::filesystem::path other, find_model(options.against));
    SX_ASSIGN(reference, Checkpoint::open(other));
    SX_TRY(check_output_file(options.html, *reference));
    SX_TRY(check_output_file(context.common.output, *reference));
  }
  Progress progress("checking");
  DiagnoseOptions wanted;
  wanted.quick = options.quick;
  wanted.progress = [&](int64_t done, int64_t all) { progress.update(done, all, options.model); };
  const auto pool = make_pool(context.common);
  Diagnosis diagnosis = diagnose(checkpoint, wanted, *pool);
  Progress::erase_shown();
  add_binding(checkpoint, diagnosis);
  if (!options.write_lock)
    add_findings(
        diagnosis,
        check_lock(checkpoint, options.quick ? LockDepth::kFingerprint : LockDepth::kEveryByte,
                   diagnosis));
  Examined out{std::move(diagnosis), std::nullopt, std::nullopt};
  if (reference != nullptr) {
    out.against = compare_with(checkpoint, *reference, *pool);
    add_findings(out.diagnosis, out.against->findings);
  }
  if (!options.engine.empty()) {
    SX_ASSIGN(out.predictions, predict(options.engine, checkpoint, out.diagnosis));
    for (const EnginePrediction& p : *out.predictions)
      for (Finding& finding : out.diagnosis.findings)
        if (!p.tensor.empty() && finding.tensor == p.tensor)
          finding.engines.try_emplace(p.engine, p.effect + ": " + p.symptom);
  }
  out.diagnosis.summary.seconds = seconds_since(start_us);  // opening included
  // Last, so that its verdict is the whole one.
  if (options.write_lock) SX_TRY(write_lock(checkpoint, out.diagnosis, SX_VERSION));
  return out;
}

std::string page_of(const DoctorOptions& options, const Examined& examined) {
  ReportComparisons beside;
  if (examined.predictions) {
    beside.engine = options.engine;
    beside.predictions = *examined.predictions;
  }
  if (examined.against) beside.against = &*examined.against;
  return html_report(examined.diagnosis, beside);
}

Result<int> run_doctor(Context& context, const DoctorOptions& options) {
  if (options.list_checks) return print_checks(context);
  if (options.model.empty())
    return fail_at(at_field("MODEL"), Code::kUsage,
                   "doctor needs a MODEL (a directory, a snapshot, a .safetensors file or a name); "
                   "--list-checks needs none");
  SX_TRY(check_page_path(options.html, context.common.output));
  if (options.write_lock && options.quick)
    return fail_at(at_field("--write-lock"), Code::kUsage,
                   "--write-lock stores a verdict on every byte, which --quick does not read");
  SX_ASSIGN(const Examined examined, examine(context, options));
  const Diagnosis& diagnosis = examined.diagnosis;
  // Before the report: where the page cannot be written, there is an error and nothing else.
  if (!options.html.empty()) SX_TRY(write_page(options.html, page_of(options, examined)));
  if (context.common.json) {
    Json document = json_report(diagnosis);
    document["version"] = SX_VERSION;
    if (examined.against) document["against"] = against_json(*examined.against);
    if (examined.predictions) document["engine"] = json_report(*examined.predictions);
    context.out.document(document);
  } else {
    context.out.write(
        text_report(diagnosis, {.color = talk_style().color && context.out.is_terminal(),
                                .details = context.common.verbose}));
    if (examined.predictions) context.out.write(text_report(options.engine, *examined.predictions));
    if (examined.against) print_against(*examined.against, context.common.verbose, context.out);
  }
  return status_of(diagnosis, options.strict);
}

}  // namespace

void add_doctor(Program& program, Context& context) {
  auto options = std::make_shared<DoctorOptions>();
  Command command = add_command(
      program, context, "doctor", "what is wrong with a checkpoint",
      "  sextant doctor MODEL                     every check on every byte\n"
      "  sextant doctor MODEL --quick             headers, configs and scalars only\n"
      "  sextant doctor MODEL --strict            warnings are a failure as well (status 1)\n"
      "  sextant doctor MODEL --against BF16      each weight held against a reference\n"
      "  sextant doctor MODEL --html report.html  the same with charts\n"
      "  sextant doctor MODEL --engine vllm       what that engine would do with it\n"
      "  sextant doctor MODEL --json | jq .findings\n"
      "  sextant doctor --list-checks             every check, its threshold and its reason\n\n"
      "Status 0: healthy, or warnings without --strict; 1: warnings under --strict; 2: errors;\n"
      "3: not readable.");
  command.option("MODEL", &options->model, "directory, snapshot, .safetensors file, or name");
  command.option("--engine", &options->engine, "what this engine would make of it",
                 {.value = "NAME", .choices = engine_names()});
  command.option("--against", &options->against, "compare every weight with this copy of the model",
                 {.value = "REFERENCE"});
  command.option("--html", &options->html, "write the report as one self-contained page",
                 {.value = "FILE"});
  command.flag("--quick", &options->quick, "read headers, configs and scalars only");
  command.flag("--strict", &options->strict, "status 1 on warnings");
  command.flag("--list-checks", &options->list_checks, "print every check and exit");
  command.flag("--write-lock", &options->write_lock,
               "store hashes and the verdict beside the model");
  add_allow_option(command, context.common);
  command.run([&context, options] { return run_doctor(context, *options); });
}

}  // namespace sextant
