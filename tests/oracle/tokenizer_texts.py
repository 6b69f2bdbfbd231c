"""Texts to compare tokenizers over: code points in order, all scripts, emoji, control characters, random bytes, white space, contractions,
and combinations of a tokenizer's added tokens. Seeded: the same call gives the same texts."""
import functools
import random

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]

# Planes 0 and 1, the compatibility ideographs, tags and variation selectors; every 61st of the rest, which are ideographs, private and
# unassigned characters and alike. FAR: that rest.
NEAR = [c for c in POINTS if c < 0x20000 or 0x2F800 <= c < 0x2FA20 or 0xE0000 <= c < 0xE0200 or c % 61 == 0]
FAR = sorted(set(POINTS) - set(NEAR))


def is_dense(c):
    """In planes 0 and 1, neither an ideograph nor a Hangul syllable nor private."""
    return c < 0x3400 or 0xA000 <= c < 0xAC00 or 0xF900 <= c < 0x20000


# One run of letters a script, blocks with marks, digits, symbols and emoji, chosen from the code charts.
BLOCKS = [(0x20, 0x7F), (0xA0, 0x180), (0x180, 0x250), (0x300, 0x370), (0x370, 0x400), (0x400, 0x530), (0x531, 0x590), (0x591, 0x600),
          (0x600, 0x700), (0x700, 0x750), (0x780, 0x7C0), (0x900, 0x980), (0x980, 0xA00), (0xA00, 0xB00), (0xB00, 0xC00), (0xC00, 0xD00),
          (0xD00, 0xE00), (0xE00, 0xE80), (0xE80, 0xF00), (0xF00, 0x1000), (0x1000, 0x10A0), (0x10A0, 0x1100), (0x1100, 0x1200),
          (0x1200, 0x13A0), (0x13A0, 0x1400), (0x1680, 0x1700), (0x1780, 0x1800), (0x1800, 0x18B0), (0x1C80, 0x1CC8), (0x1E00, 0x2000),
          (0x2000, 0x2070), (0x2070, 0x20D0), (0x20D0, 0x2100), (0x2100, 0x2200), (0x2200, 0x2400), (0x2460, 0x2500), (0x2500, 0x2700),
          (0x2E80, 0x3000), (0x3000, 0x3040), (0x3040, 0x3100), (0x3130, 0x3190), (0x3200, 0x3400), (0x4E00, 0x9FFF), (0xA000, 0xA490),
          (0xAC00, 0xD7A4), (0xE000, 0xE100), (0xF900, 0xFB00), (0xFB00, 0xFB50), (0xFB50, 0xFE00), (0xFE00, 0xFE70), (0xFF00, 0xFFF0),
          (0x10300, 0x10350), (0x10400, 0x10450), (0x12000, 0x12400), (0x1D100, 0x1D200), (0x1D400, 0x1D800), (0x1F000, 0x1F100),
          (0x1F1E6, 0x1F200), (0x1F300, 0x1F700), (0x1F900, 0x1FA70), (0x20000, 0x20100), (0xE0000, 0xE0080)]

ATOMS = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", "\v", "\f", "\x85", "\u00a0", "\u1680", "\u180e", "\u2003", "\u2028", "\u2029", "\u200b",
         "\u200d", "\u3000", "\ufeff", "\x00", "\x1c", "\x7f", "'s", "'S", "'\u017f", "'t", "'re", "'RE", "'vE", "'m", "'ll", "'Ll", "'d", "'x", "'",
         "\u2019s", "a", "b", "ab", "abc", "bcd", "word", "Word", "WORD", "iPhone", "e\u0301", "\u00e9", "\u0301", "\u0308", "\u0130", "\u01c5",
         "\u00aa", "\u00df", "\ufb01", "1", "12", "123", "1234", "3.14", "\u0663", "\u2167", "\u00bd", "!", "?!", "...", "//", "/", "-", "_", "\u2014",
         "\u3002", "\u4e2d\u6587", "\u304b\u306a", "\u30ab\u30bf", "\ud55c", "\u05d0", "\u0627\u0644", "\u0915\u094d\u0937", "\u0e01\u0e33", "\U0001f600",
         "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\ufffd", "\ue000", "<", ">", "|", "{", "}", "\u2581", "\u0120",
         "<0x0A>", "\U00020000", "\U000e0041"]


def code_points(points):
    """In order, many to a text; and those of scripts that are not ideographs each alone behind a letter and before a space."""
    texts = ["".join(map(chr, points[i:i + 400])) for i in range(0, len(points), 400)]
    dense = [c for c in points if is_dense(c)]
    return texts + ["".join(f"a{chr(c)} {chr(c)}{chr(c)}9" for c in dense[i:i + 64]) for i in range(0, len(dense), 64)]


def scripts(rng, n):
    texts = []
    for _ in range(n):
        picked = [rng.choice(BLOCKS) for _ in range(rng.choice([1, 1, 2, 3]))]
        chars = []
        for _ in range(rng.randint(1, 30)):
            low, high = rng.choice(picked)
            chars.append(" " if rng.random() < 0.15 else chr(rng.randrange(low, high)))
        texts.append("".join(chars))
    return texts


def random_bytes(rng, n):
    """Bytes as a decoder repairs them, and any characters at all."""
    texts = [bytes(rng.randrange(256) for _ in range(rng.randint(1, 24))).decode("utf-8", "replace") for _ in range(n // 2)]
    return texts + ["".join(chr(rng.choice(POINTS)) for _ in range(rng.randint(1, 12))) for _ in range(n - n // 2)]


def mixes(rng, n, atoms):
    return ["".join(rng.choice(atoms) for _ in range(rng.randint(1, 12))) for _ in range(n)]


def vocabulary(rng, n, tokens):
    """Tokens of the vocabulary as they stand, alone and joined."""
    return ["".join(rng.choice(tokens) for _ in range(rng.choice([1, 1, 2, 4]))) for _ in range(n)]


@functools.lru_cache
def common(n):
    """Texts that every tokenizer gets. All code points are for its parts, alone."""
    rng = random.Random(1)
    texts = code_points(NEAR[::3])
    rest = max(n - len(texts), 0)
    return texts + scripts(rng, rest // 2) + random_bytes(rng, rest // 4) + mixes(rng, rest // 4, ATOMS)


def texts_for(tokenizer, n=20_000, seed=1):
    """At least n texts. tokenizer: of the package tokenizers; its vocabulary and added tokens take part."""
    rng = random.Random(seed)
    tokens = sorted(tokenizer.get_vocab())
    added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    rng.shuffle(added)
    texts = common(n * 3 // 4) + vocabulary(rng, n // 8, tokens)
    texts += mixes(rng, n - len(texts), ATOMS + (added[:60] or ["<s>"]) * 2)
    assert len(texts) >= n
    return texts
