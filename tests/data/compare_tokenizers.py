#!/usr/bin/env python3
"""Compares our ids with those of Hugging Face's `tokenizers`, and the speed of both on one thread.

    compare_tokenizers.py ENCODE_FILE [--min-speed-ratio R] [--size BYTES]

Trains a BPE for each family on generated text: byte-level with its pre-tokenizer, or like SentencePiece's
with bytes for rare characters, in both forms of such files (spaces written by normalizers, or by the
pre-tokenizer Metaspace). Encodes other generated text of about 1 MB in many scripts with both, and fails
at the first id that differs. Exits with 77, which CTest counts as skipped, if the package is not there.
"""

import argparse
import array
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

try:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError:
    print("the Python package `tokenizers` is not installed")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from mixed_text import mixed_text

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"\p{N}{1,3}" + REST
QWEN = CONTRACTIONS + r"\p{N}" + REST
# Not one of the known expressions, so that it goes through PCRE2: GPT-4o's.
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


MARK = "\u2581"
SENTENCEPIECE = ["mixtral", "mistral"]


def sentencepiece(family, trained):
    """A SentencePiece-style tokenizer.json with the vocabulary of `trained`."""
    file = json.loads(trained.to_str())
    # The bytes are no added tokens: text that spells one does not become it.
    file["added_tokens"] = [token for token in file["added_tokens"] if not token["content"].startswith("<0x")]
    result = Tokenizer.from_str(json.dumps(file))
    if family == "mixtral":
        result.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
        result.pre_tokenizer = None
    else:
        result.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    parts = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    result.decoder = decoders.Sequence(parts)
    result.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return result


def train_sentencepiece(family, vocab_size, seed):
    trained = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(
        mixed_text(2_000_000, seed).splitlines(keepends=True),
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            show_progress=False,
            special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))],
            limit_alphabet=max(150, vocab_size // 5),
            initial_alphabet=[MARK],
        ),
    )
    return sentencepiece(family, trained)


def tokenizer(family):
    result = Tokenizer(models.BPE(ignore_merges=family == "llama3"))
    if family == "gpt2":
        result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        pattern = {"llama3": LLAMA3, "qwen": QWEN, "o200k": O200K}[family]
        result.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    if family == "qwen":
        result.normalizer = normalizers.NFC()
    result.decoder = decoders.ByteLevel()
    result.post_processor = processors.ByteLevel(trim_offsets=False)
    return result


def train(family, vocab_size, seed):
    if family in SENTENCEPIECE:
        return train_sentencepiece(family, vocab_size, seed)
    result = tokenizer(family)
    result.train_from_iterator(
        mixed_text(2_000_000, seed).splitlines(keepends=True),
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            show_progress=False,
            special_tokens=["<|endoftext|>", "<|im_start|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    return result


def compare(encode_file, family, text, folder, min_ratio):
    reference = train(family, 20_000, seed=1)
    path = folder / f"{family}.json"
    reference.save(str(path))
    (folder / "text").write_bytes(text.encode())
    report = subprocess.run(
        [encode_file, path, folder / "text", folder / "ids", "3"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()
    ours = array.array("i", (folder / "ids").read_bytes())
    seconds = []
    for _ in range(3):
        start = time.process_time()
        expected = reference.encode(text, add_special_tokens=False).ids
        seconds.append(time.process_time() - start)
    megabytes = len(text.encode()) / 1e6
    rates = [megabytes / seconds[0], megabytes / min(seconds)]
    print(
        f"{family}: {megabytes:.2f} MB, {len(expected)} ids; ours {report[1]} MB/s first, {report[2]} best; "
        f"tokenizers {rates[0]:.2f} first, {rates[1]:.2f} best; ours loads in {report[0]} s",
        flush=True,
    )
    if list(ours) != expected:
        at = next(
            (i for i, (a, b) in enumerate(zip(ours, expected, strict=False)) if a != b), min(len(ours), len(expected))
        )
        near = slice(max(0, at - 5), at + 5)
        sys.exit(
            f"{family}: id {at} differs: ours {list(ours)[near]} {[reference.id_to_token(i) for i in ours[near]]}, "
            f"tokenizers {expected[near]} {[reference.id_to_token(i) for i in expected[near]]}"
        )
    if family != "qwen" and report[3] != "1":
        sys.exit(f"{family}: decoding does not give the text back")
    if float(report[2]) < min_ratio * rates[1]:
        sys.exit(f"{family}: {report[2]} MB/s is not {min_ratio} times the {rates[1]:.2f} MB/s of tokenizers")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("encode_file")
    parser.add_argument("--min-speed-ratio", type=float, default=1.0)
    parser.add_argument("--size", type=int, default=1_000_000)
    arguments = parser.parse_args()
    text = mixed_text(arguments.size, seed=2)
    with tempfile.TemporaryDirectory() as folder:
        for family in ["gpt2", "llama3", "qwen", "o200k", *SENTENCEPIECE]:
            compare(arguments.encode_file, family, text, pathlib.Path(folder), arguments.min_speed_ratio)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    random.seed(0)
    main()
