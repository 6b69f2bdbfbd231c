// Code points and Python's notions of white space and case, for the template language.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sextant::jinja {

std::u32string decode_utf8(std::string_view text);  // each invalid byte becomes U+FFFD
void append_utf8(std::string& out, char32_t c);
std::string encode_utf8(std::u32string_view text);
int64_t count_code_points(std::string_view text);

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // str.isprintable
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_cased_upper(char32_t c);
bool is_cased_lower(char32_t c);

// str.isupper and str.islower: at least one cased letter, and none of the other case.
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);

// Full case mappings ("ß".upper() is "SS"; a final sigma lowers to its final form).
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);

}  // namespace sextant::jinja
