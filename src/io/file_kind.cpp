#include "io/file_kind.h"

#include <cstdint>

namespace sextant {
namespace {

struct Magic {
  std::string_view bytes;
  std::string_view kind;
};

using std::string_view_literals::operator""sv;

constexpr Magic kMagics[] = {
    {"version https://git-lfs"sv,
     "a Git LFS pointer: the file itself was not downloaded (run `git lfs pull` in its "
     "repository)"},
    {"PK\x03\x04"sv,
     "a zip archive, as PyTorch writes .bin and .pt files: convert it to safetensors first"},
    {"PK\x05\x06"sv, "an empty zip archive"},
    {"\x80\x02"sv, "a Python pickle, which is never read: convert it to safetensors first"},
    {"\x80\x03"sv, "a Python pickle, which is never read: convert it to safetensors first"},
    {"\x80\x04\x95"sv, "a Python pickle, which is never read: convert it to safetensors first"},
    {"\x80\x05\x95"sv, "a Python pickle, which is never read: convert it to safetensors first"},
    {"GGUF"sv, "a GGUF file"},
    {"FUGG"sv, "a big-endian GGUF file"},
    {"\x89HDF\r\n\x1a\n"sv, "an HDF5 file"},
    {"\x93NUMPY"sv, "a NumPy .npy file"},
    {"\x1f\x8b"sv, "gzip data: decompress it first"},
    {"\x28\xb5\x2f\xfd"sv, "Zstandard data: decompress it first"},
    {"\xfd"
     "7zXZ\0"sv,
     "xz data: decompress it first"},
    {"BZh"sv, "bzip2 data: decompress it first"},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7-Zip archive"},
    {"\x7f"
     "ELF"sv,
     "an ELF program or library"},
    {"%PDF-"sv, "a PDF document"},
    {"\x89PNG"sv, "a PNG image"},
    {"SQLite format 3\0"sv, "an SQLite database"},
};

bool starts_with_no_case(std::string_view text, std::string_view lower) {
  if (text.size() < lower.size()) return false;
  for (size_t i = 0; i < lower.size(); ++i) {
    const char c = text[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c) != lower[i]) return false;
  }
  return true;
}

// ONNX has no magic: a protobuf whose field 1 (ir_version, varint) is small and whose field 2
// (producer_name, a string) follows.
bool looks_like_onnx(std::string_view head) {
  return head.size() > 4 && head[0] == 0x08 && head[1] > 0 && head[1] < 32 && head[2] == 0x12;
}

}  // namespace

std::optional<std::string_view> recognize_file(std::string_view head) {
  for (const Magic& magic : kMagics)
    if (head.starts_with(magic.bytes)) return magic.kind;
  if (head.size() >= 262 && head.substr(257, 5) == "ustar") return "a tar archive: unpack it first";
  std::string_view text = head;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  while (!text.empty() && (text[0] == ' ' || text[0] == '\n' || text[0] == '\r' || text[0] == '\t'))
    text.remove_prefix(1);
  for (const std::string_view mark : {"<!doctype", "<html", "<head", "<body"})
    if (starts_with_no_case(text, mark))
      return "an HTML page, probably an error page saved in its place: download it again";
  if (text.starts_with("<?xml"))
    return "an XML document, probably an error answer saved in its place: download it again";
  if (looks_like_onnx(head)) return "an ONNX model";
  return std::nullopt;
}

}  // namespace sextant
