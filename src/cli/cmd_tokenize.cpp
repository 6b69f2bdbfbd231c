// `sextant tokenize`: text to ids and pieces, ids to text, messages to a prompt; one answer, or
// with --jsonl an answer for every line of standard input.
#include <unistd.h>

#include <iostream>

#include "cli/commands.h"
#include "cli/model_path.h"
#include "cli/prompt.h"
#include "cli/table.h"

namespace sextant {
namespace {

constexpr size_t kMaxLineBytes = size_t{256} << 20;

struct TokenizeOptions {
  std::string model;
  std::optional<std::string> text;
  bool ids_only = false;
  bool special = false;
  bool decode = false;
  bool jsonl = false;
  std::string chat_file;
};

class TokenizeCommand {
 public:
  TokenizeCommand(Context& context, const TokenizeOptions& options)
      : context_(context), options_(options) {}

  Result<int> run() {
    SX_TRY(load());
    if (options_.jsonl) return run_lines();
    if (!options_.chat_file.empty()) return run_chat();
    std::string text;
    if (options_.text) {
      text = *options_.text;
    } else {
      SX_ASSIGN(text, read_text("-"));
    }
    return options_.decode ? run_decode(text) : run_encode(text);
  }

 private:
  Status load() {
    SX_ASSIGN(const std::filesystem::path path, find_model(options_.model));
    if (path.extension() == ".jinja") {
      if (options_.decode || (!options_.jsonl && options_.chat_file.empty()))
        return fail_at(at_file(path.string()), Code::kUsage,
                       "{} is a chat template: give --chat FILE or --jsonl, or a model directory "
                       "or tokenizer.json to tokenize",
                       path.string());
      SX_ASSIGN(ChatPrompt prompt, ChatPrompt::of_file(path));
      chat_.emplace(std::move(prompt));
      return {};
    }
    root_ = std::filesystem::is_directory(path) ? path : path.parent_path();
    // Rendering alone needs no tokenizer; lines that do are told so.
    auto tokenizer = Tokenizer::from_file(path);
    const bool rendering = !options_.chat_file.empty() && !options_.ids_only;
    if (!tokenizer && !rendering) return tl::unexpected<Error>(std::move(tokenizer).error());
    if (tokenizer) tokenizer_ = std::move(*tokenizer);
    if (!options_.chat_file.empty()) SX_TRY(need_chat());
    return {};
  }

  // The model's template is compiled when the first conversation comes.
  Status need_chat() {
    if (chat_) return {};
    SX_ASSIGN(auto prompt, ChatPrompt::of_model(root_));
    if (!prompt)
      return fail_at(at_file(root_.string()), Code::kInput,
                     "{} has no chat template: expected chat_template.jinja, or chat_template in "
                     "tokenizer_config.json",
                     root_.string());
    chat_ = std::move(prompt);
    return {};
  }

  Result<std::vector<int32_t>> encode(std::string_view text, bool special) const {
    if (tokenizer_ == nullptr)
      return fail(Code::kInput,
                  "{} is a chat template, which has no tokens: give a model directory",
                  options_.model);
    return tokenizer_->encode(text, {.add_special = special, .parse_special = true});
  }

  Result<std::string> decode(std::span<const int32_t> ids) const {
    if (tokenizer_ == nullptr)
      return fail(Code::kInput,
                  "{} is a chat template, which has no tokens: give a model directory",
                  options_.model);
    for (const int32_t id : ids)
      if (id < 0 || id >= tokenizer_->n_vocab())
        return fail(Code::kInput, "expected token ids from 0 to {}, found {}",
                    tokenizer_->n_vocab() - 1, id);
    return tokenizer_->decode(ids);
  }

  void print_ids(std::span<const int32_t> ids) {
    std::string line;
    for (const int32_t id : ids) line += fmt::format("{}{}", line.empty() ? "" : " ", id);
    context_.out.write(line + "\n");
  }

  Result<int> run_encode(std::string_view text) {
    SX_ASSIGN(const std::vector<int32_t> ids, encode(text, options_.special));
    if (context_.common.json) {
      Json pieces = Json::array();
      for (const int32_t id : ids) pieces.push_back(tokenizer_->token(id));
      context_.out.document(Json{{"ids", ids}, {"pieces", pieces}, {"count", ids.size()}});
    } else if (options_.ids_only) {
      print_ids(ids);
    } else {
      Table table({{"id", Table::Align::kRight}, {"piece"}});
      for (const int32_t id : ids)
        table.add({fmt::format("{}", id), one_line(tokenizer_->token(id))});
      context_.out.write(table.text());
    }
    return 0;
  }

  Result<int> run_decode(std::string_view text) {
    SX_ASSIGN(const std::vector<int32_t> ids,
              parse_ids(text, options_.text ? "the argument" : "standard input"));
    SX_ASSIGN(const std::string decoded, decode(ids));
    if (context_.common.json)
      context_.out.document(Json{{"text", decoded}, {"count", ids.size()}});
    else
      context_.out.write(decoded + (context_.out.is_terminal() ? "\n" : ""));
    return 0;
  }

  Result<int> run_chat() {
    SX_ASSIGN(const std::string source, read_text(options_.chat_file));
    SX_ASSIGN(const JsonValue json, parse_json(source, options_.chat_file));
    SX_ASSIGN(const Json variables, chat_variables(json, options_.chat_file));
    SX_ASSIGN(const std::string text, chat_->render(variables));
    std::vector<int32_t> ids;
    if (tokenizer_ != nullptr) {
      SX_ASSIGN(ids, encode(text, options_.special));
    }
    if (context_.common.json) {
      Json document = {{"text", text}};
      if (tokenizer_ != nullptr) {
        document["ids"] = ids;
        document["count"] = ids.size();
      }
      context_.out.document(document);
    } else if (options_.ids_only) {
      print_ids(ids);
    } else {
      context_.out.write(text + (context_.out.is_terminal() ? "\n" : ""));
    }
    return 0;
  }

  Result<Json> answer_line(std::string_view line) {
    SX_ASSIGN(const JsonValue json, parse_json(line, "the line"));
    const JsonValue* text = json.find("text");
    const JsonValue* ids = json.find("ids");
    const JsonValue* messages = json.find("messages");
    const int n_kinds = (text != nullptr) + (ids != nullptr) + (messages != nullptr);
    if (n_kinds != 1)
      return fail(
          Code::kInput,
          "expected an object with one of \"text\", \"ids\" and \"messages\", found {}",
          json.is_object() ? fmt::format("{} of them", n_kinds) : std::string(json.kind_name()));
    if (text != nullptr) {
      if (!text->is_string())
        return fail_at(at_field("text"), Code::kInput, "expected text to be a string, found {}",
                       text->kind_name());
      SX_ASSIGN(const std::vector<int32_t> encoded, encode(text->as_string(), options_.special));
      return Json{{"ids", encoded}};
    }
    if (ids != nullptr) {
      SX_ASSIGN(const std::vector<int32_t> list, parse_ids(ids->to_json().dump(), "ids"));
      SX_ASSIGN(const std::string decoded, decode(list));
      return Json{{"text", decoded}};
    }
    SX_TRY(need_chat());
    SX_ASSIGN(const Json variables, chat_variables(json, "the line"));
    SX_ASSIGN(const std::string rendered, chat_->render(variables));
    if (!options_.ids_only) return Json{{"text", rendered}};
    SX_ASSIGN(const std::vector<int32_t> encoded, encode(rendered, options_.special));
    return Json{{"ids", encoded}};
  }

  Result<int> run_lines() {
    std::string line;
    while (!context_.out.reader_gone() && std::getline(std::cin, line)) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      Result<Json> answer =
          line.size() > kMaxLineBytes
              ? Result<Json>(fail(Code::kInput, "a line of {} bytes, above the limit of {}",
                                  line.size(), kMaxLineBytes))
              : answer_line(line);
      context_.out.json_line(answer ? *answer : Json{{"error", error_json(answer.error())}});
    }
    return 0;
  }

  Context& context_;
  const TokenizeOptions& options_;
  std::filesystem::path root_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatPrompt> chat_;
};

}  // namespace

void add_tokenize(Program& program, Context& context) {
  auto options = std::make_shared<TokenizeOptions>();
  Command command = add_command(
      program, context, "tokenize", "text to token ids and back; chat templates",
      "  sextant tokenize MODEL \"Hello there\"            ids and pieces\n"
      "  echo \"Hello\" | sextant tokenize MODEL --ids     ids only\n"
      "  sextant tokenize MODEL --decode \"1 2 3\"         ids back to text\n"
      "  sextant tokenize MODEL --chat messages.json     the prompt a conversation becomes\n"
      "  sextant tokenize template.jinja --jsonl         a {\"messages\": ...} a line\n\n"
      "Without TEXT standard input is read, to its end and as it is. A --chat file with an array\n"
      "of messages is rendered with the generation prompt; one with an object as it says.");
  command.option("MODEL", &options->model, "model, tokenizer.json, or a .jinja file to render",
                 {.required = true});
  command.option("TEXT", &options->text, "the text (default: standard input)",
                 {.may_be_empty = true});
  command.flag("--ids", &options->ids_only, "ids only");
  command.flag("--special", &options->special, "add BOS and the like");
  command.flag("--decode", &options->decode, "from ids to text");
  command.option("--chat", &options->chat_file,
                 "render the messages of a JSON file (- for standard input)",
                 {.value = "FILE", .excludes = {"--decode"}});
  command.flag("--jsonl", &options->jsonl, "a JSON object a line, in and out",
               {.excludes = {"--decode", "--chat"}});
  command.run([&context, options] { return TokenizeCommand(context, *options).run(); });
}

}  // namespace sextant
