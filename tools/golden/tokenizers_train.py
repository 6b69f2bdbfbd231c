"""Small tokenizers of the families that models use, trained on own text, and what the tokenizers package makes of many strings.

    python tokenizers_train.py [--out DIR] [--only NAME ...]

Writes <name>/tokenizer.json and <name>/cases.json; tests/golden/README.md describes both. Needs: tokenizers. Seeded, one thread.
"""
import argparse
import json
import os
import pathlib
import random

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: E402
from tokenizers.decoders import DecodeStream  # noqa: E402
import tokenizers  # noqa: E402

from tokenizers_fetch import LLAMA3, QWEN2, bytelevel, split  # noqa: E402

GOLDEN = pathlib.Path(os.environ.get("SEXTANT_GOLDEN", pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))

DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]

LINES = """
The ship leaves the harbour at six in the morning, and the lighthouse goes out an hour later.
It's not the wind that worries me; it's what they'll say when we're late. I'd rather wait, wouldn't you?
Der Kapitän prüft den Kompaß, die Größe der Wellen und die Stärke des Windes. Übermäßige Eile schadet nur.
Le bateau est arrivé à l'île vers midi; l'équipage était fatigué, mais heureux d'être là. Où êtes-vous né?
El niño pequeño miró el faro con asombro. ¿Cuántos años tiene la torre? ¡Más de doscientos!
A manhã estava fria, e o coração do pescador não tinha pressa. Amanhã será melhor, com certeza.
Корабль вышел в море рано утром, когда город ещё спал. Капитан смотрел на звёзды и молчал.
Το πλοίο έφυγε από το λιμάνι πριν από την ανατολή του ήλιου. Η θάλασσα ήταν ήρεμη.
船在黎明前离开了港口。船长看着星星，什么也没说。海面很平静，风从北方吹来。
夜明け前に船は港を出た。船長は星を見上げて、何も言わなかった。カタカナとひらがなの練習です。
배는 새벽 전에 항구를 떠났다. 선장은 별을 바라보며 아무 말도 하지 않았다.
غادرت السفينة الميناء قبل الفجر. نظر القبطان إلى النجوم ولم يقل شيئا.
הספינה עזבה את הנמל לפני עלות השחר. רב החובל הביט בכוכבים ושתק.
जहाज़ सुबह होने से पहले बंदरगाह से निकल गया। कप्तान ने तारों को देखा और कुछ नहीं कहा।
เรือออกจากท่าก่อนรุ่งสาง กัปตันมองดูดวงดาวและไม่พูดอะไร
Tàu rời cảng trước bình minh. Thuyền trưởng nhìn những vì sao và không nói gì.
Gemi şafaktan önce limandan ayrıldı. İstanbul'da ışıklar söndü, IĞDIR uyuyordu.
Statek opuścił port przed świtem. Żółw, źdźbło, ćma i gęś śpią jeszcze spokojnie.
for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }  // dot product
def area(width, height=1.0):\\n    \\"\\"\\"Area of a rectangle.\\"\\"\\"\\n    return width * height
{"name": "sextant", "angle": 31.237, "tags": ["sun", "moon"], "ok": true, "none": null}
SELECT port, COUNT(*) FROM visits WHERE year >= 1998 GROUP BY port ORDER BY 2 DESC;
<table><tr><td>12</td><td>345</td></tr></table> &amp; <br/>
In 1998 the crew sailed 12,345 miles; in 2004, 67,890.12; pi is 3.14159265 and 2^10 = 1024.
Temperatures: -4°C, 0°C, 21.5°C, 100 °C. Prices: $3.50, €12, £1,000, ¥500, ₹75.
HELLO WORLD, this is LOUD. CamelCase, snake_case, kebab-case, SCREAMING_CASE and iPhone15Pro.
(brackets) [square] {curly} <angle> "quoted" 'single' `back` — dash – en … dots, „German“ «French» “curly”.
😀 😂 🚢 ⚓️ 👩‍👩‍👧‍👦 🇩🇪 🏴‍☠️ 👍🏽 ❤️ 1️⃣
"""


def corpus():
    text = LINES.replace("\\n", "\n").replace('\\"', '"').strip().split("\n")
    prose = (GOLDEN / "smollm2" / "eval_prose.txt").read_text(encoding="utf-8").split("\n")
    plain = (GOLDEN / "smollm2" / "eval.txt").read_text(encoding="utf-8").split("\n")[:120]
    return [t + "\n" for t in (text * 6 + prose + plain)] + ["    indented\n\tcode\n\n\n", "a  b   c    d\r\n\r\n"] * 8


# ------------------------------------------------------------------ building

def added(tokens, first, **flags):
    """Entries for added_tokens; a token is a string or (string, flags)."""
    out = []
    for i, t in enumerate(tokens):
        t, f = t if isinstance(t, tuple) else (t, {})
        e = {"id": first + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        e.update(flags)
        e.update(f)
        out.append(e)
    return out


def train_bytelevel(pre, size, lines, norm=None):
    t = Tokenizer(models.BPE())
    if norm is not None:
        t.normalizer = norm
    t.pre_tokenizer = pre
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    m = json.loads(t.to_str())["model"]
    return m["vocab"], [x if isinstance(x, list) else x.split(" ") for x in m["merges"]]


def pre_object(parts):
    """A pre-tokenizer object from its JSON."""
    t = Tokenizer(models.BPE()).to_str()
    j = json.loads(t)
    j["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": parts}
    return Tokenizer.from_str(json.dumps(j)).pre_tokenizer


def base(vocab, merges, **model):
    m = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
         "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    m.update(model)
    m.update(vocab=vocab, merges=merges)
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None, "model": m}


def template(token, i):
    """Post-processor that writes one token in front."""
    seq = lambda x, n: {"Sequence": {"id": x, "type_id": n}}
    st = lambda n: {"SpecialToken": {"id": token, "type_id": n}}
    return {"type": "TemplateProcessing", "single": [st(0), seq("A", 0)], "pair": [st(0), seq("A", 0), st(1), seq("B", 1)],
            "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]}}}


DECODER_BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def gpt2(lines):
    v, m = train_bytelevel(pre_tokenizers.ByteLevel(add_prefix_space=False), 1500, lines)
    j = base(v, m)
    j.update(pre_tokenizer=bytelevel(True), decoder=DECODER_BYTES, added_tokens=added([("<|endoftext|>", {"normalized": True})], len(v)),
             post_processor={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True})
    return j


def llama3(lines, pattern=LLAMA3):
    v, m = train_bytelevel(pre_object([split(pattern), bytelevel()]), 1800, lines)
    # words that no merge builds: only ignore_merges finds them
    m = [x for i, x in enumerate(m) if len(x[0] + x[1]) < 5 or i % 7]
    j = base(v, m, ignore_merges=True)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>"]
    j.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [split(pattern), bytelevel()]}, decoder=DECODER_BYTES, added_tokens=added(names, len(v)),
             post_processor={"type": "Sequence", "processors": [
                 {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, template("<|begin_of_text|>", len(v))]})
    return j


def qwen2(lines):
    v, m = train_bytelevel(pre_object([split(QWEN2), bytelevel()]), 1500, lines)
    j = base(v, m)
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", ("<tool_call>", {"special": False}), ("</tool_call>", {"special": False}),
             ("<think>", {"special": False}), ("</think>", {"special": False})]
    j.update(normalizer={"type": "NFC"}, pre_tokenizer={"type": "Sequence", "pretokenizers": [split(QWEN2), bytelevel()]},
             decoder=dict(DECODER_BYTES, add_prefix_space=False, trim_offsets=False, use_regex=False), added_tokens=added(names, len(v)),
             post_processor={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False})
    return j


def deepseek_v3(lines):
    pre = [split(p) for p in DEEPSEEK] + [bytelevel()]
    v, m = train_bytelevel(pre_object(pre), 1500, lines)
    head = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
    v = {t: i for i, t in enumerate(head + list(sorted(v, key=v.get)))}
    j = base(v, m)
    n = {"special": False}
    tail = [("<｜User｜>", n), ("<｜Assistant｜>", n), ("<｜tool▁calls▁begin｜>", n), ("<｜tool▁call▁end｜>", n), ("<think>", n), ("</think>", n), ("｜DSML｜", n)]
    j.update(normalizer={"type": "Sequence", "normalizers": []}, pre_tokenizer={"type": "Sequence", "pretokenizers": pre}, decoder=DECODER_BYTES,
             added_tokens=added(head, 0) + added(tail, len(v)),
             post_processor={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True})
    return j


def train_spm(lines, size, head, alphabet=70):
    """Vocabulary in SentencePiece's layout: head, 256 byte tokens, merged pieces, single characters. Merges in order of rank."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.train_from_iterator([x.rstrip("\n") for x in lines], trainers.BpeTrainer(vocab_size=size, limit_alphabet=alphabet, show_progress=False))
    m = json.loads(t.to_str())["model"]
    merges = [x if isinstance(x, list) else x.split(" ") for x in m["merges"]]
    made = [a + b for a, b in merges]
    chars = [c for c in sorted(m["vocab"], key=m["vocab"].get) if c not in set(made)]
    runs, k = [], 2
    while k <= 16:  # runs of spaces are pieces, too
        runs.append(["▁" * (k // 2), "▁" * (k // 2)])
        k *= 2
    merges = merges[:20] + runs + [["▁▁", "▁"]] + merges[20:]
    pieces = head + [f"<0x{i:02X}>" for i in range(256)] + [a + b for a, b in merges] + chars
    vocab = {}
    for p in pieces:
        vocab.setdefault(p, len(vocab))
    return vocab, merges


SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
UNSPACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}


def llama2(lines):
    v, m = train_spm(lines, 1100, ["<unk>", "<s>", "</s>"])
    j = base(v, m, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    j.update(normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, SPACE]},
             decoder={"type": "Sequence", "decoders": [UNSPACE, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
             added_tokens=added(["<unk>", "<s>", "</s>"], 0) + added([("[INST]", {}), ("[/INST]", {})], len(v)), post_processor=template("<s>", 1))
    return j


def llama2_metaspace(lines):
    """The newer spelling of the same family: Metaspace instead of the normalizer; the prefix only at the start of the text."""
    j = llama2(lines)
    meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    j.update(normalizer=None, pre_tokenizer=meta)
    return j


def gemma(lines):
    head = ["<pad>", "<eos>", "<bos>", "<unk>"]
    v, m = train_spm(lines, 1300, head, alphabet=90)
    j = base(v, m, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    extra = [("<start_of_turn>", {}), ("<end_of_turn>", {}), ("\n\n", {"special": False}), ("\n\n\n", {"special": False}), ("<b>", {"special": False}), ("</b>", {"special": False})]
    runs = [{"id": v[p], "content": p, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False} for p in ("▁▁", "▁▁▁", "▁▁▁▁")]
    j.update(normalizer=SPACE, pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
             decoder={"type": "Sequence", "decoders": [UNSPACE, {"type": "ByteFallback"}, {"type": "Fuse"}]},
             added_tokens=sorted(added(head, 0) + runs + added(extra, len(v)), key=lambda a: a["id"]), post_processor=template("<bos>", 2))
    return j


def flags(lines):
    """Every flag of an added token, under a normalizer that lowers case."""
    norm = {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]}
    v, m = train_bytelevel(pre_tokenizers.ByteLevel(add_prefix_space=False), 1200, [x.lower() for x in lines])
    j = base(v, m)
    names = [("<Plain>", {}), ("<L>", {"lstrip": True}), ("<R>", {"rstrip": True}), ("<LR>", {"lstrip": True, "rstrip": True}),
             ("word", {"single_word": True, "special": False}), ("Norm", {"normalized": True, "special": False}),
             ("ship wreck", {"normalized": True, "special": False}), ("ab", {"special": False}), ("abc", {"special": False}), ("bcd", {"special": False}),
             ("<w l>", {"single_word": True, "lstrip": True, "normalized": True}), ("ﬁ", {"normalized": False, "special": False}),
             ("é", {"normalized": True, "special": False}), ("<mask>", {"lstrip": True, "normalized": True})]
    j.update(normalizer=norm, pre_tokenizer=bytelevel(True), decoder=DECODER_BYTES, added_tokens=added(names, len(v)),
             post_processor={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True})
    return j


STYLES = {"gpt2": gpt2, "llama3": llama3, "qwen2": qwen2, "deepseek-v3": deepseek_v3, "llama2": llama2, "llama2-metaspace": llama2_metaspace,
          "gemma": gemma, "added-flags": flags}


# ------------------------------------------------------------------ cases

WORDS = ("the of and ship harbour harbor lighthouse can't won't I'LL they've it's '' 's 'S 'd ' 'tis Kapitän Größe naïve café cafe\u0301 Å A\u030a ﬁne "
         "Привет корабль звёзды Ελλάδα λιμάνι 你好 世界 船长 こんにちは カタカナ 안녕하세요 مرحبا שלום नमस्ते สวัสดี İstanbul ǅungla ſtraße "
         "0 7 42 007 1234 12345678 3.14 1e-5 0x1F ½ ² Ⅳ ٣٤ १२ ４２ foo_bar FooBar HTTPServer x86_64 C++ C# a.b.c user@example.org "
         "=> != ... --- *** // /* */ {} [] () <> <|x|> $$ %d \\n \\ ` ~ ^ @ # & é e\u0301 ñ 😀 👍🏽 🇩🇪 👩‍👩‍👧‍👦 ❤️ ⚓️ \u200b \u200d \ufeff ̈ ").split()
SPACES = [" ", " ", " ", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n", "\n ", "", "", "\u00a0", "\u3000"]

FIXED = [
    "", " ", "  ", "   ", " " * 16, " " * 17, " " * 100, "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\n\n\n\n", "\r", "\r\n", "\r\n\r\n", "\n\r", " \n", "\n ", " \n \n ",
    "\t\n\t", "a", " a", "a ", " a ", "  a", "a  ", "   a   b   ", "a\tb", "a\nb", "a\r\nb", "a\n\nb", "a \n b", "a\n  b\n    c\n\td\n",
    "Hello, world!", "Hello World", " Hello", "HELLO", "hello hello Hello", "don't", "DON'T", "I'm we're they'll he's I'd you've", "I'M WE'RE THEY'LL HE'S I'D YOU'VE",
    "'s", " 's", "''s", "x's's", "it’s", "rock'n'roll", "'Twas", "O'Reilly's", "'", "''", "'''", "\"quoted\"", "“curly” ‘single’ «guillemets» „low“",
    "0", "1", "12", "123", "1234", "12345", "123456", "1234567", " 1", " 123", "1 2 3", "1,234,567.89", "3.14159", "-273.15", "1e10", "0xDEADBEEF", "2024-02-29T12:34:56Z",
    "½ ⅓ ² ³ ₂ ① Ⅷ", "٠١٢٣٤٥٦٧٨٩", "०१२३४", "１２３４５", "x1y22z333", "v1.2.3-rc4+build5", "007", "$1,000.00", "50%", "5°C",
    "!", "!!", "!!!", "!?", "...", "…", "—", "--", "---", "a-b", "a--b", "a_b", "__init__", "#!", "//", "/* x */", "<!-- -->", "[]", "()", "{}", "<>", "=>", "!=", "==", "<=", "a=b", "a==b&&c||d",
    "!abc", "#include", "@name", "$var", ".dot", "-flag", "--long-flag=1", "path/to/file.txt", "C:\\dir\\file", "https://example.org/a?b=c&d=e#f", "user@example.org",
    "def f(x):\n    return x + 1\n", "for (int i = 0; i < 10; ++i) {\n\tprintf(\"%d\\n\", i);\n}\n", "{\"a\": [1, 2.5, null], \"b\": {\"c\": \"d\"}}", "<p class=\"x\">y</p>",
    "SELECT * FROM t WHERE a='b';", "\\frac{a}{b} \\alpha", "| a | b |\n|---|---|\n| 1 | 2 |\n", "- item\n- item\n  - sub\n", "```python\nprint('x')\n```\n", "\tif x:\n\t\ty\n",
    "é", "e\u0301", "Å", "A\u030a", "ñ n\u0303", "ö o\u0308", "ﬁ ﬂ", "ſ", "ß ẞ SS", "İ i I ı", "ǆ ǅ Ǆ", "Ω Ω", "K K", "가 \u1100\u1161", "각 \u1100\u1161\u11a8", "a\u0323\u0307 a\u0307\u0323", "\u0301", " \u0301", "x\u0301\u0302\u0303\u0304",
    "q\u0307\u0323", "क्षि", "নমস্কার", "தமிழ்", "తెలుగు", "ಕನ್ನಡ", "മലയാളം", "සිංහල", "ไทย", "ลาว", "မြန်မာ", "ខ្មែរ", "བོད་ཡིག", "ქართული", "Հայերեն", "አማርኛ", "ᚠᚢᚦ", "ᏣᎳᎩ", "ᐃᓄᒃᑎᑐᑦ", "Монгол ᠮᠣᠩᠭᠣᠯ",
    "Привет, мир!", "Україна", "Ελληνικά", "עברית", "العربية", "فارسی", "اردو", "हिन्दी", "中文", "繁體中文", "日本語", "ひらがな", "カタカナ", "ｶﾀｶﾅ", "한국어", "ㄅㄆㄇ", "中文English混合123文字", "你好，世界。", "「日本」、です。", "々〆〇", "㐀㐁", "𠀀𠀁", "𝒳𝓎𝔷 𝟘𝟙", "𐍈𐌰", "ﷺ", "①②", "㎏ ㏒",
    "שָׁלוֹם", "مُحَمَّد", "Tiếng Việt", "Zażółć gęślą jaźń", "Příliš žluťoučký kůň", "Çığ düştü", "Þórður", "Ąžuolas", "Szűcs",
    "😀", "😀😀", "a😀b", " 😀", "👍🏽", "👩‍👩‍👧‍👦", "🏴‍☠️", "🇩🇪🇫🇷", "1️⃣", "❤️", "☺︎", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "🫠", "♥♦♣♠", "←↑→↓", "∀x∈ℝ: √x≥0", "█▓▒░", "™®©", "€£¥₹", "№§¶†",
    "\u0000", "a\u0000b", "\u0001\u0002\u0003", "\u0007\b", "\u000b\u000c", "\u001b[31mred\u001b[0m", "\u007f", "\u0080\u0085\u009f", "a\u0085b", "\u00a0", "a\u00a0b", "\u00ad", "soft\u00adhyphen", "\u200b", "zero\u200bwidth", "\u200c\u200d", "\u200e\u200f", "\u202a\u202e x \u202c", "\u2028", "a\u2028b\u2029c",
    "\u2000\u2001\u2002\u2003", "\u2009a", "\u202f", "\u205f", "\u2060", "\u3000", "a\u3000b", "\ufeff", "\ufeffa", "\ufffc", "\uffff", "\ue000", "\U0010ffff", "\U000f0000", "\u1680", "\u180e",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "abcabcabcabcabcabcabcabc", "AaAaAaAaAa", "=" * 80, "-" * 33, "#" * 7, "." * 25, "ha" * 30, "\n" * 20, "\t" * 9, " \t" * 8, "\r\n" * 6, "é" * 12, "的" * 10, "😀" * 6, "0" * 20, "1234567890" * 3,
    "supercalifragilisticexpialidocious", "antidisestablishmentarianism", "Donaudampfschifffahrtsgesellschaftskapitän", "pneumonoultramicroscopicsilicovolcanoconiosis", "ThisIsCamelCaseText", "this_is_snake_case", "SCREAMING_SNAKE", "mixed-Case_Text.v2",
    "lighthouse", " lighthouse", "Lighthouse", "harbour harbour", "the the the", "The ship leaves the harbour at six in the morning.", "  leading and trailing  ", "multiple   spaces    between     words", "trailing newline\n", "trailing spaces   \n", "\n\nleading newlines", "a ,b .c !d",
    "end.Start", "end. Start", "end.  Start", "end.\nStart", "?!\n\n", "...\n", "x;\n\ny;\n", "),\n", "\"\n", "a\u2019s", "1st 2nd 3rd", "10:30am", "a1b2c3", "A4", "3D", "x²", "H₂O", "CO2", "i18n", "k8s",
    "\ufffd", "a\ufffdb", "▁", "▁a", "a▁b", "a ▁ b", "Ġ", "Ġhello", "Ċ", "<0x0A>", "<0x41>", "<unk>", "<pad>", "[PAD]", "[MASK]", "##ing", "</w>", "▁▁▁",
    "The quick brown fox jumps over the lazy dog. " * 3,
]


def strings(j, seed, n):
    """The fixed list, strings around each added token, and random mixtures up to n in all."""
    rng = random.Random(seed)
    out = list(FIXED)
    names = [a["content"] for a in j["added_tokens"]]
    for t in names:
        out += [t, "a" + t + "b", "a " + t + " b", t + t]
        if len(out) < len(FIXED) + 44:
            out += [" " + t, t + " ", "  " + t + "  x", "\n" + t + "\n", t[:-1], t[1:], t.upper(), t.lower(), t + "s", "x" + t + " " + t + "\t" + t]
    if len(names) > 1:
        a, b = names[:2]
        out += [a + "Hello" + b, f"{a} system\nYou are here.{b}\n{a}user\nHi!{b}\n", b + a, f"{a[:3]}{b}{a[3:]}"]
    while len(out) < n:
        k = rng.choice([2, 3, 4, 6, 9, 14])
        s = ""
        for _ in range(k):
            s += rng.choice(WORDS if rng.random() < 0.93 else names) + rng.choice(SPACES)
        out.append(s)
    seen = set()
    return [s for s in out if not (s in seen or seen.add(s))]


def stream(t, ids):
    d = DecodeStream(skip_special_tokens=False)
    return [d.step(t, i) for i in ids]


def cases(t, j, seed, n=440):
    out, rng = [], random.Random(seed + 1)
    for s in strings(j, seed, n):
        plain = t.encode(s, add_special_tokens=False).ids
        full = t.encode(s, add_special_tokens=True).ids
        c = {"text": s, "ids": plain}
        if full != plain:
            c["ids_special"] = full
        d = t.decode(plain, skip_special_tokens=False)
        if d != s:
            c["decoded"] = d
        k = t.decode(plain, skip_special_tokens=True)
        if k != d:
            c["decoded_skip"] = k
        if "\ufffd" not in s + d and len(plain) <= 24:
            inc = stream(t, plain)
            if "".join(x or "" for x in inc) == d:
                c["stream"] = inc
        out.append(c)
    size, back = t.get_vocab_size(), []
    for i in range(60):  # any ids, with bytes that do not make characters
        ids = [rng.randrange(size if i % 2 else min(size, 300)) for _ in range(rng.choice([1, 2, 3, 5, 8, 13]))]
        back.append({"ids": ids, "decoded": t.decode(ids, skip_special_tokens=False), "decoded_skip": t.decode(ids, skip_special_tokens=True)})
    return out, back


def write(out, name, j, seed):
    d = pathlib.Path(out) / name
    d.mkdir(parents=True, exist_ok=True)
    j["added_tokens"].sort(key=lambda a: a["id"])
    (d / "tokenizer.json").write_text(json.dumps(j, ensure_ascii=False, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
    t = Tokenizer.from_file(str(d / "tokenizer.json"))
    c, back = cases(t, j, seed)
    body = ",\n".join(json.dumps(x, ensure_ascii=False, separators=(",", ":")) for x in c)
    ids = ",\n".join(json.dumps(x, ensure_ascii=False, separators=(",", ":")) for x in back)
    (d / "cases.json").write_text(f'{{"made_by": "tokenizers {tokenizers.__version__}", "seed": {seed},\n"encode": [\n{body}\n],\n"decode": [\n{ids}\n]}}\n', encoding="utf-8")
    print(name, t.get_vocab_size(), (d / "tokenizer.json").stat().st_size, len(c), (d / "cases.json").stat().st_size,
          "with stream", sum("stream" in x for x in c), "with decoded", sum("decoded" in x for x in c), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", default=str(GOLDEN / "tokenizers"))
    p.add_argument("--only", nargs="*")
    args = p.parse_args()
    lines = corpus()
    for k, (name, f) in enumerate(STYLES.items()):
        if not args.only or name in args.only:
            write(args.out, name, f(lines), 100 + k)


if __name__ == "__main__":
    main()
