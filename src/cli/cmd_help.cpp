// `sextant help [COMMAND]`, and how every command is registered.
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/format.h"

namespace sextant {

CLI::App* add_command(CLI::App& program, Context& context, const std::string& name,
                      const std::string& summary, const std::string& examples) {
  CLI::App* app = program.add_subcommand(name, summary);
  app->set_help_flag("-h,--help", "this text")->group(kCommonGroup);
  app->get_formatter()->column_width(32);
  app->footer(examples.empty() ? "" : "Examples:\n" + examples);  // else the program's is inherited
  add_common_options(*app, context.common);
  return app;
}

void add_help(CLI::App& program, Context& context) {
  auto topic = std::make_shared<std::string>();
  CLI::App* app = add_command(program, context, "help", "this text, or all about one command", "");
  app->add_option("COMMAND", *topic, "the command to explain")->type_name("");
  app->callback([&program, &context, topic] {
    context.action = [&program, &context, topic]() -> Result<int> {
      if (topic->empty()) {
        // Not program.help(): that shows the command being run, which is this one.
        context.out.write(
            program.get_formatter()->make_help(&program, "sextant", CLI::AppFormatMode::Normal));
        return 0;
      }
      std::vector<std::string> names;
      for (const CLI::App* command : program.get_subcommands([](CLI::App*) { return true; })) {
        if (command->check_name(*topic)) {
          context.out.write(command->help("sextant"));
          return 0;
        }
        names.push_back(command->get_name());
      }
      return fail_at(at_field(*topic), Code::kUsage, "no command \"{}\"; there are {}", *topic,
                     join(names, ", "));
    };
  });
}

}  // namespace sextant
