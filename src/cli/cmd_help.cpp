// `sextant help [COMMAND]`, and how every command is registered.
#include "cli/commands.h"
#include "cli/format.h"

namespace sextant {

Command add_command(Program& program, Context& context, const std::string& name,
                    const std::string& summary, const std::string& examples) {
  Command command = program.add(name, summary, examples.empty() ? "" : "Examples:\n" + examples);
  add_common_options(command, context.common);
  return command;
}

void add_help(Program& program, Context& context) {
  auto topic = std::make_shared<std::string>();
  Command command =
      add_command(program, context, "help", "this text, or all about one command", "");
  command.option("COMMAND", topic.get(), "the command to explain");
  command.run([&program, &context, topic]() -> Result<int> {
    const std::optional<std::string> text =
        topic->empty() ? program.help() : program.help_of(*topic);
    if (!text)
      return fail_at(at_field(*topic), Code::kUsage, "no command \"{}\"; there are {}", *topic,
                     join(program.names(), ", "));
    context.out.write(*text);
    return 0;
  });
}

}  // namespace sextant
