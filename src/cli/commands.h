// The commands, one file each. Every function adds its command to the program, with the action that
// main runs when it is chosen.
#pragma once

#include "cli/common.h"

namespace sextant {

void add_run(Program& program, Context& context);
void add_quantize(Program& program, Context& context);
void add_doctor(Program& program, Context& context);
void add_inspect(Program& program, Context& context);
void add_explain(Program& program, Context& context);
void add_trace(Program& program, Context& context);
void add_compare(Program& program, Context& context);
void add_calibrate(Program& program, Context& context);
void add_eval(Program& program, Context& context);
void add_tokenize(Program& program, Context& context);
void add_bench(Program& program, Context& context);
void add_version(Program& program, Context& context);
void add_help(Program& program, Context& context);
void add_completion(Program& program, Context& context);

// A command with the options that exist everywhere; `example` lines follow its help.
Command add_command(Program& program, Context& context, const std::string& name,
                    const std::string& summary, const std::string& examples);

Json version_json();

}  // namespace sextant
