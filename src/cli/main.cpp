// The program: reads the arguments, runs one command, and turns what came of it into output and
// exit status. Nothing else ends the process but signals (signals.h) and failed checks.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <new>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/signals.h"
#include "cli/version.h"

namespace sextant {
namespace {

constexpr const char* kProgramFooter =
    "First steps:\n"
    "  sextant run MODEL \"Why is the sky blue?\"   stream an answer\n"
    "  sextant run MODEL                          chat\n"
    "  sextant quantize SRC DST                   BF16 model to NVFP4\n"
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

void add_commands(CLI::App& program, Context& context) {
  add_run(program, context);
  add_quantize(program, context);
  add_inspect(program, context);
  add_compare(program, context);
  add_eval(program, context);
  add_tokenize(program, context);
  add_bench(program, context);
  add_version(program, context);
  add_help(program, context);
  add_completion(program, context);
}

std::vector<std::string> command_names(CLI::App& program) {
  std::vector<std::string> names;
  for (const CLI::App* app : program.get_subcommands([](CLI::App*) { return true; }))
    names.push_back(app->get_name());
  return names;
}

// A first word that is no command gets a sentence with the commands there are.
Status check_command(CLI::App& program, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return {};
  const std::string word = argv[1];
  for (const CLI::App* app : program.get_subcommands([](CLI::App*) { return true; }))
    if (app->check_name(word)) return {};
  const std::vector<std::string> names = command_names(program);
  const std::vector<std::string> close = close_matches(word, names);
  return fail_at(at_field(word), Code::kUsage, "unknown command \"{}\"{}; there are {}", word,
                 close.empty() ? "" : ": did you mean " + join(close, " or ") + "?",
                 join(names, ", "));
}

Error usage_error(CLI::App& program, const CLI::ParseError& error) {
  std::string command;
  for (const CLI::App* app : program.get_subcommands()) command = " " + app->get_name();
  return {
      Code::kUsage, fmt::format("{}; see sextant{} --help", one_line(error.what()), command), {}};
}

// Parses, then runs the chosen command. The value is the exit status of what went well.
Result<int> parse_and_run(CLI::App& program, Context& context, int argc, char** argv) {
  SX_TRY(check_command(program, argc, argv));
  try {
    program.parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    context.out.print("sextant {}\n", SX_VERSION);
    SX_TRY(context.out.finish());
    return 0;
  } catch (const CLI::CallForHelp&) {
    const CLI::App* shown = &program;
    for (const CLI::App* app : program.get_subcommands()) shown = app;
    context.out.write(shown->help(shown == &program ? "" : "sextant"));
    SX_TRY(context.out.finish());
    return 0;
  } catch (const CLI::ParseError& error) {
    return tl::unexpected<Error>(usage_error(program, error));
  }
  const CommonOptions& common = context.common;
  set_talk_style({wants_color(common.color), common.quiet, common.verbose});
  set_log_level(level_of(common.log_level));
  if (!context.action) {
    say_line(program.help());
    return fail(Code::kUsage, "expected a command: run, quantize, inspect, ... (sextant --help)");
  }
  SX_TRY(check_common_options(common));
  SX_TRY(context.out.open(common.output));
  SX_ASSIGN(const int status, context.action());
  SX_TRY(context.out.finish());
  return status;
}

int run_program(int argc, char** argv) {
  install_signal_handlers();
  set_talk_style({wants_color("auto"), false, false});
  const bool json = wants_json(argc, argv);
  Context context;
  Result<int> result = 0;
  try {
    CLI::App program("sextant - run, make and check NVFP4 language models", "sextant");
    program.set_version_flag("--version", SX_VERSION, "what this build is");
    program.set_help_flag("-h,--help", "this text");
    program.require_subcommand(0, 1);
    program.footer(kProgramFooter);
    program.get_formatter()->column_width(32);
    add_common_options(program, context.common);
    // Accepted before the command as well, but shown with the commands only.
    for (CLI::Option* option :
         program.get_options([](CLI::Option* o) { return o->get_group() == kCommonGroup; }))
      option->group("");
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
