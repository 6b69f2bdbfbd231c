// What every command shares: the options that exist everywhere, the context a command runs in, and
// small readers of arguments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "cli/output.h"

namespace sextant {

struct CommonOptions {
  bool json = false;
  bool quiet = false;
  bool verbose = false;
  int threads = 0;  // 0: one a processor
  std::string isa;
  std::string device = "cpu";
  std::vector<std::string> policies;
  std::vector<std::string> allow;  // of commands that load a model
  std::string input_scales;        // of commands that run one: for policy a4:warmup
  bool warmup = false;
  bool mmap = false;
  std::optional<std::string> profile;
  std::string color = "auto";
  std::string log_level = "off";
  std::optional<uint64_t> seed;
  std::string output;
};

struct Context {
  CommonOptions common;
  Output out;
};

// Adds the options that exist everywhere, in this group of the help ("": not shown).
void add_common_options(Command command, CommonOptions& common,
                        const std::string& group = kCommonGroup);
// --allow, for commands that load a model.
void add_allow_option(Command command, CommonOptions& common);
// Puts the policies of a file, one a line ("#" begins a comment), in the place of "@FILE".
Status read_policy_files(CommonOptions& common);
// What the options mean beyond their syntax: device and mapping that this build has not.
Status check_common_options(const CommonOptions& common);
// Of a gate's option: a number from 0 on.
Status check_gate_option(const char* name, std::optional<double> gate);
std::shared_ptr<ThreadPool> make_pool(const CommonOptions& common);

// All of a file, or of standard input for "-"; bounded.
Result<std::string> read_text(const std::string& path, int64_t max_bytes = int64_t{256} << 20);
// Token ids separated by spaces, commas or line ends, or a JSON array (also {"ids": [...]}).
Result<std::vector<int32_t>> parse_ids(std::string_view text, std::string_view name);
Result<std::vector<int32_t>> read_ids(const std::string& path);

}  // namespace sextant
