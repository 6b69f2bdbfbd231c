// From what the user said to token ids: messages rendered with the model's chat template, or plain
// text; and messages as files give them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/load_model.h"
#include "io/ordered_json.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace sextant {

// A compiled chat template with the special tokens that it may name.
class ChatPrompt {
 public:
  // nullopt where the model has no template.
  static Result<std::optional<ChatPrompt>> of_model(const std::filesystem::path& root);
  static Result<ChatPrompt> of_file(const std::filesystem::path& jinja_file);

  // variables win over the model's special tokens; "messages" must be among them.
  Result<std::string> render(const Json& variables) const;
  Result<std::string> render_messages(const Json& messages, bool add_generation_prompt) const;

 private:
  ChatPrompt(ChatTemplate compiled, Json special_tokens)
      : template_(std::make_shared<ChatTemplate>(std::move(compiled))),
        special_tokens_(std::move(special_tokens)) {}
  std::shared_ptr<const ChatTemplate> template_;
  Json special_tokens_;
};

// The ids that a model is given for one message of a user, rendered with its chat template; the
// text as it stands where it has none (said in a note) or with raw.
Result<std::vector<int32_t>> encode_prompt(const LoadedModel& loaded, const std::string& text,
                                           const std::string& system, bool raw);

// The same with the template at hand: none continues the text.
Result<std::vector<int32_t>> encode_message(const Tokenizer& tokenizer,
                                            const std::optional<ChatPrompt>& prompt,
                                            const std::string& text, const std::string& system);

// Template variables from JSON: an array is the messages, an object has "messages" and whatever
// else the template takes.
Result<Json> chat_variables(const JsonValue& json, std::string_view name);

}  // namespace sextant
