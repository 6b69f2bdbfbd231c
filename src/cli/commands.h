// The commands, one file each. Every function adds its command to the program and, when that is
// chosen, leaves its action in the context.
#pragma once

#include "cli/common.h"

namespace sextant {

void add_run(CLI::App& program, Context& context);
void add_quantize(CLI::App& program, Context& context);
void add_inspect(CLI::App& program, Context& context);
void add_compare(CLI::App& program, Context& context);
void add_eval(CLI::App& program, Context& context);
void add_tokenize(CLI::App& program, Context& context);
void add_bench(CLI::App& program, Context& context);
void add_version(CLI::App& program, Context& context);
void add_help(CLI::App& program, Context& context);
void add_completion(CLI::App& program, Context& context);

// A command with the options that exist everywhere; `example` lines follow its help.
CLI::App* add_command(CLI::App& program, Context& context, const std::string& name,
                      const std::string& summary, const std::string& examples);

Json version_json();

}  // namespace sextant
