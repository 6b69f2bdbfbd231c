// `sextant version`: what this build is and which kernels this processor can run.
#include "base/cpu_info.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/version.h"
#include "kernels/ops.h"

namespace sextant {

Json version_json() {
  Json kernels = Json::array();
  for (const Ops* ops : available_ops()) kernels.push_back(ops->name);
  return Json{{"version", SX_VERSION},
              {"commit", SX_COMMIT},
              {"compiler", "g++ " __VERSION__},
              {"build", SX_BUILD_TYPE},
              {"kernels", kernels},
              {"cpu", cpu_info().model_name},
              {"processors", cpu_info().n_threads}};
}

void add_version(Program& program, Context& context) {
  Command command = add_command(program, context, "version", "what this build is", "");
  command.run([&context]() -> Result<int> {
    const Json json = version_json();
    if (context.common.json) {
      context.out.document(json);
      return 0;
    }
    std::vector<std::string> kernels;
    for (const Ops* ops : available_ops()) kernels.emplace_back(ops->name);
    const std::string commit = SX_COMMIT;
    context.out.print("sextant {}{}\n", SX_VERSION, commit.empty() ? "" : " (" + commit + ")");
    context.out.print("compiler   g++ {}, {}\n", __VERSION__, SX_BUILD_TYPE);
    context.out.print("processor  {}, {} usable\n", cpu_info().model_name, cpu_info().n_threads);
    context.out.print("kernels    {}\n", join(kernels, ", "));
    return 0;
  });
}

}  // namespace sextant
