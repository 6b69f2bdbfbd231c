// The program: reads the arguments, runs one command, and turns what came of it into output and
// exit status. Nothing else ends the process but signals (signals.h) and failed checks.
#include <unistd.h>

#include <cstdlib>
#include <new>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/signals.h"
#include "cli/version.h"
#include "io/mapped_file.h"

namespace sextant {
namespace {

constexpr const char* kProgramFooter =
    "First steps:\n"
    "  sextant run MODEL \"Why is the sky blue?\"   stream an answer\n"
    "  sextant run MODEL                          chat\n"
    "  sextant quantize SRC DST                   BF16 model to NVFP4\n"
    "  sextant doctor MODEL                       what is wrong with a checkpoint\n"
    "  sextant inspect MODEL                      what is in a checkpoint\n"
    "  sextant help run                           everything about one command\n"
    "\n"
    "MODEL is a directory in Hugging Face layout, a hub cache snapshot, a .safetensors file,\n"
    "or a name under $SEXTANT_HOME/models (default ~/.local/share/sextant/models).\n"
    "\n"
    "Exit status: 0 done; 1 a gate or bound does not hold; 2 the model has errors; 3 an input\n"
    "cannot be read; 4 not supported; 5 not enough memory or disk; 64 wrong usage; 70 a defect\n"
    "of ours; 130 interrupted; 143 terminated.";

bool wants_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--") return false;
    if (std::string_view(argv[i]) == "--json") return true;
  }
  return false;
}

bool wants_color(const std::string& when) {
  if (when == "always") return true;
  if (when == "never") return false;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no_color != nullptr && *no_color != '\0') return false;
  if (term != nullptr && std::string_view(term) == "dumb") return false;
  return isatty(2) == 1;
}

LogLevel level_of(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  return LogLevel::kOff;
}

void add_commands(Program& program, Context& context) {
  add_run(program, context);
  add_quantize(program, context);
  add_doctor(program, context);
  add_inspect(program, context);
  add_explain(program, context);
  add_trace(program, context);
  add_compare(program, context);
  add_calibrate(program, context);
  add_eval(program, context);
  add_tokenize(program, context);
  add_bench(program, context);
  add_version(program, context);
  add_help(program, context);
  add_completion(program, context);
}

// Parses, then runs the chosen command. The value is the exit status of what went well.
Result<int> parse_and_run(Program& program, Context& context, int argc, char** argv) {
  SX_ASSIGN(const Parsed parsed, program.parse(argc, argv));
  if (!parsed.text.empty()) {
    context.out.write(parsed.text);
    SX_TRY(context.out.finish());
    return 0;
  }
  const CommonOptions& common = context.common;
  set_talk_style({wants_color(common.color), common.quiet, common.verbose});
  set_log_level(level_of(common.log_level));
  if (!parsed.action) {
    say_line(program.help());
    return fail(Code::kUsage, "expected a command: run, quantize, inspect, ... (sextant --help)");
  }
  SX_TRY(read_policy_files(context.common));
  SX_TRY(check_common_options(common));
  SX_TRY(context.out.open(common.output));
  SX_ASSIGN(const int status, parsed.action());
  SX_TRY(context.out.finish());
  return status;
}

int run_program(int argc, char** argv) {
  install_signal_handlers();
  install_sigbus_guard();
  set_talk_style({wants_color("auto"), false, false});
  const bool json = wants_json(argc, argv);
  Context context;
  Result<int> result = 0;
  try {
    Program program("sextant", "sextant - run, make and check NVFP4 language models", SX_VERSION,
                    kProgramFooter);
    // Accepted before the command as well, but shown with the commands only.
    add_common_options(program.root(), context.common, "");
    add_commands(program, context);
    result = parse_and_run(program, context, argc, argv);
  } catch (const std::bad_alloc&) {
    result = fail(Code::kResources,
                  "not enough memory: the system refused an allocation; close other programs or "
                  "take a smaller model or context");
  } catch (const std::exception& exception) {
    result = fail(Code::kInternal,
                  "a defect of sextant: unexpected exception ({}); please report it "
                  "with the command line",
                  exception.what());
  }
  if (result) return *result;
  const int status = report_error(result.error(), json, context.out);
  context.out.flush();
  return status;
}

}  // namespace
}  // namespace sextant

int main(int argc, char** argv) { return sextant::run_program(argc, argv); }
