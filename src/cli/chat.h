// The chat on a terminal: reads lines, keeps the conversation, streams answers. Ctrl-C stops the
// answer only; at the prompt a second one, or Ctrl-D, leaves.
#pragma once

#include <string>
#include <vector>

#include "cli/common.h"
#include "cli/generate.h"
#include "cli/prompt.h"

namespace sextant {

struct ChatOptions {
  std::string system;
  Request request;  // all but the prompt
  std::vector<std::string> stops;
};

// The exit status: 0, or 130 when left by Ctrl-C.
Result<int> run_chat(Context& context, const LoadedModel& loaded, Generator& generator,
                     const ChatPrompt& prompt, const ChatOptions& options, Totals& totals);

}  // namespace sextant
