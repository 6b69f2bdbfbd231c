#include "cli/chat.h"

#include <algorithm>

#include "cli/line_editor.h"
#include "cli/signals.h"

namespace sextant {
namespace {

constexpr const char* kChatHelp =
    "  /reset         forget the conversation\n"
    "  /system TEXT   set the system message and start over\n"
    "  /help          this text\n"
    "  /exit          leave (as Ctrl-D does)\n"
    "Ctrl-C stops an answer; twice at the prompt it leaves. A line that ends in \\ goes on.";

class Chat {
 public:
  Chat(Context& context, const LoadedModel& loaded, Generator& generator, const ChatPrompt& prompt,
       const ChatOptions& options, Totals& totals)
      : context_(context),
        loaded_(loaded),
        generator_(generator),
        prompt_(prompt),
        options_(options),
        totals_(totals),
        system_(options.system) {
    start_over();
  }

  Result<int> run() {
    if (!context_.common.quiet)
      say_line("A chat with " + loaded_.root.filename().string() +
               "; /help lists what you can do.");
    bool interrupted_once = false;
    for (;;) {
      LineEditor::Answer entered = read_entry();
      switch (entered.outcome) {
        case LineEditor::Outcome::kEnd: return 0;
        case LineEditor::Outcome::kSignal: return fail(Code::kCancelled, "terminated");
        case LineEditor::Outcome::kInterrupt:
          if (interrupted_once) return exit_status(Code::kCancelled);
          interrupted_once = true;
          say_line("Ctrl-C again, or Ctrl-D, leaves.");
          continue;
        case LineEditor::Outcome::kLine: break;
      }
      interrupted_once = false;
      if (entered.line.find_first_not_of(" \t\n") == std::string::npos) continue;
      if (entered.line.front() == '/') {
        if (command(entered.line)) return 0;
        continue;
      }
      SX_TRY(turn(entered.line));
      if (context_.out.reader_gone()) return 0;
      if (interrupt_signal() == SIGTERM) return fail(Code::kCancelled, "terminated");
      clear_interrupt();
    }
  }

 private:
  // One line, or several where each but the last ends in a backslash.
  LineEditor::Answer read_entry() {
    LineEditor::Answer entered = editor_.read("> ");
    while (entered.outcome == LineEditor::Outcome::kLine && entered.line.ends_with('\\')) {
      entered.line.back() = '\n';
      LineEditor::Answer more = editor_.read(". ");
      if (more.outcome != LineEditor::Outcome::kLine) return more;
      entered.line += more.line;
    }
    return entered;
  }

  void start_over() {
    messages_ = Json::array();
    known_ids_.clear();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
    generator_.reset();
  }

  // True when the chat ends.
  bool command(const std::string& line) {
    if (line == "/exit" || line == "/quit" || line == "/bye") return true;
    if (line == "/reset") {
      start_over();
      say_line("The conversation is forgotten.");
    } else if (line.rfind("/system ", 0) == 0) {
      system_ = line.substr(8);
      start_over();
      say_line("A new conversation with this system message.");
    } else {
      if (line != "/help") say_line("There is no command " + one_line(line) + ". There are:");
      say_line(kChatHelp);
    }
    return false;
  }

  // One question and its answer. What goes wrong with one is shown, and the chat goes on.
  Status turn(const std::string& text) {
    messages_.push_back({{"role", "user"}, {"content", text}});
    Result<Answer> answer = ask();
    if (!answer) {
      messages_.erase(messages_.size() - 1);
      if (answer.error().code == Code::kInternal) return tl::unexpected<Error>(answer.error());
      report_error(answer.error(), false, context_.out);
      if (answer.error().where.field == "prompt") say_line("/reset starts a new conversation.");
      return {};
    }
    messages_.push_back({{"role", "assistant"}, {"content", answer->text}});
    totals_.add(*answer);
    if (!context_.common.quiet) {
      Totals one;
      one.add(*answer);
      say_line(fmt::format("[{} tokens, {:.1f} tokens/s{}]", answer->n_generated,
                           one.tokens_per_s(),
                           answer->finish_reason == "cancelled" ? ", stopped"
                           : answer->finish_reason == "length"  ? ", the limit was reached"
                                                                : ""));
    }
    return {};
  }

  // What was fed and generated stays as it is, so that its keys and values serve again: text put
  // back together from tokens need not become the same tokens. Only where the rest begins with a
  // special token, since there the text before has no say in how it is cut.
  Result<std::vector<int32_t>> encode(const std::string& rendered) const {
    if (!known_ids_.empty() && rendered.starts_with(known_text_)) {
      SX_ASSIGN(const std::vector<int32_t> rest,
                loaded_.tokenizer->encode(std::string_view(rendered).substr(known_text_.size())));
      if (!rest.empty() && loaded_.tokenizer->is_special(rest.front())) {
        std::vector<int32_t> ids = known_ids_;
        ids.insert(ids.end(), rest.begin(), rest.end());
        return ids;
      }
    }
    return loaded_.tokenizer->encode(rendered);
  }

  void remember(const std::string& rendered, std::vector<int32_t> ids, const Answer& answer) {
    known_text_ = rendered + answer.text;
    known_ids_ = std::move(ids);
    known_ids_.insert(known_ids_.end(), answer.ids.begin(), answer.ids.end());
    const bool hides_a_token =
        std::any_of(answer.ids.begin(), answer.ids.end(),
                    [this](int32_t id) { return loaded_.tokenizer->is_special(id); });
    if (answer.cut_by_stop || hides_a_token) known_ids_.clear();
  }

  Result<Answer> ask() {
    SX_ASSIGN(const std::string rendered, prompt_.render_messages(messages_, true));
    SX_ASSIGN(const std::vector<int32_t> ids, encode(rendered));
    auto answer = generator_.answer(ids, options_.request, options_.stops,
                                    [this](int32_t, std::string_view text) {
                                      context_.out.write(text);
                                      context_.out.flush();
                                      return !context_.out.reader_gone();
                                    });
    context_.out.write("\n");
    context_.out.flush();
    if (answer) remember(rendered, ids, *answer);
    return answer;
  }

  Context& context_;
  const LoadedModel& loaded_;
  Generator& generator_;
  const ChatPrompt& prompt_;
  const ChatOptions& options_;
  Totals& totals_;
  std::string system_;
  Json messages_;
  std::string known_text_;  // the conversation so far as it was rendered, and its tokens
  std::vector<int32_t> known_ids_;
  LineEditor editor_;
};

}  // namespace

Result<int> run_chat(Context& context, const LoadedModel& loaded, Generator& generator,
                     const ChatPrompt& prompt, const ChatOptions& options, Totals& totals) {
  return Chat(context, loaded, generator, prompt, options, totals).run();
}

}  // namespace sextant
