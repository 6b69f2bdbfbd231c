#include "io/safetensors.h"

#include <algorithm>
#include <new>

#include "base/check.h"
#include "base/checked.h"
#include "io/file_kind.h"
#include "io/quote.h"

namespace sextant {
namespace {

constexpr int64_t kHeadBytes = 512;

template <class... Args>
tl::unexpected<Error> bad(const InputFile& file, int64_t offset, fmt::format_string<Args...> format,
                          Args&&... args) {
  return fail_at({file.path().string(), {}, {}, offset}, Code::kInput, "{}: {}",
                 escape_text(file.path().native()),
                 fmt::format(format, std::forward<Args>(args)...));
}

// The file's first bytes, at most kHeadBytes of them.
Result<std::string> read_head(const InputFile& file) {
  std::string head(static_cast<size_t>(std::min(file.size(), kHeadBytes)), '\0');
  SX_TRY(file.read_at(0, std::as_writable_bytes(std::span<char>(head))));
  return head;
}

uint64_t little_endian_64(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 8; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// What people put in place of a safetensors file, from its first bytes.
std::optional<std::string_view> recognize(std::string_view head) {
  if (const auto kind = recognize_file(head)) return kind;
  if (head.starts_with("{")) return "JSON text (an index file?)";
  const bool printable = std::all_of(head.begin(), head.end(), [](char c) {
    return (c >= 0x20 && c < 0x7F) || c == '\n' || c == '\r' || c == '\t';
  });
  if (printable) return "plain text";
  return std::nullopt;
}

// The header's text, its length checked against file and limit before anything is allocated.
Result<std::string> read_header(const InputFile& file, const SafetensorsLimits& limits) {
  if (file.size() < kSafetensorsLengthBytes)
    return bad(file, 0, "too short for a header length: expected at least {} bytes, found {}{}",
               kSafetensorsLengthBytes, file.size(),
               file.size() == 0 ? " (an empty file, as a failed download or run leaves it)" : "");
  SX_ASSIGN(const std::string head, read_head(file));
  const uint64_t n = little_endian_64(head);
  const auto room = static_cast<uint64_t>(file.size() - kSafetensorsLengthBytes);
  const bool implausible = n > room || n == 0 || head.size() <= 8 || head[8] != '{';
  if (implausible)
    if (const auto kind = recognize(head))
      return bad(file, 0, "not a safetensors file: this is {}", *kind);
  if (n > room)
    return bad(
        file, 0,
        "the header is longer than the file: expected at most {} bytes in a file of {}, found "
        "a header length of {} at byte offset 0",
        room, file.size(), n);
  if (n > static_cast<uint64_t>(limits.max_header_bytes))
    return bad(file, 0,
               "header too large: expected at most {} bytes (limit max_header_bytes), found {}; "
               "split the checkpoint into more files",
               limits.max_header_bytes, n);
  std::string json;
  json.reserve(static_cast<size_t>(n) + 64);  // room for the parser's padding
  json.resize(static_cast<size_t>(n));
  SX_TRY(file.read_at(kSafetensorsLengthBytes, std::as_writable_bytes(std::span<char>(json))));
  return json;
}

}  // namespace

int64_t TensorInfo::n_elements() const {
  const auto n = checked_product(shape);
  SX_CHECK(n.has_value(), "shape of {} overflows", name);
  return *n;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path,
                                              const SafetensorsLimits& limits) {
  try {
    SX_ASSIGN(InputFile file, InputFile::open(path));
    SX_ASSIGN(std::string json, read_header(file, limits));
    auto header = parse_safetensors_header(std::move(json), file.size(), path, limits);
    if (!header) {
      if (path.extension() == ".incomplete")
        header.error().text += " (the name says that the download was not finished)";
      return tl::unexpected(std::move(header).error());
    }
    SX_ASSIGN(MappedFile mapped, MappedFile::map(std::move(file)));
    return SafetensorsFile(std::move(mapped), *std::move(header));
  } catch (const std::bad_alloc&) {
    return fail_at({path.string(), {}, {}, {}}, Code::kResources,
                   "{}: not enough memory for the header", escape_text(path.native()));
  }
}

Status SafetensorsFile::read(const TensorInfo& tensor, int64_t begin,
                             std::span<std::byte> out) const {
  SX_CHECK(begin >= 0 && static_cast<int64_t>(out.size()) <= tensor.n_bytes() - begin,
           "bytes [{}, {} + {}) of {}", begin, begin, out.size(), tensor.n_bytes());
  auto status = file_.input().read_at(tensor.begin + begin, out);
  if (status) return {};
  Error error = std::move(status).error();
  error.where.tensor = tensor.name;
  error.text += fmt::format(", in tensor {}", quote_name(tensor.name));
  return tl::unexpected(std::move(error));
}

}  // namespace sextant
