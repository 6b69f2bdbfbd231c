// `sextant completion bash|zsh|fish`: completion scripts generated from the same tree of commands
// and options that the parser uses, so they cannot differ from it.
#include "cli/commands.h"
#include "cli/format.h"

namespace sextant {
namespace {

std::string words_of(const CommandInfo& command) {
  std::vector<std::string> words = command.choices;
  for (const OptionInfo& option : command.options)
    words.insert(words.end(), option.names.begin(), option.names.end());
  return join(words, " ");
}

constexpr std::string_view kModelsDirectory =
    "${SEXTANT_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/sextant}/models";

std::string bash_script(const Program& program) {
  const std::deque<CommandInfo>& commands = program.commands();
  const std::vector<std::string> names = program.names();
  std::string out =
      "# bash completion of sextant: source <(sextant completion bash)\n_sextant() {\n";
  out +=
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= "
      "word\n"
      "  COMPREPLY=()\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case $word in -*) ;; *) command=$word; break ;; esac\n"
      "  done\n"
      "  if [ -z \"$command\" ]; then\n";
  out += fmt::format("    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$cur\"))\n",
                     join(names, " "));
  out += "    return\n  fi\n  case $command:$prev in\n";
  for (const CommandInfo& command : commands)
    for (const OptionInfo& option : command.options) {
      if (!option.takes_value) continue;
      std::vector<std::string> keys;
      for (const std::string& name : option.names) keys.push_back(command.name + ":" + name);
      if (option.choices.empty())
        out += fmt::format("    {}) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n",
                           join(keys, "|"));
      else
        out += fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;\n",
                           join(keys, "|"), join(option.choices, " "));
    }
  out += "  esac\n  case $command in\n";
  for (const CommandInfo& command : commands)
    out += fmt::format("    {}) words=\"{}\" ;;\n", command.name,
                       command.name == "help" ? join(names, " ") : words_of(command));
  out += "  esac\n";
  out += fmt::format(
      "  case $cur in\n    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
      "    *) COMPREPLY=($(compgen -W \"${{words//-*/}}\" -- \"$cur\") $(compgen -f -- \"$cur\")\n"
      "        $(cd \"{}\" 2>/dev/null && compgen -d -- \"$cur\")) ;;\n  esac\n}}\n"
      "complete -o filenames -F _sextant sextant\n",
      kModelsDirectory);
  return out;
}

// Text inside single quotes of a shell.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Inside zsh's _arguments, brackets and colons have a meaning.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_script(const Program& program) {
  const std::deque<CommandInfo>& commands = program.commands();
  std::string out =
      "#compdef sextant\n# zsh completion of sextant: sextant completion zsh > "
      "\"${fpath[1]}/_sextant\"\n_sextant() {\n  local -a commands models\n  commands=(\n";
  for (const CommandInfo& command : commands)
    out += fmt::format("    {}\n", shell_quoted(command.name + ":" + zsh_text(command.help)));
  out += fmt::format("  )\n  models=(\"{}\"/*(N/:t))\n", kModelsDirectory);
  out +=
      "  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
      "  case $words[2] in\n";
  for (const CommandInfo& command : commands) {
    out += fmt::format("    {})\n      _arguments", command.name);
    for (const OptionInfo& option : command.options)
      for (const std::string& name : option.names) {
        std::string spec = fmt::format("*{}[{}]", name, zsh_text(option.help));
        if (option.takes_value)
          spec += option.choices.empty() ? ":value:_files"
                                         : fmt::format(":value:({})", join(option.choices, " "));
        out += " \\\n        " + shell_quoted(spec);
      }
    std::string rest = "*:file:_files";
    if (command.takes_model) rest = "*:model:{_files; compadd -a models}";
    if (!command.choices.empty()) rest = fmt::format("*:value:({})", join(command.choices, " "));
    if (command.name == "help") rest = "*:command:{_describe command commands}";
    out += " \\\n        '1:command:' " + shell_quoted(rest) + "\n      ;;\n";
  }
  out += "  esac\n}\n_sextant \"$@\"\n";
  return out;
}

std::string fish_script(const Program& program) {
  const std::deque<CommandInfo>& commands = program.commands();
  std::string out =
      "# fish completion of sextant: sextant completion fish > "
      "~/.config/fish/completions/sextant.fish\n";
  const std::vector<std::string> names = program.names();
  for (const CommandInfo& command : commands)
    out += fmt::format("complete -c sextant -n __fish_use_subcommand -f -a {} -d {}\n",
                       command.name, shell_quoted(command.help));
  for (const CommandInfo& command : commands) {
    const std::string when =
        fmt::format("complete -c sextant -n '__fish_seen_subcommand_from {}'", command.name);
    for (const OptionInfo& option : command.options) {
      std::string line = when;
      for (const std::string& name : option.names)
        line += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.takes_value) line += " -r";
      if (!option.choices.empty()) line += " -f -a " + shell_quoted(join(option.choices, " "));
      out += line + " -d " + shell_quoted(option.help) + "\n";
    }
    if (!command.choices.empty())
      out += when + " -f -a " + shell_quoted(join(command.choices, " ")) + "\n";
    if (command.name == "help") out += when + " -f -a " + shell_quoted(join(names, " ")) + "\n";
    if (command.takes_model)
      out += when +
             " -a '(set -q SEXTANT_HOME; and set -l d $SEXTANT_HOME; or set -l d "
             "~/.local/share/sextant; ls $d/models 2>/dev/null)'\n";
  }
  return out;
}

}  // namespace

void add_completion(Program& program, Context& context) {
  auto shell = std::make_shared<std::string>();
  Command command =
      add_command(program, context, "completion", "completion script for a shell",
                  "  source <(sextant completion bash)\n"
                  "  sextant completion zsh > \"${fpath[1]}/_sextant\"\n"
                  "  sextant completion fish > ~/.config/fish/completions/sextant.fish");
  command.option("SHELL", shell.get(), "bash, zsh or fish",
                 {.choices = {"bash", "zsh", "fish"}, .required = true});
  command.run([&program, &context, shell]() -> Result<int> {
    const std::string script = *shell == "bash"  ? bash_script(program)
                               : *shell == "zsh" ? zsh_script(program)
                                                 : fish_script(program);
    if (context.common.json)
      context.out.document(Json{{"shell", *shell}, {"script", script}});
    else
      context.out.write(script);
    return 0;
  });
}

}  // namespace sextant
