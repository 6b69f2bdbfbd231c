// Lookups over the generated tables (unicode_tables.h). Owns no data.
#include <utf8proc.h>

#include <algorithm>
#include <map>
#include <span>

#include "text/tokenizer_utf8.h"
#include "text/unicode_tables.h"

namespace sextant {
namespace {

constexpr uint32_t kBlock = 128;
constexpr uint32_t kNCodePoints = 0x110000;

}  // namespace

CharTable::CharTable() {
  std::map<std::vector<CharClass>, uint16_t> known;
  std::vector<CharClass> block;
  block.reserve(kBlock);
  index_.reserve(kNCodePoints / kBlock);
  const auto close_block = [&] {
    const auto [it, fresh] = known.try_emplace(block, static_cast<uint16_t>(known.size()));
    if (fresh) blocks_.insert(blocks_.end(), block.begin(), block.end());
    index_.push_back(it->second);
    block.clear();
  };
  for (size_t i = 0; i < kNClassRuns; ++i) {
    const auto value = static_cast<CharClass>(kClassRuns[2 * i]);
    uint32_t left = kClassRuns[2 * i + 1];
    while (left > 0) {
      const uint32_t n = std::min(left, kBlock - static_cast<uint32_t>(block.size()));
      block.insert(block.end(), n, value);
      left -= n;
      if (block.size() == kBlock) close_block();
    }
  }
}

const CharTable& char_table() {
  static const CharTable table;
  return table;
}

void append_lower(std::string& out, uint32_t code_point) {
  if (code_point < 0x80) {
    const bool upper = code_point >= 'A' && code_point <= 'Z';
    out.push_back(static_cast<char>(upper ? code_point + 32 : code_point));
    return;
  }
  if (code_point == 0x130) {  // the only one that becomes two: i and a combining dot above
    out += "i\xCC\x87";
    return;
  }
  const std::span list(kLowerExceptions, kNLowerExceptions);
  const auto it = std::lower_bound(list.begin(), list.end(), code_point,
                                   [](const LowerException& e, uint32_t c) { return e.from < c; });
  const uint32_t lower =
      it != list.end() && it->from == code_point
          ? it->to
          : static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)));
  append_utf8(out, lower);
}

}  // namespace sextant
