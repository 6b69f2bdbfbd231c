// Where everything that the program says goes: results to standard output or to the file of -o, and
// talk (errors, warnings, notes) to standard error. The one place that turns an Error into a line,
// a JSON document and an exit status. A reader that went away (EPIPE) makes further writes no-ops;
// any other failed write is an error of the whole command. A file given with -o is written under a
// temporary name and renamed by finish(), so it is never half there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/core.h>

#include "base/result.h"
#include "cli/format.h"
#include "io/ordered_json.h"

namespace sextant {

class Output {
 public:
  Output() = default;
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  Status open(const std::string& path);  // "" and "-": standard output
  void write(std::string_view text);
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    write(fmt::format(format, std::forward<Args>(args)...));
  }
  void document(const Json& json);     // the one document of --json
  void use_lines() { lines_ = true; }  // documents on one line: the command prints several
  void json_line(const Json& json);    // one object a line
  void flush();
  bool reader_gone() const { return reader_gone_; }
  bool is_terminal() const;
  Status finish();  // everything written and, for -o, in place
  void discard();  // what was not written yet and the file of -o; further text goes to the terminal

 private:
  int fd_ = 1;
  std::string path_;
  std::string target_;  // what finish() renames the temporary file to
  std::string temporary_;
  std::string buffer_;
  std::string failure_;
  bool reader_gone_ = false;
  bool lines_ = false;
};

// Of --html: a file that is not where the report itself goes (output: the value of -o).
Status check_page_path(const std::string& page, const std::string& output);
// Writes a file whole.
Status write_page(const std::string& page, std::string_view text);

// How talk looks. Set once, after the options were read.
struct TalkStyle {
  bool color = false;
  bool quiet = false;
  bool verbose = false;
};
void set_talk_style(const TalkStyle& style);
const TalkStyle& talk_style();

void say_line(std::string_view line);  // to standard error, over a progress bar if there is one
void say_warning(std::string_view text);
void say_note(std::string_view text);  // not with --quiet
template <class... Args>
void note(fmt::format_string<Args...> format, Args&&... args) {
  say_note(fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  say_warning(fmt::format(format, std::forward<Args>(args)...));
}

Json error_json(const Error& error);        // {"code", "status", "message", "where"}
int error_exit_status(const Error& error);  // 130 or 143 for kCancelled
// The error line, and with json the document; returns the exit status.
int report_error(const Error& error, bool json, Output& out);

// Line ends and tabs become spaces, what else a terminal would obey is shown (io/quote.h).
std::string one_line(std::string_view text);

}  // namespace sextant
