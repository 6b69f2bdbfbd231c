#include "cli/prompt.h"

#include "cli/common.h"

namespace sextant {

Result<std::optional<ChatPrompt>> ChatPrompt::of_model(const std::filesystem::path& root) {
  SX_ASSIGN(auto chat, find_model_chat(root));
  if (!chat) return std::optional<ChatPrompt>{};
  SX_ASSIGN(ChatTemplate compiled, ChatTemplate::compile(chat->source));
  return std::optional<ChatPrompt>(ChatPrompt(std::move(compiled), chat->special_tokens));
}

Result<ChatPrompt> ChatPrompt::of_file(const std::filesystem::path& jinja_file) {
  SX_ASSIGN(const std::string source, read_text(jinja_file.string()));
  SX_ASSIGN(ChatTemplate compiled, ChatTemplate::compile(source));
  return ChatPrompt(std::move(compiled), Json::object());
}

Result<std::string> ChatPrompt::render(const Json& variables) const {
  Json all = special_tokens_.is_object() ? special_tokens_ : Json::object();
  for (const auto& [key, value] : variables.items()) all[key] = value;
  return template_->render(all);
}

Result<std::string> ChatPrompt::render_messages(const Json& messages,
                                                bool add_generation_prompt) const {
  return render(Json{{"messages", messages}, {"add_generation_prompt", add_generation_prompt}});
}

Result<Json> chat_variables(const JsonValue& json, std::string_view name) {
  if (json.is_array()) return Json{{"messages", json.to_json()}, {"add_generation_prompt", true}};
  const JsonValue* messages = json.find("messages");
  if (messages == nullptr || !messages->is_array())
    return fail(Code::kInput,
                "{}: expected an array of messages, or an object with \"messages\", found {}", name,
                json.is_object() ? "an object without such an array" : json.kind_name());
  return json.to_json();
}

}  // namespace sextant
