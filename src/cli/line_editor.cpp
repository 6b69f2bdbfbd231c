#include "cli/line_editor.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include <fmt/core.h>

#include "cli/signals.h"
#include "cli/table.h"

namespace sextant {
namespace {

constexpr size_t kMaxEditedBytes = 1 << 20;
constexpr size_t kMaxHistory = 1000;

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Raw mode for as long as it lives; pasted text arrives between marks.
class RawMode {
 public:
  RawMode() {
    if (tcgetattr(0, &before_) != 0) return;
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    active_ = tcsetattr(0, TCSADRAIN, &raw) == 0;
    if (active_) send("\x1b[?2004h");
  }
  ~RawMode() {
    if (!active_) return;
    send("\x1b[?2004l");
    tcsetattr(0, TCSADRAIN, &before_);
  }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;
  bool active() const { return active_; }

  static void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::write(2, text.data(), text.size());
      if (n <= 0 && errno != EINTR) return;
      if (n > 0) text.remove_prefix(static_cast<size_t>(n));
    }
  }

 private:
  termios before_ = {};
  bool active_ = false;
};

// -1 at the end of input, -2 when a signal came. Waiting is in short pieces: a signal between the
// look at the flag and a blocking read would otherwise wait for the next key.
int read_byte() {
  constexpr int kPieceMs = 100;
  unsigned char byte = 0;
  for (;;) {
    if (interrupted()) return -2;
    pollfd input = {0, POLLIN, 0};
    const int ready = ::poll(&input, 1, kPieceMs);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t n = ::read(0, &byte, 1);
    if (n == 1) return byte;
    if (n < 0 && errno == EINTR) continue;
    return -1;
  }
}

// What follows ESC: "[A", "[3~", "OH"; empty for a lone ESC with something else behind it.
std::string read_escape() {
  std::string sequence;
  for (int i = 0; i < 8; ++i) {
    const int byte = read_byte();
    if (byte < 0) break;
    sequence += static_cast<char>(byte);
    if (i > 0 && ((byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || byte == '~'))
      break;
    if (i == 0 && byte != '[' && byte != 'O') break;
  }
  return sequence;
}

int width_of_terminal() {
  winsize size = {};
  if (ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 8) return size.ws_col;
  return 80;
}

// The part of the text around the cursor that fits beside the prompt, on one line.
void draw(std::string_view prompt, const EditBuffer& buffer) {
  const int64_t room =
      std::max<int64_t>(8, width_of_terminal() - display_width(std::string(prompt)) - 1);
  std::string shown = buffer.text();
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  size_t begin = 0;
  while (display_width(shown.substr(begin, buffer.cursor() - begin)) > room) {
    ++begin;
    while (begin < shown.size() && continues_character(shown[begin])) ++begin;
  }
  size_t end = shown.size();
  while (display_width(shown.substr(begin, end - begin)) > room) {
    --end;
    while (end > begin && continues_character(shown[end])) --end;
  }
  const int64_t back =
      display_width(shown.substr(buffer.cursor(), end - std::min(end, buffer.cursor())));
  std::string line = fmt::format("\r{}{}\x1b[K", prompt, shown.substr(begin, end - begin));
  if (back > 0) line += fmt::format("\x1b[{}D", back);
  RawMode::send(line);
}

}  // namespace

size_t EditBuffer::before() const {
  size_t at = cursor_;
  while (at > 0 && continues_character(text_[--at])) {
  }
  return at;
}
size_t EditBuffer::after() const {
  size_t at = std::min(cursor_ + 1, text_.size());
  while (at < text_.size() && continues_character(text_[at])) ++at;
  return at;
}
void EditBuffer::insert(std::string_view text) {
  if (text_.size() + text.size() > kMaxEditedBytes) return;
  text_.insert(cursor_, text);
  cursor_ += text.size();
}
void EditBuffer::erase_before() {
  const size_t at = before();
  text_.erase(at, cursor_ - at);
  cursor_ = at;
}
void EditBuffer::erase_at() { text_.erase(cursor_, after() - cursor_); }
void EditBuffer::erase_to_start() {
  text_.erase(0, cursor_);
  cursor_ = 0;
}
void EditBuffer::erase_word_before() {
  while (cursor_ > 0 && text_[before()] == ' ') erase_before();
  while (cursor_ > 0 && text_[before()] != ' ') erase_before();
}
void EditBuffer::left() { cursor_ = before(); }
void EditBuffer::right() { cursor_ = after(); }
void EditBuffer::set(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

LineEditor::Answer LineEditor::read(std::string_view prompt) {
  const PollSignals poll;
  const char* term = std::getenv("TERM");
  const bool plain = term == nullptr || std::string_view(term) == "dumb" || isatty(2) != 1;
  Answer answer = plain ? read_plain(prompt) : edit(prompt);
  if (answer.outcome == Outcome::kLine && !answer.line.empty() &&
      (history_.empty() || history_.back() != answer.line)) {
    history_.push_back(answer.line);
    if (history_.size() > kMaxHistory) history_.erase(history_.begin());
  }
  return answer;
}

// A terminal without cursor movement: its own line discipline edits.
LineEditor::Answer LineEditor::read_plain(std::string_view prompt) {
  RawMode::send(prompt);
  std::string line;
  for (;;) {
    const int byte = read_byte();
    if (byte == -2) {
      const bool is_interrupt = interrupt_signal() == SIGINT;
      if (is_interrupt) clear_interrupt();
      RawMode::send("\n");
      return {is_interrupt ? Outcome::kInterrupt : Outcome::kSignal, {}};
    }
    if (byte == -1) return {line.empty() ? Outcome::kEnd : Outcome::kLine, line};
    if (byte == '\n') return {Outcome::kLine, line};
    if (line.size() < kMaxEditedBytes) line += static_cast<char>(byte);
  }
}

LineEditor::Answer LineEditor::edit(std::string_view prompt) {
  const RawMode raw;
  if (!raw.active()) return read_plain(prompt);
  EditBuffer buffer;
  size_t place = history_.size();  // in the history; its size: the new line
  std::string unsent;
  bool pasting = false;
  const auto go = [&](size_t to) {
    if (place == history_.size()) unsent = buffer.text();
    place = to;
    buffer.set(place == history_.size() ? unsent : history_[place]);
  };
  const auto leave = [](Outcome outcome, std::string line = {}) {
    RawMode::send("\r\n");
    return Answer{outcome, std::move(line)};
  };
  for (;;) {
    if (!pasting) draw(prompt, buffer);
    const int byte = read_byte();
    if (byte == -2) {
      const bool is_interrupt = interrupt_signal() == SIGINT;
      if (is_interrupt) clear_interrupt();
      return leave(is_interrupt ? Outcome::kInterrupt : Outcome::kSignal);
    }
    if (byte == -1) return leave(Outcome::kEnd);
    if (byte == 0x1b) {
      const std::string key = read_escape();
      if (key == "[200~") pasting = true;
      if (key == "[201~") pasting = false;
      if (key == "[A" && place > 0) go(place - 1);
      if (key == "[B" && place < history_.size()) go(place + 1);
      if (key == "[C") buffer.right();
      if (key == "[D") buffer.left();
      if (key == "[H" || key == "OH" || key == "[1~") buffer.home();
      if (key == "[F" || key == "OF" || key == "[4~") buffer.end();
      if (key == "[3~") buffer.erase_at();
      continue;
    }
    if (pasting || byte >= 0x20) {
      const char c = byte == '\r' ? '\n' : static_cast<char>(byte);
      if (byte == 0x7f && !pasting)
        buffer.erase_before();
      else
        buffer.insert({&c, 1});
      continue;
    }
    switch (byte) {
      case '\r':
      case '\n': return leave(Outcome::kLine, buffer.text());
      case 3: return leave(Outcome::kInterrupt);  // Ctrl-C
      case 4:                                     // Ctrl-D
        if (buffer.text().empty()) return leave(Outcome::kEnd);
        buffer.erase_at();
        break;
      case 1: buffer.home(); break;
      case 2: buffer.left(); break;
      case 5: buffer.end(); break;
      case 6: buffer.right(); break;
      case 8: buffer.erase_before(); break;
      case 11: buffer.erase_to_end(); break;
      case 12: RawMode::send("\x1b[H\x1b[2J"); break;
      case 21: buffer.erase_to_start(); break;
      case 23: buffer.erase_word_before(); break;
      default: break;
    }
  }
}

}  // namespace sextant
