// The border of the template interpreter: compiles and renders, turns its exceptions into Errors,
// and finds a model's template.
#include "text/chat.h"

#include <chrono>
#include <exception>
#include <new>

#include "io/mapped_file.h"
#include "text/jinja_interpreter.h"

namespace sextant {
namespace {

Error to_error(const jinja::TemplateError& error, std::string_view stage) {
  if (error.kind == jinja::ErrorKind::kRaise) return Error{Code::kInput, error.message, {}};
  std::string text = fmt::format("chat template: {} error", jinja::error_kind_name(error.kind));
  if (error.line > 0) text += fmt::format(" in line {}", error.line);
  text += fmt::format(" ({}): {}", stage, error.message);
  return Error{Code::kInput, std::move(text), {}};
}

// A special token of tokenizer_config.json: a string, or an object with "content".
std::optional<std::string> token_text(const JsonValue& value) {
  if (value.is_string()) return value.as_string();
  const JsonValue* content = value.find("content");
  if (content != nullptr && content->is_string()) return content->as_string();
  return std::nullopt;
}

Result<std::optional<std::string>> template_of(const JsonValue& config, const std::string& file) {
  const JsonValue* found = config.find("chat_template");
  if (found == nullptr || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->as_string();
  if (!found->is_array()) {
    return fail_at({file, {}, "chat_template", {}}, Code::kInput,
                   "{}: chat_template: expected a string or a list of named templates, found {}",
                   file, found->kind_name());
  }
  std::optional<std::string> first;
  for (const JsonValue& entry : found->array()) {
    const JsonValue* name = entry.find("name");
    const JsonValue* source = entry.find("template");
    if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string()) {
      return fail_at({file, {}, "chat_template", {}}, Code::kInput,
                     "{}: chat_template: each entry needs a name and a template", file);
    }
    if (name->as_string() == "default") return source->as_string();
    if (!first) first = source->as_string();
  }
  return first;
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Body body;
  TemplateLimits limits;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::compile(std::string_view source, const TemplateLimits& limits) {
  if (static_cast<int64_t>(source.size()) > limits.max_source_bytes) {
    return fail(Code::kInput, "chat template: {} bytes, more than {}", source.size(),
                limits.max_source_bytes);
  }
  try {
    auto impl = std::make_unique<Impl>();
    impl->limits = limits;
    impl->body = jinja::parse(source, limits);
    return ChatTemplate(std::move(impl));
  } catch (const jinja::TemplateError& error) {
    return tl::unexpected<Error>(to_error(error, "parsing"));
  } catch (const std::bad_alloc&) {
    return fail(Code::kResources, "chat template: out of memory while parsing");
  }
}

Result<std::string> ChatTemplate::render(const Json& variables,
                                         std::optional<int64_t> now_s) const {
  if (!variables.is_object())
    return fail(Code::kInput, "chat template: the variables must be an object");
  const int64_t now = now_s ? *now_s
                            : std::chrono::duration_cast<std::chrono::seconds>(
                                  std::chrono::system_clock::now().time_since_epoch())
                                  .count();
  try {
    jinja::Interpreter interpreter(impl_->limits, now);
    return interpreter.run(impl_->body, jinja::from_json(variables));
  } catch (const jinja::TemplateError& error) {
    return tl::unexpected<Error>(to_error(error, "rendering"));
  } catch (const std::bad_alloc&) {
    return fail(Code::kResources, "chat template: out of memory while rendering");
  }
}

Result<std::optional<ModelChat>> find_model_chat(const std::filesystem::path& model_dir) {
  constexpr int64_t kMaxBytes = 1 << 20;
  ModelChat chat;
  chat.special_tokens = Json::object();
  std::optional<std::string> source;
  const std::filesystem::path config_path = model_dir / "tokenizer_config.json";
  std::error_code ec;
  if (std::filesystem::exists(config_path, ec)) {
    SX_ASSIGN(const JsonValue config, read_json(config_path));
    SX_ASSIGN(source, template_of(config, config_path.string()));
    for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token", "sep_token",
                             "cls_token", "mask_token"}) {
      const JsonValue* token = config.find(name);
      if (token == nullptr) continue;
      if (auto text = token_text(*token)) chat.special_tokens[name] = *text;
    }
  }
  const std::filesystem::path jinja_path = model_dir / "chat_template.jinja";
  if (std::filesystem::exists(jinja_path, ec)) {
    SX_ASSIGN(source, read_text_file(jinja_path, kMaxBytes));
  }
  if (!source) return std::nullopt;
  chat.source = std::move(*source);
  return chat;
}

}  // namespace sextant
