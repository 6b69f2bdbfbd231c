// Character classes and lower case of the Unicode versions that the Python package `tokenizers`
// uses, from tables that tools/unicode/tokenizer_tables.py makes by asking it. Its parts have
// different versions, so each question has its own flag. Must stay equal to the package over every
// code point; PCRE2 and utf8proc are older or newer and may not be asked instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sextant {

// General categories in the order of the generated table.
enum class Category : uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo
};

// What is known about a code point: its category (\p{..} of Oniguruma) in the low five bits, flags
// above.
using CharClass = uint16_t;
inline constexpr CharClass kCharSpace = 1 << 5;         // \s everywhere, char::is_whitespace
inline constexpr CharClass kCharNumeric = 1 << 6;       // Digits: char::is_numeric
inline constexpr CharClass kCharPunctuation = 1 << 7;   // Punctuation, BertPreTokenizer
inline constexpr CharClass kCharWord = 1 << 8;          // \w of the regex crate
inline constexpr CharClass kCharAccent = 1 << 9;        // StripAccents takes it away
inline constexpr CharClass kCharBertAccent = 1 << 10;   // BertNormalizer strip_accents does
inline constexpr CharClass kCharBertControl = 1 << 11;  // BertNormalizer clean_text does
inline constexpr CharClass kCharInert = 1 << 12;        // newer than the package's normal forms

// Sets of categories, tested with in_set().
using CategorySet = uint32_t;
template <class... C>
constexpr CategorySet category_set(C... c) {
  return ((CategorySet{1} << static_cast<int>(c)) | ...);
}
inline constexpr CategorySet kSetM = category_set(Category::kMn, Category::kMc, Category::kMe);
inline constexpr CategorySet kSetL =
    category_set(Category::kLu, Category::kLl, Category::kLt, Category::kLm, Category::kLo);
inline constexpr CategorySet kSetN = category_set(Category::kNd, Category::kNl, Category::kNo);
inline constexpr CategorySet kSetP =
    category_set(Category::kPc, Category::kPd, Category::kPs, Category::kPe, Category::kPi,
                 Category::kPf, Category::kPo);
inline constexpr CategorySet kSetS =
    category_set(Category::kSm, Category::kSc, Category::kSk, Category::kSo);
constexpr bool in_set(CharClass c, CategorySet set) { return ((set >> (c & 31)) & 1) != 0; }

// The table behind char_class(): two levels, blocks of 128. Built at first use.
class CharTable {
 public:
  CharTable();
  CharClass operator[](uint32_t code_point) const {
    return blocks_[(size_t{index_[code_point >> 7]} << 7) | (code_point & 127)];
  }

 private:
  std::vector<uint16_t> index_;
  std::vector<CharClass> blocks_;
};
const CharTable& char_table();

// Appends char::to_lowercase of Rust's standard library, without context (no final sigma).
void append_lower(std::string& out, uint32_t code_point);

// The generated data.
struct LowerException {
  uint32_t from, to;
};
extern const uint32_t kClassRuns[];  // value and length of each run, in turn
extern const size_t kNClassRuns;
extern const LowerException kLowerExceptions[];
extern const size_t kNLowerExceptions;

}  // namespace sextant
