"""A GPT-2 of 1 layer and width 4 whose attention output projection is square, in four layouts.

Conv1D stores matrices as (in, out). A reader that forgets to transpose fails on every other matrix,
but not on a square one, so only numbers can tell. The weights follow a formula and the expected
numbers are known from two independent computations, so this also checks the generator.
"""

import json
import struct
from pathlib import Path

import numpy as np
import reference
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, GPT2Config

NAME = "square_projection"

CONFIG = {
    "model_type": "gpt2",
    "vocab_size": 11,
    "n_positions": 8,
    "n_embd": 4,
    "n_layer": 1,
    "n_head": 2,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "attn_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "bos_token_id": None,
    "eos_token_id": None,
}
# In the order of llm.c's payload, which is also the order of the formula.
SHAPES = {
    "wte.weight": (11, 4),
    "wpe.weight": (8, 4),
    "h.0.ln_1.weight": (4,),
    "h.0.ln_1.bias": (4,),
    "h.0.attn.c_attn.weight": (4, 12),
    "h.0.attn.c_attn.bias": (12,),
    "h.0.attn.c_proj.weight": (4, 4),
    "h.0.attn.c_proj.bias": (4,),
    "h.0.ln_2.weight": (4,),
    "h.0.ln_2.bias": (4,),
    "h.0.mlp.c_fc.weight": (4, 16),
    "h.0.mlp.c_fc.bias": (16,),
    "h.0.mlp.c_proj.weight": (16, 4),
    "h.0.mlp.c_proj.bias": (4,),
    "ln_f.weight": (4,),
    "ln_f.bias": (4,),
}
INPUT_IDS, LABELS = [1, 5, 2, 7, 3], [5, 2, 7, 3, 9]
LOSS, LOSS_TOLERANCE = 2.474821, 2e-6
LAST_LOGITS = [
    *(-0.110149, -0.323603, 0.245878, 0.669425, -0.358607, -0.232771),
    *(-0.056159, 0.152342, -0.156023, -0.620030, 0.092845),
]
LOGITS_TOLERANCE = 1e-5

LLMC_MAGIC, LLMC_FLOAT32, LLMC_HEADER_SLOTS, LLMC_PADDED_VOCAB = 20240326, 3, 256, 128
LLMC_FILE_BYTES = 4208


def weights() -> dict[str, Tensor]:
    result = {}
    for number, (name, shape) in enumerate(SHAPES.items(), start=1):
        k = np.arange(np.prod(shape), dtype=np.int64)
        values = ((131 * number + 71 * k + 7 * k * k) % 251 - 125) / 500
        if "ln_" in name and name.endswith("weight"):
            values += 1
        result[name] = torch.from_numpy(values.reshape(shape).astype(np.float32))
    return result


def write_llmc(path: Path, tensors: dict[str, Tensor]) -> None:
    c = CONFIG
    header = [
        LLMC_MAGIC,
        LLMC_FLOAT32,
        c["n_positions"],
        c["vocab_size"],
        c["n_layer"],
        c["n_head"],
    ]
    header += [c["n_embd"], LLMC_PADDED_VOCAB]
    header += [0] * (LLMC_HEADER_SLOTS - len(header))
    with path.open("wb") as file:
        file.write(struct.pack(f"<{LLMC_HEADER_SLOTS}i", *header))
        for name in SHAPES:
            values = tensors[name].numpy()
            if name == "wte.weight":
                values = np.pad(values, ((0, LLMC_PADDED_VOCAB - len(values)), (0, 0)))
            elif name.startswith("h.") and values.ndim == 2:
                values = values.T
            file.write(np.ascontiguousarray(values, dtype="<f4").tobytes())


def read_llmc(path: Path) -> dict[str, Tensor]:
    """Reads the file without the writer's help, into checkpoint names and layout."""
    data = path.read_bytes()
    if len(data) != LLMC_FILE_BYTES:
        raise SystemExit(f"{path.name}: {len(data)} bytes, expected {LLMC_FILE_BYTES}")
    payload = np.frombuffer(data, dtype="<f4", offset=4 * LLMC_HEADER_SLOTS)
    tensors, begin = {}, 0
    for name, shape in SHAPES.items():
        stored = (LLMC_PADDED_VOCAB, shape[1]) if name == "wte.weight" else shape
        values = payload[begin : begin + np.prod(stored)]
        begin += len(values)
        if name == "wte.weight":
            values = values.reshape(stored)[: shape[0]]
        elif name.startswith("h.") and len(shape) == 2:
            values = values.reshape(shape[::-1]).T
        tensors[name] = torch.tensor(values).reshape(shape)
    assert begin == len(payload)
    return tensors


def require_expected(what: str, logits: Tensor) -> None:
    loss = F.cross_entropy(logits[0].double(), torch.tensor(LABELS)).item()
    if abs(loss - LOSS) > LOSS_TOLERANCE:
        raise SystemExit(f"{what}: loss {loss:.7f}, expected {LOSS}")
    away = (logits[0, -1].double() - torch.tensor(LAST_LOGITS, dtype=torch.float64)).abs().max()
    if away > LOGITS_TOLERANCE:
        raise SystemExit(f"{what}: logits are {away:.1e} away from the expected ones")


def write(folder: Path) -> None:
    plain = weights()
    length = CONFIG["n_positions"]
    mask = torch.ones(length, length, dtype=torch.float32).tril().view(1, 1, length, length)
    layouts = {
        "plain": plain,
        "prefixed": {f"transformer.{name}": tensor for name, tensor in plain.items()},
        "mask_buffer": plain | {"h.0.attn.bias": mask},
    }
    ids = torch.tensor([INPUT_IDS])
    for layout, tensors in layouts.items():
        target = folder / layout
        target.mkdir(parents=True, exist_ok=True)
        (target / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
        save_file(tensors, target / "model.safetensors", {"format": "pt"})
        with torch.no_grad():
            logits = AutoModelForCausalLM.from_pretrained(target).eval()(ids).logits
        require_expected(f"{NAME}/{layout}", logits)

    llmc = folder / "llmc" / "model.bin"
    llmc.parent.mkdir(exist_ok=True)
    write_llmc(llmc, plain)
    exact = {name: tensor.double() for name, tensor in read_llmc(llmc).items()}
    logits = reference.forward(GPT2Config(**CONFIG), exact, ids).logits
    require_expected(f"{NAME}/llmc", logits)

    expected = {
        "input_ids": INPUT_IDS,
        "labels": LABELS,
        "loss": LOSS,
        "loss_tolerance": LOSS_TOLERANCE,
        "last_logits": LAST_LOGITS,
        "logits_tolerance": LOGITS_TOLERANCE,
    }
    (folder / "golden.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(f"{NAME}: four layouts give loss {LOSS}")
