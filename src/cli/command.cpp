#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <type_traits>

#include "cli/format.h"
#include "cli/output.h"

namespace sextant {
namespace {

constexpr size_t kColumnWidth = 32;

// CLI11's help, but the common options come last.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return make_description(app) + make_usage(app, name) + make_positionals(app) + groups_of(*app) +
           make_subcommands(app, mode) + "\n" + make_footer(app);
  }

 private:
  std::string groups_of(const CLI::App& app) const {
    std::vector<std::string> groups = app.get_groups();
    std::stable_partition(groups.begin(), groups.end(),
                          [](const std::string& group) { return group != kCommonGroup; });
    std::string text;
    for (const std::string& group : groups) {
      const std::vector<const CLI::Option*> options =
          app.get_options([&group](const CLI::Option* option) {
            return option->get_group() == group && option->nonpositional();
          });
      if (group.empty() || options.empty()) continue;
      text += make_group(group, false, options);
      if (group != groups.back()) text += "\n";
    }
    return text;
  }
};

// CLI11 would list excluded options in the order of their addresses.
void show_excluded(CLI::Option* option, const CLI::Option* excluded) {
  std::string text = option->get_option_text();
  if (text.empty()) {
    const std::string value = option->get_type_name();
    text = value + (value.empty() ? "" : " ") + "Excludes:";
  }
  option->option_text(text + " " + excluded->get_name());
}

void exclude(CLI::App& app, CLI::Option* option, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    CLI::Option* other = app.get_option(name);
    option->excludes(other);
    show_excluded(option, other);
    show_excluded(other, option);
  }
}

// What is wrong with a value before CLI11 converts it, in our words; empty where it is a number.
template <class Number>
std::string number_fault(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // CLI11 would read a leading zero as octal.
  const size_t digits = text.starts_with('-') ? 1 : 0;
  const bool octal = std::is_integral_v<Number> && text.size() > digits + 1 && text[digits] == '0';
  if (error == std::errc::result_out_of_range && end == text.data() + text.size())
    return fmt::format("expected a number that this option can hold, found {}", text);
  if (error == std::errc() && end == text.data() + text.size() && !octal) return {};
  const char* kind = std::is_floating_point_v<Number> ? "a number"
                     : std::is_signed_v<Number>       ? "a whole number"
                                                      : "a whole number from 0 on";
  return fmt::format("expected {}, found {}", kind, text);
}

template <class T>
void check_number(CLI::Option* option, const T*) {
  if constexpr (std::is_arithmetic_v<T>) option->check(number_fault<T>);
}
template <class T>
void check_number(CLI::Option* option, const std::optional<T>*) {
  check_number(option, static_cast<const T*>(nullptr));
}

// An empty name or path is a variable that a script did not set: passed over in silence, the
// command would do something else than it was asked for.
std::string empty_fault(const std::string& text) {
  return text.empty() ? "expected a value, found an empty one" : "";
}

// CLI11 reads "--html= --strict" as --html with the value --strict.
Status check_equals(const CLI::App& program, int argc, char** argv) {
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with("--") || word.find('=') + 1 != word.size()) continue;
    const std::string name(word.substr(0, word.size() - 1));
    return fail_at(at_field(name), Code::kUsage,
                   "{}: expected a value after \"=\", found none; see {} --help", one_line(name),
                   program.get_name());
  }
  return {};
}

// The command on the line that was parsed, else the program.
const CLI::App& parsed_command(const CLI::App& program) {
  const std::vector<CLI::App*> given = program.get_subcommands();
  return given.empty() ? program : *given.back();
}

tl::unexpected<Error> usage_error(const CLI::App& program, const CLI::ParseError& error) {
  const CLI::App& command = parsed_command(program);
  // "-inf" where a number is required: it looks like an option, so the number is missing.
  std::string rest;
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError))
    for (const std::string& word : command.remaining())
      rest += fmt::format("{} {}", rest.empty() ? ", and there is no option" : ",", word);
  return fail(Code::kUsage, "{}; see {}{} --help", one_line(error.what() + rest),
              program.get_name(), &command == &program ? "" : " " + command.get_name());
}

}  // namespace

void Command::alias(const std::string& name) { app_->alias(name); }

void Command::flag(const std::string& names, bool* value, const std::string& help,
                   const OptionSpec& spec) {
  CLI::Option* added = app_->add_flag(names, *value, help)->group(spec.group);
  exclude(*app_, added, spec.excludes);
  add_info(*added, false, spec);
}

void Command::option(const std::string& names, Target target, const std::string& help,
                     const OptionSpec& spec) {
  CLI::Option* added =
      std::visit([&](auto* value) { return app_->add_option(names, *value, help); }, target);
  added->type_name(spec.value)->required(spec.required)->group(spec.group);
  std::visit([&](auto* value) { check_number(added, value); }, target);
  if (!spec.may_be_empty) added->check(empty_fault);
  if (spec.range) added->check(CLI::Range(spec.range->min, spec.range->max).description(""));
  if (!spec.choices.empty()) added->check(CLI::IsMember(spec.choices));
  if (spec.repeatable) added->expected(1)->take_all()->allow_extra_args(false);
  exclude(*app_, added, spec.excludes);
  add_info(*added, true, spec);
}

void Command::run(Action action) {
  app_->callback([chosen = chosen_, action = std::move(action)] { *chosen = action; });
}

void Command::add_info(const CLI::Option& option, bool takes_value, const OptionSpec& spec) {
  if (spec.group.empty()) return;  // hidden
  OptionInfo info{{}, option.get_description(), takes_value, spec.choices};
  for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  if (!info.names.empty()) {
    info_->options.push_back(std::move(info));
    return;
  }
  info_->choices.insert(info_->choices.end(), spec.choices.begin(), spec.choices.end());
  if (option.get_name() == "MODEL") info_->takes_model = true;
}

Program::Program(const std::string& name, const std::string& summary, const std::string& version,
                 const std::string& footer)
    : app_(std::make_unique<CLI::App>(summary, name)), root_{name, summary, {}, {}, false} {
  app_->formatter(std::make_shared<HelpFormatter>());  // commands inherit it
  app_->get_formatter()->column_width(kColumnWidth);
  app_->set_version_flag("--version", version, "what this build is");
  app_->set_help_flag("-h,--help", "this text");
  app_->require_subcommand(0, 1);
  app_->footer(footer);
}

Program::~Program() = default;

Command Program::root() { return {app_.get(), &root_, &chosen_}; }

Command Program::add(const std::string& name, const std::string& summary,
                     const std::string& footer) {
  CLI::App* app = app_->add_subcommand(name, summary);
  app->footer(footer);  // else the program's is inherited
  Command command(app, &commands_.emplace_back(CommandInfo{name, summary, {}, {}, false}),
                  &chosen_);
  command.add_info(*app->set_help_flag("-h,--help", "this text")->group(kCommonGroup), false, {});
  return command;
}

std::vector<std::string> Program::names() const {
  std::vector<std::string> names;
  for (const CommandInfo& command : commands_) names.push_back(command.name);
  return names;
}

std::string Program::help() const {
  // Not app_->help(): that shows the command on the line, which may be `help`.
  return app_->get_formatter()->make_help(app_.get(), app_->get_name(), CLI::AppFormatMode::Normal);
}

std::optional<std::string> Program::help_of(const std::string& command) const {
  const CLI::App* app = find(command);
  if (app == nullptr) return std::nullopt;
  return app->help(app_->get_name());
}

Result<Parsed> Program::parse(int argc, char** argv) {
  SX_TRY(check_command(argc, argv));
  SX_TRY(check_equals(*app_, argc, argv));
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    return Parsed{fmt::format("{} {}\n", app_->get_name(), version.what()), {}};
  } catch (const CLI::CallForHelp&) {
    const CLI::App& shown = parsed_command(*app_);
    return Parsed{&shown == app_.get() ? help() : shown.help(app_->get_name()), {}};
  } catch (const CLI::ParseError& error) {
    return usage_error(*app_, error);
  }
  return Parsed{{}, chosen_};
}

// A first word that is no command gets a sentence with the commands there are.
Status Program::check_command(int argc, char** argv) const {
  if (argc < 2 || argv[1][0] == '-') return {};
  const std::string word = argv[1];
  if (find(word) != nullptr) return {};
  // Names the command line keeps for later versions: not a slip of the user's.
  static constexpr std::array<std::string_view, 6> kLater = {"calibrate",  "convert", "dequantise",
                                                             "dequantize", "repair",  "serve"};
  if (std::find(kLater.begin(), kLater.end(), word) != kLater.end())
    return fail_at(at_field(word), Code::kUsage, "{} is not in this version; there are {}", word,
                   join(names(), ", "));
  const std::vector<std::string> close = close_matches(word, names());
  return fail_at(at_field(word), Code::kUsage, "unknown command \"{}\"{}; there are {}", word,
                 close.empty() ? "" : ": did you mean " + join(close, " or ") + "?",
                 join(names(), ", "));
}

const CLI::App* Program::find(const std::string& command) const {
  for (const CLI::App* app : app_->get_subcommands([](const CLI::App*) { return true; }))
    if (app->check_name(command)) return app;
  return nullptr;
}

}  // namespace sextant
