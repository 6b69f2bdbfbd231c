// The one table of storage types: name, size in bits. The order is that of the enumeration.
#include "quant/dtype.h"

#include <array>

#include "base/check.h"

namespace sextant {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr std::array<Row, 17> kRows = {{
    {DType::kBool, "BOOL", 8},
    {DType::kU8, "U8", 8},
    {DType::kI8, "I8", 8},
    {DType::kF4, "F4", 4},
    {DType::kF8E4M3, "F8_E4M3", 8},
    {DType::kF8E5M2, "F8_E5M2", 8},
    {DType::kF8E8M0, "F8_E8M0", 8},
    {DType::kU16, "U16", 16},
    {DType::kI16, "I16", 16},
    {DType::kF16, "F16", 16},
    {DType::kBF16, "BF16", 16},
    {DType::kU32, "U32", 32},
    {DType::kI32, "I32", 32},
    {DType::kF32, "F32", 32},
    {DType::kU64, "U64", 64},
    {DType::kI64, "I64", 64},
    {DType::kF64, "F64", 64},
}};

constexpr bool in_enum_order() {
  for (size_t i = 0; i < kRows.size(); ++i)
    if (static_cast<size_t>(kRows[i].dtype) != i) return false;
  return true;
}
static_assert(in_enum_order());

const Row& row(DType dtype) {
  const auto i = static_cast<size_t>(dtype);
  SX_CHECK(i < kRows.size(), "dtype {}", i);
  return kRows[i];
}

}  // namespace

int dtype_bits(DType dtype) { return row(dtype).bits; }
std::string_view dtype_name(DType dtype) { return row(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& r : kRows)
    if (r.name == name) return r.dtype;
  return std::nullopt;
}

std::string_view dtype_names() {
  return "BOOL, U8, I8, F4, F8_E4M3, F8_E5M2, F8_E8M0, U16, I16, F16, BF16, U32, I32, F32, U64, "
         "I64, F64";
}

}  // namespace sextant
