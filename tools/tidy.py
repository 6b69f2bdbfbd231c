#!/usr/bin/env python3
"""The house rules that a compiler does not check; run as a ctest. Prints one line a fault, exit 1 if there are any.

Checks: which folder may include which (INCLUDES), which library stays behind which folder (CONFINED), sizes of files, functions
and lines (overruns only on tools/tidy_allow.txt, a list that may only shrink), banned words, sources in no CMakeLists.txt,
an op of kernels/ops.h without a reference, a test or a bench, and dead links in documents.

    tools/tidy.py [--root DIR]
"""
import argparse
import pathlib
import re
import sys

# folder -> folders it may include, besides itself. Includes point down only (ARCHITECTURE.md).
INCLUDES = {
    "base": set(),
    "quant": {"base"},
    "io": {"base", "quant"},
    "kernels": {"base", "quant"},
    "checkpoint": {"base", "quant", "io"},
    "doctor": {"base", "quant", "io", "checkpoint"},
    "text": {"base", "io"},
    "model": {"base", "quant", "io", "checkpoint", "kernels"},
    "engine": {"base", "quant", "io", "checkpoint", "kernels", "model"},
    "forge": {"base", "quant", "io", "checkpoint", "kernels", "model", "text", "engine"},
    "cli": {"base", "quant", "io", "checkpoint", "kernels", "model", "text", "engine", "forge",
            "doctor"},
}
# what model/ and above may see of kernels/
KERNEL_HEADERS = {"kernels/ops.h", "kernels/plan.h", "kernels/measure.h"}

# header prefix -> folders that may include it
CONFINED = {
    "simdjson": {"io"},
    "nlohmann/": {"io", "text"},
    "spdlog/": {"base"},
    "fmt/": {"base", "quant", "io", "kernels", "checkpoint", "doctor", "text", "model", "engine", "forge", "cli"},
    "tl/": {"base"},
    "pcre2": {"text", "checkpoint"},
    "utf8proc": {"text"},
    "openssl/": {"io"},
    "xxhash": {"base", "io", "text"},
    "CLI/": {"cli"},
    "boost/": {"serve"},
}
ISA_INCLUDES = {"immintrin.h"}  # only kernels/cpu, base/cpu_info, base/thread_pool, quant

MAX_FILE, MAX_KERNEL_FILE, MAX_FUNCTION, MAX_LINE = 400, 700, 70, 100
BANNED = [
    (r"\b(TODO|FIXME|XXX|HACK)\b", "a left-over"),
    (r"\b(not implemented|unimplemented)\b", "a left-over"),
    (r"\b(class|struct)\s+\w*(Manager|Helper|Util)\b", "a name that says nothing"),
    (r"-ffast-math", "breaks NaN checks and reproducibility"),
    (r"\bstd::regex\b", "recurses and knows no Unicode"),
    (r"\b(quantis|dequantis|normalis|initialis|recognis|serialis|tokenis|optimis)(e|ed|es|ing|er|ation)\b",
     "American spelling"),
]
SPELLING_EXEMPT = {"quantise", "dequantise", "tokenise"}  # accepted spellings of commands


def sources(root):
    for path in sorted((root / "src").rglob("*")):
        if path.suffix in {".h", ".cpp", ".inc"}:
            yield path
    for folder in ("bench", "tests"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".h", ".cpp"}:
                yield path


def allowed_overruns(root):
    """path or path:function -> the size it may have; the list may only shrink."""
    allow = {}
    listing = root / "tools" / "tidy_allow.txt"
    if listing.exists():
        for line in listing.read_text().splitlines():
            line = line.split("#")[0].strip()
            if line:
                name, size = line.rsplit(None, 1)
                allow[name] = int(size)
    return allow


def check_includes(name, folder, lines, faults):
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)', line)
        if not match:
            continue
        target = match.group(2)
        if match.group(1) == '"':
            top = target.split("/")[0]
            if top in INCLUDES and folder in INCLUDES and top != folder:
                if top not in INCLUDES[folder]:
                    faults.append(f"{name}:{number}: {folder}/ may not include {target}")
                if top == "kernels" and target not in KERNEL_HEADERS:
                    faults.append(f"{name}:{number}: only {sorted(KERNEL_HEADERS)} of kernels/ are visible here")
        for prefix, folders in CONFINED.items():
            if target.startswith(prefix) and folder in INCLUDES and folder not in folders:
                faults.append(f"{name}:{number}: {prefix} stays behind {sorted(folders)}")
        if target in ISA_INCLUDES and folder not in {"kernels", "base", "quant"}:
            faults.append(f"{name}:{number}: intrinsics stay in kernels/, quant/ and base/")


def functions(lines):
    """(name, first line, number of lines) of what starts at column 0 with a body and ends with a brace at column 0."""
    start = None
    for number, line in enumerate(lines, 1):
        if start is None:
            opens = line.rstrip().endswith("{") and not line.startswith((" ", "}", "#", "//"))
            if opens and not re.match(r"(namespace|struct|class|enum|union|extern|constexpr|const|inline constexpr|static const)\b.*[{=]\s*{?$", line):
                start = number
            elif opens and re.match(r"(constexpr|inline constexpr|static)\b.*\)\s*(const)?\s*{$", line):
                start = number
            elif line.startswith("    ") and line.rstrip().endswith(") {") and number > 1:
                head = number - 1
                while head > 1 and lines[head - 1].startswith("    "):
                    head -= 1
                if re.match(r"[A-Za-z].*\($|[A-Za-z][^;{}]*\(.*,$", lines[head - 1]):
                    start = head
        elif line.startswith("}"):
            yield lines[start - 1].strip(), start, number - start + 1
            start = None


def check_sizes(name, lines, is_test, allow, faults):
    limit = MAX_KERNEL_FILE if "/kernels/" in name or is_test or name.startswith("bench/") else MAX_FILE
    limit = allow.get(name, limit)
    if len(lines) > limit:
        faults.append(f"{name}: {len(lines)} lines, more than {limit}")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE and "http" not in line and not name.endswith(".inc"):
            faults.append(f"{name}:{number}: {len(line)} columns, more than {MAX_LINE}")
    if is_test or name.endswith(".inc"):
        return
    for head, start, size in functions(lines):
        function = re.search(r"([\w:~]+)\s*\(", head)
        key = f"{name}:{function.group(1) if function else head}"
        if size > allow.get(key, MAX_FUNCTION):
            faults.append(f"{name}:{start}: {key.split(':', 1)[1]} has {size} lines, more than {allow.get(key, MAX_FUNCTION)}")


def check_words(name, lines, faults):
    for number, line in enumerate(lines, 1):
        for pattern, why in BANNED:
            for match in re.finditer(pattern, line):
                if match.group(0).lower() not in SPELLING_EXEMPT:
                    faults.append(f"{name}:{number}: '{match.group(0)}': {why}")


def check_cmake(root, faults):
    for listing in sorted((root / "src").rglob("CMakeLists.txt")):
        nested = [*listing.parent.rglob("*.cmake"), *listing.parent.rglob("CMakeLists.txt")]
        text = "".join(p.read_text() for p in nested)
        for path in sorted(listing.parent.rglob("*.cpp")):
            relative = path.relative_to(listing.parent).as_posix()
            if relative not in text and path.name not in text:
                faults.append(f"{path.relative_to(root)}: in no CMakeLists.txt")


def check_ops(root, faults):
    """Every op of the table is filled by ref/, named in a test of the kernels, and measured by a bench."""
    text = (root / "src/kernels/ops.h").read_text()
    table = text[text.index("struct Ops {"):]
    table = table[:table.index("\n};")]
    reference = "\n".join(p.read_text() for p in (root / "src/kernels/ref").glob("*.cpp"))
    tests = "\n".join(p.read_text() for p in (root / "src/kernels").rglob("*_test.cpp"))
    benches = "\n".join(p.read_text() for p in (root / "bench").glob("*.cpp"))
    for op in re.findall(r"\(\*(\w+)\)", table):
        if not re.search(rf"\b{op}\b", reference):
            faults.append(f"src/kernels/ops.h: op {op} has no reference in src/kernels/ref")
        if not re.search(rf"(->|\.){op}\b", tests):
            faults.append(f"src/kernels/ops.h: op {op} has no test")
        if not re.search(rf"(->|\.){op}\b", benches):
            faults.append(f"src/kernels/ops.h: op {op} has no bench")


def check_links(root, faults):
    documents = [p for p in root.glob("*.md")] + sorted((root / "docs").rglob("*.md"))
    for document in documents:
        text = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target and not (document.parent / target).exists():
                faults.append(f"{document.relative_to(root)}: dead link {target}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent, type=pathlib.Path)
    root = parser.parse_args().root
    allow = allowed_overruns(root)
    faults = []
    for path in sources(root):
        name = path.relative_to(root).as_posix()
        lines = path.read_text().splitlines()
        folder = path.relative_to(root / "src").parts[0] if name.startswith("src/") else name.split("/")[0]
        is_test = path.stem.endswith(("_test", "_fuzz", "_bench", "_fixture")) or "/testing/" in name or name.startswith("tests/")
        if not is_test:
            check_includes(name, folder, lines, faults)
        check_sizes(name, lines, is_test, allow, faults)
        check_words(name, lines, faults)
    check_cmake(root, faults)
    check_ops(root, faults)
    check_links(root, faults)
    for fault in faults:
        print(fault)
    print(f"tidy: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
