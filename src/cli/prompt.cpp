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

Result<std::vector<int32_t>> encode_prompt(const LoadedModel& loaded, const std::string& text,
                                           const std::string& system, bool raw) {
  SX_ASSIGN(const auto tokenizer, need_tokenizer(loaded));
  std::optional<ChatPrompt> prompt;
  if (!raw) {
    SX_ASSIGN(prompt, ChatPrompt::of_model(loaded.root));
    if (!prompt) {
      if (!system.empty())
        return fail_at(at_file(loaded.root.string()), Code::kUsage,
                       "--system needs a chat template, and {} has none", loaded.root.string());
      note("the model has no chat template: the prompt is continued as it is (as with --raw)");
    }
  }
  return encode_message(*tokenizer, prompt, text, system);
}

Result<std::vector<int32_t>> encode_message(const Tokenizer& tokenizer,
                                            const std::optional<ChatPrompt>& prompt,
                                            const std::string& text, const std::string& system) {
  if (!prompt) return tokenizer.encode(text, {.add_special = true, .parse_special = true});
  if (text.empty()) return fail(Code::kUsage, "the prompt is empty: expected a question or text");
  Json messages = Json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", text}});
  SX_ASSIGN(const std::string rendered, prompt->render_messages(messages, true));
  return tokenizer.encode(rendered);
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
