// Storage types as safetensors names them. Sub-byte types count elements in shapes and bits in
// sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sextant {

enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF4,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kU16,
  kI16,
  kF16,
  kBF16,
  kU32,
  kI32,
  kF32,
  kU64,
  kI64,
  kF64
};

int dtype_bits(DType dtype);               // 4 for kF4
std::string_view dtype_name(DType dtype);  // "F8_E4M3", as in a safetensors header
std::optional<DType> dtype_from_name(std::string_view name);
std::string_view dtype_names();  // all of them, for messages: "BOOL, U8, ..."

}  // namespace sextant
