// One line from a terminal, with editing and a history of the lines before: arrows, Home, End, the
// usual Ctrl keys, pasted text with line ends. Draws on standard error, since standard output has
// results only. The terminal is put back whatever happens but SIGKILL.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sextant {

class LineEditor {
 public:
  enum class Outcome : uint8_t { kLine, kInterrupt, kEnd, kSignal };
  struct Answer {
    Outcome outcome = Outcome::kLine;
    std::string line;
  };

  Answer read(std::string_view prompt);

 private:
  Answer edit(std::string_view prompt);
  Answer read_plain(std::string_view prompt);
  std::vector<std::string> history_;
};

// The text being edited, as keys change it; apart from the terminal, for tests. The cursor is
// always between characters.
class EditBuffer {
 public:
  void insert(std::string_view text);
  void erase_before();
  void erase_at();
  void erase_word_before();
  void erase_to_end() { text_.resize(cursor_); }
  void erase_to_start();
  void left();
  void right();
  void home() { cursor_ = 0; }
  void end() { cursor_ = text_.size(); }
  void set(std::string text);
  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }

 private:
  size_t before() const;  // where the character before the cursor begins
  size_t after() const;   // where the character at the cursor ends
  std::string text_;
  size_t cursor_ = 0;
};

}  // namespace sextant
