#!/usr/bin/env python3
"""Writes the seed corpora of the fuzz targets: make_corpus.py FOLDER gives FOLDER/<target>/<seed>."""

import json
import pathlib
import shutil
import struct
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = TESTS / "data" / "golden"


def shard(magic, version, announced, tokens, code):
    return struct.pack("<256i", magic, version, announced, *[0] * 253) + struct.pack(f"<{len(tokens)}{code}", *tokens)


def token_shard():
    tokens = list(range(40))
    yield "uint16", shard(20240520, 1, 40, tokens, "H")
    yield "uint32", shard(20240801, 7, 40, tokens, "I")
    yield "uint32_large_ids", shard(20240801, 7, 40, [2**32 - 1 - t for t in tokens], "I")
    yield "empty_shard", shard(20240520, 1, 0, [], "H")
    yield "one_token", shard(20240520, 1, 1, [5], "H")
    yield "too_short", shard(20240520, 1, 41, tokens, "H")
    yield "too_long", shard(20240520, 1, 39, tokens, "H")
    yield "odd_size", shard(20240520, 1, 40, tokens, "H")[:-1]
    yield "negative", shard(20240520, 1, -1, tokens, "H")
    yield "largest_count", shard(20240801, 7, 2**31 - 1, tokens, "I")
    yield "wrong_version", shard(20240520, 7, 40, tokens, "H")
    yield "wrong_magic", shard(20240522, 1, 40, tokens, "H")
    yield "half_a_header", shard(20240520, 1, 40, tokens, "H")[:512]
    yield "empty_file", b""


def byte_alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(b) for b in printable] + [chr(0x100 + i) for i in range(68)]


def bpe(extra_vocabulary=(), merges=(), **parts):
    vocabulary = {character: i for i, character in enumerate(byte_alphabet())}
    for token in extra_vocabulary:
        vocabulary[token] = len(vocabulary)
    model = {"type": "BPE", "vocab": vocabulary, "merges": list(merges)}
    model.update(parts.pop("model", {}))
    return {"model": model, **parts}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def tokenizer_json():
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    text = b"\0ab abc  it's 12\n\n" + "\u00e9\u4f60e\u0301".encode() + b"\xff<x> <y>"
    small = {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
    files = {
        "plain": bpe(["ab", "abc"], ["a b", "ab c"], pre_tokenizer=byte_level, decoder={"type": "ByteLevel"}),
        "pairs": bpe(["ab"], [["a", "b"]], pre_tokenizer=byte_level, model={"ignore_merges": True}),
        "small": {"model": {"type": "BPE", **small}},
        "unknown": {"model": {"type": "BPE", **small, "unk_token": "ab", "fuse_unk": True}},
        "prefix": bpe(pre_tokenizer={"type": "ByteLevel"}),
        "cyclic": {
            "model": {
                "type": "BPE",
                "vocab": {"a": 0, "aa": 1, "aaa": 2, "aaaa": 3},
                "merges": ["a a", "aa a", "a aa", "aa aa", "aaa a"],
            }
        },
        "duplicate_id": {"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}},
        "huge_id": {"model": {"type": "BPE", "vocab": {"a": 2**40}, "merges": []}},
        "empty": {"model": {"type": "BPE", "vocab": {}, "merges": []}},
        "doubling": {
            "model": {"type": "BPE", **small},
            "normalizer": {
                "type": "Sequence",
                "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40,
            },
        },
        "added": bpe(
            pre_tokenizer=byte_level,
            normalizer={"type": "NFC"},
            added_tokens=[
                {"id": 256, "content": "<x>", "special": True, "lstrip": True, "rstrip": True},
                {"id": 257, "content": "<y>", "single_word": True, "normalized": True},
                {"id": 258, "content": "e\u0301", "normalized": True},
            ],
        ),
        "fallback": {
            "normalizer": {
                "type": "Sequence",
                "normalizers": [
                    {"type": "Prepend", "prepend": "\u2581"},
                    {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
                ],
            },
            "decoder": {
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
                ],
            },
            "model": {
                "type": "BPE",
                "byte_fallback": True,
                "fuse_unk": True,
                "unk_token": "<unk>",
                "merges": ["a b"],
                "vocab": {
                    "<unk>": 0,
                    **{f"<0x{b:02X}>": b + 1 for b in range(256)},
                    "a": 257,
                    "b": 258,
                    "ab": 259,
                    "\u2581": 260,
                },
            },
        },
        "template": bpe(
            ["<s>"],
            post_processor={
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]}},
            },
        ),
        "regex": bpe(
            pre_tokenizer={
                "type": "Sequence",
                "pretokenizers": [
                    split(r"\p{N}{1,3}"),
                    split(r"\s+|[^\s\w]", "MergedWithNext"),
                    split("b", "Contiguous", True),
                    byte_level,
                ],
            }
        ),
        "metaspace": {
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "\u2581": 2, "\u2581a": 3}, "merges": ["\u2581 a"]},
            "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False},
            "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"},
            "added_tokens": [{"id": 4, "content": "<x>", "special": True}],
        },
        "metaspace_split": bpe(
            pre_tokenizer={
                "type": "Sequence",
                "pretokenizers": [{"type": "Metaspace", "replacement": "b"}, split("a"), byte_level],
            }
        ),
        "backtracking": bpe(pre_tokenizer=split("(a+)+[bc]")),
    }
    for name, value in files.items():
        yield name, json.dumps(value, ensure_ascii=False).encode() + text
    for family in ["gpt2", "llama3", "qwen", "mixtral", "mistral"]:
        yield family, (GOLDEN / f"{family}.json").read_bytes() + text
    yield "deep", b"[" * 10000
    yield "empty_file", b""


def llmc_tokenizer():
    bytes_and_merges = [*(bytes([b]) for b in range(256)), b"ab", b"abc", b"it", b"look"]
    special = [b"<|%d|>" % i for i in range(4)]

    def file(magic, version, size, end_of_text, tokens):
        header = struct.pack("<256i", magic, version, size, end_of_text, *[0] * 252)
        return header + b"".join(bytes([len(token)]) + token for token in tokens)

    tokens = bytes_and_merges + special
    size, first = len(tokens), len(bytes_and_merges)
    yield "gpt2", file(20240328, 2, first + 1, first, tokens[: first + 1])
    yield "llama3", file(20240801, 2, size, first + 1, tokens)
    yield "version_1", file(20240328, 1, size, 0, tokens)
    yield "no_byte", file(20240328, 2, size, first, [*tokens[1:], b"x"])
    yield "no_merges", file(20240801, 2, size, 0, tokens)
    yield "twice", file(20240328, 2, size, first, [*tokens[:-1], b"ab"])
    yield "not_utf8", file(20240328, 2, size, first, [*tokens[:-1], b"\xff"])
    yield "empty_token", file(20240328, 2, size, first, [*tokens[:-1], b""])
    yield "cut_off", file(20240328, 2, size + 1, first, tokens)
    yield "too_long", file(20240328, 2, size - 1, first, tokens)
    yield "largest_size", file(20240328, 2, 2**31 - 1, first, tokens)
    yield "negative_size", file(20240328, 2, -1, -1, tokens)
    yield "wrong_version", file(20240328, 3, size, first, tokens)
    yield "half_a_header", file(20240328, 2, size, first, tokens)[:512]
    yield "empty_file", b""


def npy():
    for path in sorted((TESTS / "core" / "data").glob("*.npy")):
        yield path.stem, path.read_bytes()

    def file(header, data=b"", version=b"\x01\x00"):
        length = struct.pack("<H" if version[0] == 1 else "<I", len(header))
        return b"\x93NUMPY" + version + length + header.encode() + data

    def array(shape, descr="<f4", order="False"):
        return f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}}}"

    yield "any_bool", file(array("(3,)", "|b1"), b"\x00\x02\xff")
    yield "wrapping_shape", file(array("(4294967296, 4294967296, 4)"), bytes(16))
    yield "wrapping_strides", file(array("(0, 4611686018427387904, 4)", order="True"))
    yield "many_dimensions", file(array("(" + "1, " * 64 + ")"), bytes(4))
    yield "object", file(array("(1,)", "|O"), bytes(8))
    yield "header_beyond_file", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"
    yield "empty_file", b""


def tokenizer_text():
    samples = json.loads((GOLDEN / "samples.json").read_text())
    for i, text in enumerate(samples["texts"]):
        yield f"sample_{i:03}", text.encode()
    yield "not_utf8", b"a\xff\xfe b\x80\xc3 \xe2\x82"


def json_lines():
    text = {"text": "a text \u00e9\u4f60"}
    pair = {"prompt": "question: ", "completion": "answer", "id": [1, {"x": None}]}
    lines = {
        "text": [text],
        "pair": [pair, text, pair],
        "many": [{"text": "x" * (i % 40)} for i in range(100)],
        "long_prompt": [{"prompt": "p" * 30, "completion": "c"}],
        "empty": [{"text": ""}, {"prompt": "", "completion": ""}],
        "both": [{**text, **pair}],
        "other_fields": [{"instruction": "a", "output": "b"}],
        "not_a_string": [text, {"text": 5}],
        "not_an_object": [[text]],
    }
    for name, records in lines.items():
        yield name, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    yield "bom_and_blank_lines", b"\xef\xbb\xbf\r\n \n" + json.dumps(text).encode()
    yield "surrogates", b'{"text": "\\ud83d\\ude00"}\n{"text": "\\ud83d"}'
    yield "not_utf8", b'{"text": "\xff"}'
    yield "cut_off", b'{"text": "a'
    yield "deep", b"[" * 10000
    yield "empty_file", b""


def safetensors_file(tensors, data, **metadata):
    entries = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": offsets} for name, dtype, shape, offsets in tensors
    }
    header = json.dumps({**({"__metadata__": metadata} if metadata else {}), **entries}).encode()
    return struct.pack("<Q", len(header)) + header + data


def safetensors():
    data = struct.pack("<4f", 1, 2, 3, 4)
    yield "one", safetensors_file([("t", "F32", [4], [0, 16])], data, format="pt")
    yield "none", safetensors_file([], b"")
    yield "empty_and_scalar", safetensors_file([("e", "F32", [0, 3], [0, 0]), ("s", "F32", [], [0, 4])], data[:4])
    yield "not_aligned", safetensors_file([("b", "U8", [1], [0, 1]), ("t", "F32", [4], [1, 17])], b"x" + data)
    yield "other_order", safetensors_file([("a", "BF16", [2, 2], [8, 16]), ("z", "I64", [1], [0, 8])], data)
    types = {"F64": 8, "F16": 2, "I32": 4, "U16": 2, "BOOL": 1}
    for dtype, size in types.items():
        yield f"of_{dtype}", safetensors_file([("t", dtype, [16 // size], [0, 16])], data)
    yield "overlap", safetensors_file([("a", "F32", [4], [0, 16]), ("c", "F32", [4], [8, 24])], data + data[:8])
    yield "hole", safetensors_file([("a", "F32", [1], [0, 4]), ("c", "F32", [1], [12, 16])], data)
    yield "wrapping_shape", safetensors_file([("t", "F32", [2**32, 2**32, 4], [0, 16])], data)
    yield "wrapping_strides", safetensors_file([("t", "F32", [0, 2**62, 4], [0, 0])], b"")
    yield "huge_offsets", safetensors_file([("t", "F32", [4], [2**64 - 8, 8])], data)
    yield "header_beyond_file", struct.pack("<Q", 10**6) + b"{}"
    yield "deep", struct.pack("<Q", 10000) + b'{"t":' + b"[" * 9995
    yield "empty_file", b""


def decoder_configs():
    """What Llama's kin may say of rotary positions and windows."""
    sizes = {
        "vocab_size": 21,
        "max_position_embeddings": 9,
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    scaling = {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8}
    fields = {
        "old": {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **scaling}},
        "new": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **scaling}},
        "yarn": {"rope_scaling": {"rope_type": "yarn", **scaling}},
        "nested": {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
        "list": {"rope_scaling": [scaling]},
        "windows": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
        "layers": {"use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention"]},
        "huge": {"head_dim": 2**53, "num_key_value_heads": 2**53},
        "experts": {"model_type": "mixtral", "num_local_experts": 3, "num_experts_per_tok": 4},
        "no_experts": {"model_type": "mixtral", "num_local_experts": 0, "sliding_window": 0},
        "null": {"head_dim": None, "num_key_value_heads": None, "sliding_window": None},
    }
    for name, more in fields.items():
        yield f"decoder_{name}", json.dumps({"model_type": "qwen3", "head_dim": 4, **sizes, **more}).encode()


def model_config():
    sizes = {"model_type": "gpt2", "vocab_size": 21, "n_positions": 9, "n_embd": 8, "n_layer": 2, "n_head": 2}
    yield "sizes", json.dumps(sizes).encode()
    yield "all", (TESTS / "golden" / "data" / "gpt2" / "config.json").read_bytes()
    yield (
        "other_names",
        json.dumps(
            {
                "vocab_size": 21,
                "max_position_embeddings": 9,
                "hidden_size": 8,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "n_inner": 12,
                "activation_function": "gelu",
                "eos_token_id": [1, 2],
            }
        ).encode(),
    )
    for field in ["vocab_size", "n_embd", "n_head", "n_layer"]:
        for value in [-1, 0, 2**31, 2**53, 2**63 - 1, 2**64 - 1, 10**30, 1.5]:
            yield f"{field}_{value}", json.dumps({**sizes, field: value}).encode()
    llamas = ["llama", "llama_biases", "llama_one_key_head"]
    for family in [*llamas, "qwen3", "qwen3_windows", "mixtral", "mixtral_8_experts"]:
        yield family, (TESTS / "golden" / "data" / family / "config.json").read_bytes()
    yield from decoder_configs()
    yield "deep", b'{"model_type":' + b"[" * 10000
    yield "llmc", (TESTS / "golden" / "data" / "square_projection" / "llmc" / "model.bin").read_bytes()
    yield "llmc_hostile", struct.pack("<256i", 20240326, 3, *[2**31 - 1] * 6, *[0] * 248)
    # Positions, vocabulary, layers, heads, key heads, width; multiplier, multiple, epsilon, theta.
    sizes = [9, 3, 1, 2, 1, 8]
    reals = [0x3F800000, 4, 0x3727C5AC, 0x461C4000]
    # Embedding, norms, attention, MLP of width 24, last norm, head.
    values = 24 + 16 + 8 * 16 + 8 * 8 + 3 * 8 * 24 + 8 + 24
    for name, magic, version, slots, extra, size in [
        ("llama", 20240803, 3, reals, 0, 4),
        ("llama_bfloat16", 20240803, 5, [1, 4, 0, 10000], 0, 2),
        ("qwen3_interleaved", 20240804, 3, [0, *reals[1:]], 8, 4),
        ("qwen3_half_split", 20240804, 4, [24, *reals[1:]], 8, 4),
    ]:
        header = [magic, version, *sizes, *slots]
        payload = bytes(size * (values + extra))
        yield f"llmc_{name}", struct.pack("<256i", *header, *[0] * 244) + payload
        yield f"llmc_{name}_hostile", struct.pack("<256i", magic, version, *[2**31 - 1] * 12, *[0] * 242)
    # Two experts of one for a token.
    mixtral = [20260513, 2, *sizes, 2, 0, 0, 0, *reals[2:], 0, 1, 24]
    payload = bytes(4 * (values + 2 * 8 + 3 * 8 * 24))
    yield "llmc_mixtral", struct.pack("<256i", *mixtral, *[0] * 239) + payload
    yield "llmc_mixtral_hostile", struct.pack("<256i", 20260513, 2, *[2**31 - 1] * 15, *[0] * 239)
    yield "empty_file", b""


def peft_config():
    plain = {"peft_type": "LORA", "r": 2, "lora_alpha": 3, "target_modules": ["c_fc", "c_proj"]}
    yield "plain", json.dumps(plain).encode()
    for family in ["gpt2", "llama", "qwen3"]:
        path = TESTS / "golden" / "data" / "peft" / family / "adapter_config.json"
        yield family, path.read_bytes()
    for field, values in {
        "r": [-1, 0, 2**53, 2**64 - 1, 10**30, 1.5, "2"],
        "lora_alpha": [-1, 0, 1e300, "3"],
        "target_modules": [[], "", ["c_fc", 1], {"c_fc": 1}, "(", "all-linear"],
        "bias": ["none", "all", 1],
        "init_lora_weights": [True, "gaussian", "pissa", 3],
        "use_dora": [True, False, None],
    }.items():
        for index, value in enumerate(values):
            yield f"{field}_{index}", json.dumps({**plain, field: value}).encode()
    yield "list", b"[]"
    yield "deep", b'{"peft_type":' + b"[" * 10000
    yield "empty_file", b""


def training_state():
    data = {"seed": 5, "sequences_per_step": 4, "epoch": 3, "step": 2}
    plain = {"version": 1, "step": 7, "optimizer": "", "random": {"seed": 1, "offset": 2}, "data": data}
    adamw = {"optimizer": "adamw", "optimizer_step": 3, "fp8": True}
    states = {
        "plain": {},
        "adamw": adamw,
        "no_data": {"data": None},
        "other_version": {"version": 2},
        "largest": {"step": 2**53, "random": {"seed": 2**64 - 1, "offset": 2**64 - 1}},
        "too_large": {"step": 2**53 + 1},
        "real_step": {"step": 7.0},
        "optimizer_ahead": {**adamw, "optimizer_step": 8},
        "no_seed": {"random": {"offset": 2}},
        "data_of_other_types": {"data": [1, -0.0, 1e300, 2**64, "\u00e9\u4f60", True, None]},
    }
    for name, fields in states.items():
        yield name, json.dumps({**plain, **fields}).encode()
    positions = {
        "other_seed": {"seed": 6},
        "long_seed": {"seed": "x" * 1000},
        "larger_steps": {"sequences_per_step": 8, "step": 1},
        "smaller_steps": {"sequences_per_step": 1, "step": 40},
        "between_steps": {"sequences_per_step": 1, "step": 3},
        "beyond_the_epoch": {"step": 10},
        "beyond_other_steps": {"sequences_per_step": 1, "step": 2**31 - 4},
        "last_epoch": {"sequences_per_step": 1, "step": 40, "epoch": 2**53 - 1},
        "wrapping": {"sequences_per_step": 2**64 - 1, "step": 2**63},
        "real": {"epoch": 3.5},
    }
    for name, fields in positions.items():
        yield f"position_{name}", json.dumps({**plain, "data": {**data, **fields}}).encode()
    yield "position_alone", json.dumps(data).encode()
    yield "position_deep", b'{"seed":' + b"[" * 10000 + b"]" * 10000 + b"}"
    yield "repeated_name", json.dumps(plain).encode()[:-1] + b', "step": 8}'
    yield "deep", json.dumps(plain).encode()[:-1] + b', "deep": ' + b"[" * 10000
    yield "empty_file", b""


TARGETS = {
    "json_lines": json_lines,
    "token_shard": token_shard,
    "llmc_tokenizer": llmc_tokenizer,
    "npy": npy,
    "tokenizer_json": tokenizer_json,
    "tokenizer_text": tokenizer_text,
    "safetensors": safetensors,
    "model_config": model_config,
    "peft_config": peft_config,
    "training_state": training_state,
}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_corpus.py FOLDER")
    for name, seeds in TARGETS.items():
        folder = pathlib.Path(sys.argv[1]) / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for seed, content in seeds():
            (folder / seed).write_bytes(content)


main()
