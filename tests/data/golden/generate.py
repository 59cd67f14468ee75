#!/usr/bin/env python3
"""Writes the golden files of the tokenizer tests: small tokenizers, the ids that Hugging Face's `tokenizers`
gives for sample texts, and the texts that it gives back where these are others.

    pip install tokenizers==0.23.3
    python3 tests/data/golden/generate.py
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from compare_tokenizers import SENTENCEPIECE, processors, train  # noqa: E402
from mixed_text import mixed_text  # noqa: E402
from tokenizers import AddedToken  # noqa: E402

EDGE_CASES = [
    "",
    " ",
    "  ",
    "\n",
    "\n\n",
    " \n",
    "\n ",
    "a",
    " a",
    "a ",
    "  a",
    "a  b",
    "a   b",
    "a \n b",
    "a\n\n  b",
    "a\r\nb",
    "\t\tif (x) {\n\t\t\treturn;\n\t\t}\n",
    "it's we'll they'RE I'M 'tis 's' ''s '",
    "x'\u017fy",
    "12345678",
    "1 22 333 4444",
    "\u0661\u0662\u0663\u0664\u0665",
    "a1b2c3",
    "...!!!\n\n",
    " ...\r\n x",
    "\u3000\u3000x",
    "x\u00a0y\u00a0 z",
    "a\u180eb",
    "a\u0085b \u0085",
    "\u200bzero\u200bwidth",
    "e\u0301 \u00e9 E\u0301\u0323 q\u0323\u0307 q\u0307\u0323",
    "\u212b\u2126\u2000",
    "\u1100\u1161\u11a8 \uac00\u11a8 \ud55c\uad6d\uc5b4",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002",
    "<|endoftext|>",
    "a<|endoftext|>b",
    " <|endoftext|> ",
    "<|endoftext|><|im_start|>",
    "<|endoftext",
    "x<|im_start|>\n\ny",
    "a[WORD]b",
    "a [WORD] b",
    "[WORD]",
    "\u00e9[WORD]",
    "a  [LEFT]  b",
    "a  [RIGHT]  b",
    "[LEFT][RIGHT]",
    "  [LEFT]  [RIGHT]  ",
    "<s>",
    "a<s> b</s>c",
    " <s>  b",
    "<0x41><0x0A>",
    "\u2581a \u2581 b\u2581",
    "   \u4f60\U0001f680 \U0001f680\n  x",
    "\u00c5NGSTR\u00d6M",
    "A\u030aNGSTRO\u0308M",
    "\x00\x01\x7f",
    "\ufeffbom",
    "\ufffd",
    "naïve façade – “quoted” …",
    "The quick brown fox jumps over the lazy dog. " * 3,
]


def main():
    texts = EDGE_CASES + [mixed_text(400, seed) for seed in range(100, 115)]
    ids = {}
    decoded = {}
    for family in ["gpt2", "llama3", "qwen", *SENTENCEPIECE]:
        tokenizer = train(family, 600, seed=3)
        # Every flag of added tokens, and one that only the normalized text has.
        tokenizer.add_tokens(
            [
                AddedToken("[WORD]", single_word=True),
                AddedToken("[LEFT]", lstrip=True),
                AddedToken("[RIGHT]", rstrip=True),
                AddedToken("\u00c5NGSTR\u00d6M", normalized=True),
            ]
        )
        if family == "llama3":
            tokenizer.post_processor = processors.Sequence(
                [
                    processors.ByteLevel(trim_offsets=False),
                    processors.TemplateProcessing(
                        single="<|im_start|> $A",
                        pair="<|im_start|> $A <|im_start|> $B",
                        special_tokens=[("<|im_start|>", 1)],
                    ),
                ]
            )
        tokenizer.save(str(HERE / f"{family}.json"), pretty=False)
        # What is bytes alone makes long lists.
        some = texts[: len(EDGE_CASES) + 4] if family in SENTENCEPIECE else texts
        ids[family] = [tokenizer.encode(text, add_special_tokens=True).ids for text in some]
        if family in SENTENCEPIECE:
            back = [tokenizer.decode(ids[1:], skip_special_tokens=False) for ids in ids[family]]
            decoded[family] = {i: text for i, text in enumerate(back) if text != some[i]}
    with (HERE / "samples.json").open("w") as file:
        json.dump({"texts": texts, "ids": ids, "decoded": decoded}, file, separators=(",", ":"))
        file.write("\n")


main()
