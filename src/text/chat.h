// Chat templates: the Jinja subset of serving.md 4.1 with Python's meaning, bounded in steps, depth
// and output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "io/ordered_json.h"

namespace sextant {

struct TemplateLimits {
  int64_t max_source_bytes = 1 << 20;
  int64_t max_steps = 2'000'000;
  int64_t max_output_bytes = 16 << 20;
  int max_depth = 100;  // nesting of expressions, statements and macro calls
};

class ChatTemplate {
 public:
  // Syntax errors, unknown filters and statements outside the subset are refused here, with line
  // and column (kInput).
  static Result<ChatTemplate> compile(std::string_view source, const TemplateLimits& limits = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // variables: an object; messages, tools, add_generation_prompt, bos_token ... as transformers
  // passes them. raise_exception gives kInput with the template's message. now_s: seconds since the
  // epoch for strftime_now, UTC; nullopt: the clock.
  Result<std::string> render(const Json& variables,
                             std::optional<int64_t> now_s = std::nullopt) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The template of a model directory (chat_template.jinja, or tokenizer_config.json: a string or a
// list of named ones) with the special tokens templates may name (bos_token, eos_token, ...).
// nullopt where the model has none.
struct ModelChat {
  std::string source;
  Json special_tokens;  // {"bos_token": "<s>", ...}
};
Result<std::optional<ModelChat>> find_model_chat(const std::filesystem::path& model_dir);

}  // namespace sextant
