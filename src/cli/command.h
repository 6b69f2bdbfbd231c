// What a command is to the parser of arguments: flags and options bound to variables, and an
// action. Owns how they are read, shown by --help and listed for completion; knows no command and
// no option but -h and --version. CLI11, which does the work, stays in command.cpp: each file that
// includes it takes many seconds longer to compile.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace sextant {

inline constexpr const char* kOwnGroup = "Options";
inline constexpr const char* kCommonGroup = "Options of every command";  // the last of the help

// The value is the exit status (0, or 1 where what was asked does not hold).
using Action = std::function<Result<int>()>;

// Where a value goes. It must live as long as the Program; an action that owns it sees to that.
using Target =
    std::variant<std::string*, int*, int64_t*, float*, std::vector<std::string>*,
                 std::optional<std::string>*, std::optional<int>*, std::optional<uint64_t>*,
                 std::optional<float>*, std::optional<double>*>;

struct IntRange {
  int64_t min = 0;
  int64_t max = 0;
};

// What may be given, and how the help shows it. A flag has a group and excludes only.
struct OptionSpec {
  std::string value = {};  // what the help calls the value; a positional has its own name
  std::optional<IntRange> range = {};
  std::vector<std::string> choices = {};
  bool required = false;
  bool repeatable = false;                 // each time adds a value
  bool may_be_empty = false;               // a text; an empty name or path is a slip
  std::string group = kOwnGroup;           // "": not in the help
  std::vector<std::string> excludes = {};  // names of options that were added before
};

// For completion.
struct OptionInfo {
  std::vector<std::string> names;  // with their dashes; none for a positional
  std::string help;
  bool takes_value = false;
  std::vector<std::string> choices;
};

struct CommandInfo {
  std::string name;
  std::string help;
  std::vector<OptionInfo> options;
  std::vector<std::string> choices;  // of a positional with fixed values
  bool takes_model = false;
};

// A command while it is set up: a reference into its Program.
class Command {
 public:
  void alias(const std::string& name);
  // names: "-q,--quiet".
  void flag(const std::string& names, bool* value, const std::string& help,
            const OptionSpec& spec = {});
  // names: "-o,--output", or "MODEL" for a positional.
  void option(const std::string& names, Target target, const std::string& help,
              const OptionSpec& spec = {});
  void run(Action action);

 private:
  friend class Program;
  Command(CLI::App* app, CommandInfo* info, Action* chosen)
      : app_(app), info_(info), chosen_(chosen) {}
  void add_info(const CLI::Option& option, bool takes_value, const OptionSpec& spec);

  CLI::App* app_;
  CommandInfo* info_;
  Action* chosen_;
};

// What a command line asks for.
struct Parsed {
  std::string text;  // of -h or --version: to be shown in place of everything else
  Action action;     // of the chosen command; none where the line has no command
};

class Program {
 public:
  // footer: the last lines of the help.
  Program(const std::string& name, const std::string& summary, const std::string& version,
          const std::string& footer);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Command root();  // options before the command
  Command add(const std::string& name, const std::string& summary, const std::string& footer);

  const std::deque<CommandInfo>& commands() const { return commands_; }
  std::vector<std::string> names() const;  // of the commands
  std::string help() const;
  std::optional<std::string> help_of(const std::string& command) const;

  // Reads the arguments into the targets; an error is kUsage.
  Result<Parsed> parse(int argc, char** argv);

 private:
  Status check_command(int argc, char** argv) const;
  const CLI::App* find(const std::string& command) const;  // by name or alias

  std::unique_ptr<CLI::App> app_;
  CommandInfo root_;
  std::deque<CommandInfo> commands_;  // does not move what a Command refers to
  Action chosen_;
};

}  // namespace sextant
