#!/usr/bin/env python3
"""Writes src/text/special_casing.inc: the code points whose upper, lower or title case is not one code point, from Python's own
tables (the oracle of the template language).

    python3 tools/unicode/special_casing.py > src/text/special_casing.inc
"""
import sys
import unicodedata

print(f"// Made by tools/unicode/special_casing.py from Unicode {unicodedata.unidata_version}. Do not edit.")
for name, method in (("kUpper", str.upper), ("kLower", str.lower), ("kTitle", str.title)):
    print(f"constexpr SpecialCase {name}[] = {{")
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        mapped = method(chr(code))
        special = len(mapped) != 1 or (method is str.title and mapped != chr(code).upper())
        if special:
            points = ", ".join(f"0x{ord(c):X}" for c in mapped)
            print(f"    {{0x{code:X}, {{{points}}}}},")
    print("};")
sys.stdout.flush()
