// Operating errors as values. Result<T> is tl::expected<T, Error>; an Error carries one of about
// ten codes, each mapped in one table (error_status) to the exit status of cli.md section 2, and
// one sentence: what was expected, what was found, where, what to do. Programmer errors are not
// Results: they are SX_CHECK (check.h). The library never prints and never exits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include <fmt/core.h>

namespace sextant {

enum class Code : uint8_t {
  kGate,         // what was asked to hold does not: a bound, a gate, --strict          exit 1
  kModel,        // the model has errors; a load refused because of them                exit 2
  kInput,        // an input cannot be read or is malformed                             exit 3
  kUnsupported,  // readable, but not supported: architecture, dialect, policy, ISA     exit 4
  kResources,    // not enough memory, disk, descriptors                                exit 5
  kUsage,        // wrong usage                                                         exit 64
  kInternal,     // a defect of ours                                                    exit 70
  kCancelled,    // interrupted                                                         exit 130
};

// Where an error is, as far as it is known; empty fields are left out of messages and JSON.
struct Where {
  std::string file;
  std::string tensor;
  std::string field;
  std::optional<int64_t> offset;  // byte offset in file
};

struct Error {
  Code code = Code::kInternal;
  std::string text;
  Where where;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// The name of a code as JSON shows it, and the exit status of the command line.
std::string_view code_name(Code code);
int exit_status(Code code);

// fail(Code::kInput, "expected {}, found {}", a, b): the error to return from a function that
// returns Result.
template <class... Args>
[[nodiscard]] tl::unexpected<Error> fail(Code code, fmt::format_string<Args...> format,
                                         Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...), {}});
}
template <class... Args>
[[nodiscard]] tl::unexpected<Error> fail_at(Where where, Code code,
                                            fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(
      Error{code, fmt::format(format, std::forward<Args>(args)...), std::move(where)});
}

}  // namespace sextant

// SX_TRY(expr): returns the error of a Result from the enclosing function. SX_ASSIGN(auto x, expr):
// binds its value otherwise.
#define SX_CONCAT_(a, b) a##b
#define SX_CONCAT(a, b) SX_CONCAT_(a, b)
#define SX_TRY(expr)                                                     \
  do {                                                                   \
    if (auto sx_r_ = (expr); !sx_r_)                                     \
      return tl::unexpected<::sextant::Error>(std::move(sx_r_).error()); \
  } while (false)
#define SX_ASSIGN(decl, expr) SX_ASSIGN_(SX_CONCAT(sx_result_, __LINE__), decl, expr)
#define SX_ASSIGN_(tmp, decl, expr)                                          \
  auto tmp = (expr);                                                         \
  if (!tmp) return tl::unexpected<::sextant::Error>(std::move(tmp).error()); \
  decl = std::move(*tmp)
