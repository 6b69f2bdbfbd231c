// Reading the expected bytes that tools/golden/quant_vectors.py wrote to tests/golden/quant, for
// the tests of this folder.
#pragma once

#include <bit>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace sextant {

// The words of each line; empty when the file is missing, which every test treats as a failure.
inline std::vector<std::vector<std::string>> golden_lines(const std::string& name) {
  std::ifstream in(std::string(SX_SOURCE_DIR) + "/tests/golden/quant/" + name);
  std::vector<std::vector<std::string>> lines;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::vector<std::string>& row = lines.emplace_back();
    for (std::string word; words >> word;) row.push_back(word);
  }
  return lines;
}

inline uint32_t hex(const std::string& word) {
  return static_cast<uint32_t>(std::stoul(word, nullptr, 16));
}
inline float hex_f32(const std::string& word) { return std::bit_cast<float>(hex(word)); }
inline std::vector<float> hex_floats(const std::string& word) {
  std::vector<float> values;
  for (size_t i = 0; i < word.size(); i += 8) values.push_back(hex_f32(word.substr(i, 8)));
  return values;
}
inline std::string to_hex(const uint8_t* bytes, size_t n) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < n; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

}  // namespace sextant
