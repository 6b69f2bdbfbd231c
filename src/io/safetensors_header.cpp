// The header's JSON to tensors: types, sizes and layout, in a fixed order of checks. See
// safetensors.h for the verdicts; opening and mapping is safetensors.cpp.
#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"
#include "io/json_dom.h"
#include "io/object_pieces.h"
#include "io/quote.h"
#include "io/safetensors.h"

namespace sextant {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr int kHeaderDepth = 8;  // an honest header nests three deep

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Everything about one header on its way from text to tensors.
class HeaderReader {
 public:
  HeaderReader(int64_t file_bytes, const std::filesystem::path& path,
               const SafetensorsLimits& limits)
      : file_bytes_(file_bytes),
        path_(path.native()),
        shown_(escape_text(path_)),
        limits_(limits) {}

  Status read(std::string json) {
    out.data_begin = kSafetensorsLengthBytes + static_cast<int64_t>(json.size());
    SX_CHECK(out.data_begin <= file_bytes_, "header of {} bytes in a file of {}", json.size(),
             file_bytes_);
    data_bytes_ = file_bytes_ - out.data_begin;
    if (!read_in_pieces(json)) SX_TRY(read_whole(json));
    return check_layout();
  }

  SafetensorsHeader out;

 private:
  Status read_whole(std::string& json) {
    simdjson::dom::parser parser;
    SX_ASSIGN(const simdjson::dom::object root, parse(parser, json));
    int64_t n_tensors = 0;
    for (const auto [key, value] : root)
      if (key != "__metadata__" && n_tensors++ >= limits_.max_tensors)
        return bad({}, "too many tensors: expected at most {} (limit max_tensors), found more",
                   limits_.max_tensors);
    begin_entries(n_tensors);
    return read_entries(root);
  }

  // A large header without a fault. False where it is small, or where there is one: which of them
  // comes first in the fixed order is for read_whole to say.
  bool read_in_pieces(const std::string& json) {
    if (static_cast<int64_t>(json.size()) <= limits_.parsed_at_once_bytes) return false;
    const auto object = cut_object(json, limits_.parsed_at_once_bytes);
    if (!object || object->n_members > limits_.max_tensors) return false;
    begin_entries(object->n_members);
    simdjson::dom::parser parser;
    std::string text;
    for (const std::string_view piece : object->pieces) {
      text.assign("{").append(piece).append("}");
      const auto root = parse_dom(parser, text, kHeaderDepth);
      if (!root) return false;
      const simdjson::dom::object members = root->get_object().value_unsafe();
      if (members.size() == 0 || !read_entries(members)) return false;
    }
    return true;
  }

  void begin_entries(int64_t n_tensors) {
    out.tensors.clear();
    out.tensors.reserve(static_cast<size_t>(n_tensors));
    out.names.reserve(static_cast<size_t>(n_tensors));
    out.metadata.clear();
    has_metadata_ = false;
  }

  template <class... Args>
  tl::unexpected<Error> bad(std::optional<int64_t> offset, fmt::format_string<Args...> format,
                            Args&&... args) const {
    return fail_at({path_, {}, {}, offset}, Code::kInput, "{}: {}", shown_,
                   fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  tl::unexpected<Error> bad_tensor(std::string_view name, std::string_view field,
                                   std::optional<int64_t> offset,
                                   fmt::format_string<Args...> format, Args&&... args) const {
    return fail_at({path_, std::string(name), std::string(field), offset}, Code::kInput,
                   "{}: tensor {}: {}", shown_, quote_name(name),
                   fmt::format(format, std::forward<Args>(args)...));
  }

  Result<simdjson::dom::object> parse(simdjson::dom::parser& parser, std::string& json) const {
    if (json.empty() || json[0] != '{') {
      const std::string found = json.empty() ? "nothing"
                                : json.starts_with("\xEF\xBB\xBF")
                                    ? "a byte-order mark"
                                    : quote_name(std::string_view(json).substr(0, 16));
      return bad(kSafetensorsLengthBytes,
                 "the header is not a JSON object: expected '{{' at byte offset {}, "
                 "found {}",
                 kSafetensorsLengthBytes, found);
    }
    const auto root = parse_dom(parser, json, kHeaderDepth);
    if (!root) {
      const JsonParseError& error = root.error();
      const int64_t offset = kSafetensorsLengthBytes + static_cast<int64_t>(error.fault.offset);
      return fail_at({path_, {}, {}, offset}, error.code,
                     "{}: the header is not valid JSON: {}, at byte offset {}", shown_,
                     error.fault.text, offset);
    }
    // The specification allows padding with spaces only; JSON would take line ends as well.
    const size_t last = json.find_last_not_of(' ');
    if (json[last] != '}')
      return bad(kSafetensorsLengthBytes + static_cast<int64_t>(last),
                 "expected only spaces behind the header's JSON object, found {} at byte offset {}",
                 quote_name(json.substr(last, 1)),
                 kSafetensorsLengthBytes + static_cast<int64_t>(last));
    return root->get_object().value_unsafe();
  }

  Status read_entries(const simdjson::dom::object& root) {
    for (const auto [key, value] : root) {
      if (key == "__metadata__") {
        if (std::exchange(has_metadata_, true))
          return bad({}, "'__metadata__': duplicate name: expected it once, found two");
        SX_TRY(read_metadata(value));
        continue;
      }
      if (static_cast<int64_t>(key.size()) > limits_.max_name_bytes)
        return bad_tensor(key, {}, {},
                          "name too long: expected at most {} bytes (limit max_name_bytes), "
                          "found {}",
                          limits_.max_name_bytes, key.size());
      const auto idx = static_cast<uint32_t>(out.tensors.size());
      if (out.names.insert(key, idx,
                           [&](uint32_t i) { return std::string_view(out.tensors[i].name); }))
        return bad_tensor(key, {}, {}, "duplicate name: expected every tensor once, found two");
      SX_TRY(read_entry(key, value));
    }
    return {};
  }

  Status read_metadata(const element& value) {
    if (!value.is_object())
      return bad({}, "__metadata__: expected an object of strings, found {}", kind_name(value));
    int64_t n_bytes = 0;
    const simdjson::dom::object entries = value.get_object().value_unsafe();
    for (const auto [key, item] : entries) {
      if (!item.is_string())
        return bad({}, "__metadata__: expected a string for key {}, found {}", quote_name(key),
                   kind_name(item));
      const std::string_view text = item.get_string().value_unsafe();
      n_bytes += static_cast<int64_t>(key.size() + text.size());
      if (n_bytes > limits_.max_metadata_bytes)
        return bad({},
                   "__metadata__ too large: expected at most {} bytes (limit max_metadata_bytes), "
                   "found more",
                   limits_.max_metadata_bytes);
      if (!out.metadata.emplace(key, text).second)
        return bad({}, "__metadata__: expected every key once, found {} twice", quote_name(key));
    }
    return {};
  }

  Status read_entry(std::string_view name, const element& value) {
    if (!value.is_object())
      return bad_tensor(name, {}, {},
                        "expected an object with dtype, shape and data_offsets, found {}",
                        kind_name(value));
    std::optional<element> dtype;
    std::optional<element> shape;
    std::optional<element> offsets;
    const simdjson::dom::object fields = value.get_object().value_unsafe();
    for (const auto [key, item] : fields) {
      std::optional<element>* field = key == "dtype"          ? &dtype
                                      : key == "shape"        ? &shape
                                      : key == "data_offsets" ? &offsets
                                                              : nullptr;
      if (field == nullptr)
        return bad_tensor(name, key, {},
                          "expected only dtype, shape and data_offsets, found the key {}",
                          quote_name(key));
      if (*field)
        return bad_tensor(name, key, {}, "expected every key once, found '{}' twice", key);
      *field = item;
    }
    if (!dtype || !shape || !offsets)
      return bad_tensor(name, {}, {}, "expected dtype, shape and data_offsets, found no {}",
                        !dtype   ? "dtype"
                        : !shape ? "shape"
                                 : "data_offsets");
    TensorInfo& tensor = out.tensors.emplace_back();
    tensor.name = name;
    SX_TRY(read_dtype(*dtype, tensor));
    SX_TRY(read_shape(*shape, tensor));
    SX_TRY(read_offsets(*offsets, tensor));
    return check_size(tensor);
  }

  Status read_dtype(const element& value, TensorInfo& tensor) const {
    if (!value.is_string())
      return bad_tensor(tensor.name, "dtype", {}, "dtype: expected a string, found {}",
                        kind_name(value));
    const std::string_view text = value.get_string().value_unsafe();
    const auto dtype = dtype_from_name(text);
    if (!dtype)
      return bad_tensor(tensor.name, "dtype", {}, "unknown dtype: expected one of {}, found {}",
                        dtype_names(), quote_name(text));
    tensor.dtype = *dtype;
    return {};
  }

  // A whole number from 0 to INT64_MAX, written as one.
  Result<int64_t> read_count(const element& value, const TensorInfo& tensor,
                             std::string_view field) const {
    if (value.type() == element_type::INT64) {
      const int64_t x = value.get_int64().value_unsafe();
      if (x >= 0) return x;
      return bad_tensor(tensor.name, field, {}, "{}: expected whole numbers from 0, found {}",
                        field, x);
    }
    if (value.type() == element_type::UINT64)
      return bad_tensor(tensor.name, field, {},
                        "{} overflow: expected numbers below 2^63, found {}", field,
                        value.get_uint64().value_unsafe());
    if (value.type() == element_type::DOUBLE)
      return bad_tensor(tensor.name, field, {}, "{}: expected whole numbers from 0, found {}",
                        field, value.get_double().value_unsafe());
    return bad_tensor(tensor.name, field, {}, "{}: expected whole numbers from 0, found {}", field,
                      kind_name(value));
  }

  Status read_shape(const element& value, TensorInfo& tensor) const {
    if (!value.is_array())
      return bad_tensor(tensor.name, "shape", {}, "shape: expected an array, found {}",
                        kind_name(value));
    const simdjson::dom::array array = value.get_array().value_unsafe();
    const auto rank = static_cast<int64_t>(array.size());
    if (rank > limits_.max_rank)
      return bad_tensor(tensor.name, "shape", {},
                        "rank too high: expected at most {} dimensions (limit max_rank), found {}",
                        limits_.max_rank, rank);
    tensor.shape.reserve(static_cast<size_t>(rank));
    for (const element extent : array) {
      SX_ASSIGN(const int64_t n, read_count(extent, tensor, "shape"));
      tensor.shape.push_back(n);
    }
    return {};
  }

  Status read_offsets(const element& value, TensorInfo& tensor) const {
    if (!value.is_array() || value.get_array().value_unsafe().size() != 2)
      return bad_tensor(tensor.name, "data_offsets", {},
                        "data_offsets: expected an array of two numbers, found {}",
                        value.is_array()
                            ? fmt::format("{} of them", value.get_array().value_unsafe().size())
                            : std::string(kind_name(value)));
    const simdjson::dom::array array = value.get_array().value_unsafe();
    auto it = array.begin();
    SX_ASSIGN(const int64_t begin, read_count(*it, tensor, "data_offsets"));
    ++it;
    SX_ASSIGN(const int64_t end, read_count(*it, tensor, "data_offsets"));
    if (begin > end)
      return bad_tensor(tensor.name, "data_offsets", {},
                        "data_offsets: expected begin <= end, found [{}, {}]", begin, end);
    const auto absolute_begin = checked_add(begin, out.data_begin);
    const auto absolute_end = checked_add(end, out.data_begin);
    if (!absolute_begin || !absolute_end)
      return bad_tensor(tensor.name, "data_offsets", {},
                        "data_offsets overflow: expected offsets inside {} data bytes, found [{}, "
                        "{}]",
                        data_bytes_, begin, end);
    tensor.begin = *absolute_begin;
    tensor.end = *absolute_end;
    return {};
  }

  Status check_size(const TensorInfo& tensor) const {
    const std::string_view dtype = dtype_name(tensor.dtype);
    const auto n = checked_product(tensor.shape);
    const auto bits = n ? checked_mul(*n, dtype_bits(tensor.dtype)) : std::nullopt;
    if (!bits)
      return bad_tensor(tensor.name, "shape", {},
                        "shape overflow: expected a size below 2^63 bits, found {} of {}",
                        shape_text(tensor.shape), dtype);
    if (*bits % 8 != 0)
      return bad_tensor(tensor.name, "shape", {},
                        "not a whole number of bytes: {} elements of {} are {} bits", *n, dtype,
                        *bits);
    if (*bits / 8 != tensor.n_bytes())
      return bad_tensor(tensor.name, "data_offsets", tensor.begin,
                        "expected {} bytes for shape {} of {}, found {} (data_offsets [{}, {}])",
                        *bits / 8, shape_text(tensor.shape), dtype, tensor.n_bytes(),
                        tensor.begin - out.data_begin, tensor.end - out.data_begin);
    return {};
  }

  static std::string shown(const TensorInfo* tensor) {
    return tensor == nullptr ? "the header" : "tensor " + quote_name(tensor->name);
  }

  // Sorted by offset each tensor must begin where the one before ended, and the last must end with
  // the file.
  Status check_layout() {
    sort_by_offset();
    int64_t at = out.data_begin;
    const TensorInfo* previous = nullptr;
    for (const TensorInfo& tensor : out.tensors) {
      if (tensor.begin != at)
        return bad_tensor(tensor.name, "data_offsets", tensor.begin,
                          "{}: expected it to begin at byte offset {} where {} ends, found {}",
                          tensor.begin < at ? "overlap" : "hole", at, shown(previous),
                          tensor.begin);
      if (tensor.end > file_bytes_)
        return bad_tensor(tensor.name, "data_offsets", tensor.begin,
                          "truncated file: expected its bytes [{}, {}) inside the file, found {} "
                          "bytes in all, {} too few for the header; download the file again",
                          tensor.begin, tensor.end, file_bytes_, last_end() - file_bytes_);
      at = tensor.end;
      previous = &tensor;
    }
    if (at != file_bytes_)
      return bad(at,
                 "trailing bytes: expected the file to end at byte offset {} with {}, found {} "
                 "more bytes",
                 at, shown(previous), file_bytes_ - at);
    return {};
  }

  int64_t last_end() const {
    int64_t end = 0;
    for (const TensorInfo& tensor : out.tensors) end = std::max(end, tensor.end);
    return end;
  }

  // Zero-size tensors go before the tensor that begins at the same place, equal ones as in the
  // header. Most files are in order already.
  void sort_by_offset() {
    std::vector<TensorInfo>& tensors = out.tensors;
    const auto before = [&](const TensorInfo& a, const TensorInfo& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    };
    if (std::is_sorted(tensors.begin(), tensors.end(), before)) return;
    std::vector<uint32_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return before(tensors[a], tensors[b]); });
    std::vector<TensorInfo> sorted;
    std::vector<uint32_t> new_idx(tensors.size());
    sorted.reserve(tensors.size());
    for (const uint32_t i : order) {
      new_idx[i] = static_cast<uint32_t>(sorted.size());
      sorted.push_back(std::move(tensors[i]));
    }
    tensors = std::move(sorted);
    out.names.renumber(new_idx);
  }

  int64_t file_bytes_;
  std::string path_;
  std::string shown_;  // path_ as messages show it
  const SafetensorsLimits& limits_;
  int64_t data_bytes_ = 0;
  bool has_metadata_ = false;
};

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string json, int64_t file_bytes,
                                                   const std::filesystem::path& path,
                                                   const SafetensorsLimits& limits) {
  HeaderReader reader(file_bytes, path, limits);
  SX_TRY(reader.read(std::move(json)));
  return std::move(reader.out);
}

const TensorInfo* SafetensorsHeader::find(std::string_view name) const {
  const auto idx =
      names.find(name, [this](uint32_t i) { return std::string_view(tensors[i].name); });
  return idx ? &tensors[*idx] : nullptr;
}

}  // namespace sextant
