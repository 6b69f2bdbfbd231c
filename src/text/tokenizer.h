// tokenizer.json of the Hugging Face format, and its decoder. Unknown parts are refused by name.
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
#include "io/json.h"

namespace sextant {

struct EncodeOptions {
  bool add_special = false;  // what the post-processor adds: BOS and the like
  bool parse_special =
      true;  // special added tokens in the text become their ids; false: they stay text
};

class Tokenizer {
 public:
  static Result<std::shared_ptr<const Tokenizer>> from_file(
      const std::filesystem::path& path);  // tokenizer.json, or a directory that has one
  static Result<std::shared_ptr<const Tokenizer>> from_json(const JsonValue& json,
                                                            std::string_view name);
  ~Tokenizer();

  // text: any bytes; invalid UTF-8 is read as the tokenizers package would (U+FFFD). Bounded by
  // limits in the implementation.
  Result<std::vector<int32_t>> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const;
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  int64_t n_vocab() const;  // highest id + 1
  std::optional<int32_t> id_of(std::string_view token) const;
  std::string_view token(int32_t id) const;  // as in the file; empty for holes and ids out of range
  bool is_special(int32_t id) const;

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Text as it becomes final: never splits UTF-8. push returns what the id adds (empty while a
// character is incomplete); finish what is left, an incomplete character as U+FFFD as decode()
// would give it.
class StreamDecoder {
 public:
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special);
  std::string push(int32_t id);
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::string added_to(std::string_view text) const;

  std::vector<int32_t> ids_;  // decode window as DecodeStream of the tokenizers package keeps it
  std::string prefix_;        // the text of the first prefix_end_ ids
  size_t prefix_end_ = 0;
};

}  // namespace sextant
