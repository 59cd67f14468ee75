"""Text in many scripts, made from code point ranges alone; the same for a seed on every machine."""

# Ranges of letters by script, with an idea of how the script is written.
SCRIPTS = [
    ("latin", [(0x61, 0x7A)], True),
    ("latin", [(0x61, 0x7A)], True),
    ("latin", [(0x61, 0x7A)], True),
    ("latin extended", [(0x61, 0x7A), (0xC0, 0x17F)], True),
    ("greek", [(0x3B1, 0x3C9)], True),
    ("cyrillic", [(0x430, 0x44F)], True),
    ("armenian", [(0x561, 0x587)], True),
    ("hebrew", [(0x5D0, 0x5EA)], True),
    ("arabic", [(0x620, 0x64A), (0x64B, 0x652)], True),
    ("devanagari", [(0x904, 0x939), (0x93E, 0x94D)], True),
    ("bengali", [(0x985, 0x98C), (0x9BE, 0x9C4), (0x9CD, 0x9CD)], True),
    ("thai", [(0xE01, 0xE3A), (0xE40, 0xE4E)], False),
    ("tibetan", [(0xF40, 0xF47), (0xF71, 0xF84)], False),
    ("georgian", [(0x10D0, 0x10FA)], True),
    ("hangul", [(0xAC00, 0xD7A3)], True),
    ("jamo", [(0x1100, 0x1112), (0x1161, 0x1175), (0x11A8, 0x11C2)], False),
    ("ethiopic", [(0x1200, 0x1248)], True),
    ("khmer", [(0x1780, 0x17B3), (0x17B6, 0x17D3)], False),
    ("hiragana", [(0x3041, 0x3096)], False),
    ("katakana", [(0x30A1, 0x30FA)], False),
    ("han", [(0x4E00, 0x9FA5)], False),
    ("gothic", [(0x10330, 0x10349)], True),
    ("mathematical", [(0x1D400, 0x1D433)], False),
    ("emoji", [(0x1F600, 0x1F64F), (0x1F3FB, 0x1F3FF), (0x200D, 0x200D), (0xFE0F, 0xFE0F)], False),
]
MARKS = [0x300, 0x301, 0x302, 0x303, 0x307, 0x308, 0x30A, 0x323, 0x327, 0x328, 0x338]
DIGITS = [(0x30, 0x39), (0x660, 0x669), (0x966, 0x96F), (0xB2, 0xB3), (0x2160, 0x216B), (0xFF10, 0xFF19)]
SPACES = [" "] * 40 + [
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    " \n",
    "\r\n",
    "\n    ",
    "\u00a0",
    "\u2003",
    "\u3000",
    "\u200b",
    "\u180e",
    "\x0b",
    "\x85",
    "\u2028",
    " \n \n ",
]
PUNCTUATION = [
    *".,;:!?-()[]{}<>/\\\"'*&^%$#@~`|_=+",
    "...",
    "\u2026",
    "\u00bf",
    "\u3002",
    "\u300c",
    "\u300d",
    "->",
    "!=",
    "\u20ac",
]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'Re", "'x", "'", "'\u017f", "'r", "'v", "'l"]
ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_st", "<|", "<|endoftext|"]


class Random:
    """A linear congruential generator (Knuth's MMIX), so that no library decides the text."""

    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % limit

    def of(self, items):
        return items[self.below(len(items))]

    def character(self, ranges):
        first, last = self.of(ranges)
        return chr(first + self.below(last - first + 1))


def mixed_text(size, seed):
    """About `size` bytes of UTF-8. Words repeat, as in real text, so that there is something to merge."""
    random = Random(seed + 12345)
    # The same words for every seed: what is trained on one text must fit another.
    lexicon_random = Random(99)
    lexicon = []
    for _, ranges, _ in SCRIPTS:
        words = []
        for _ in range(400):
            word = "".join(lexicon_random.character(ranges) for _ in range(1 + lexicon_random.below(9)))
            words.append(word)
        lexicon.append(words)
    parts, written = [], 0
    script = 0
    while written < size:
        if random.below(30) == 0:
            script = random.below(len(SCRIPTS))
        _, ranges, cased = SCRIPTS[script]
        kind = random.below(100)
        if kind < 70:  # frequent words first
            part = lexicon[script][random.below(1 + random.below(400))]
            if cased and random.below(8) == 0:
                part = part.capitalize() if random.below(3) else part.upper()
        elif kind < 78:
            part = "".join(random.character(ranges) for _ in range(1 + random.below(12)))
        elif kind < 82:
            digits = random.of(DIGITS)
            part = "".join(random.character([digits]) for _ in range(1 + random.below(8)))
        elif kind < 90:
            part = "".join(random.of(PUNCTUATION) for _ in range(1 + random.below(3)))
        elif kind < 94:
            part = random.of(CONTRACTIONS)
        elif kind < 96:
            part = "".join(random.character(ranges) + chr(random.of(MARKS)) for _ in range(1 + random.below(4)))
            part += "".join(chr(random.of(MARKS)) for _ in range(random.below(4)))
        elif kind < 97:
            part = random.of(ADDED)
        else:
            part = random.of(SPACES) * (1 + random.below(5))
        if random.below(4) != 0:
            part += random.of(SPACES) if SCRIPTS[script][2] or random.below(8) == 0 else ""
        parts.append(part)
        written += len(part.encode())
    return "".join(parts)
