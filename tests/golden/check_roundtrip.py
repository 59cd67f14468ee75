"""Opens a checkpoint folder in Transformers and says whether the trip there and back is exact.

    python tests/golden/check_roundtrip.py FOLDER [OTHER]

FOLDER must load without missing, unexpected or reshaped tensors, and what Transformers saves again
must be FOLDER's tensors, name by name and bit for bit. With OTHER, the two models must also have
the same tensors and give the same logits. Prints one line; exit status 0 if exact, 1 if not,
2 if a folder cannot be read.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

Tensors = dict[str, Tensor]


class InexactError(Exception):
    """What differs, for the user."""


def read_tensors(folder: Path) -> Tensors:
    """Every tensor of a checkpoint, over all its shards."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return load_file(folder / "model.safetensors")
    shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    return {name: tensor for shard in shards for name, tensor in load_file(folder / shard).items()}


def load(folder: Path) -> PreTrainedModel:
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype="auto", local_files_only=True, output_loading_info=True
    )
    if trouble := {kind: sorted(names) for kind, names in info.items() if names}:
        raise InexactError(f"{folder} loads with {trouble}")
    return model.eval()


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def require_same(what: str, left: Tensors, right: Tensors) -> None:
    if names := sorted(left.keys() ^ right.keys()):
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise InexactError(f"{what}: only one side has {', '.join(names[:3])}{more}")
    for name, tensor in left.items():
        other = right[name]
        if tensor.dtype != other.dtype or tensor.shape != other.shape:
            raise InexactError(
                f"{what}: {name} is {tensor.dtype} {list(tensor.shape)} and {other.dtype} {list(other.shape)}"
            )
        if bits(tensor) != bits(other):
            away = (tensor.double() - other.double()).abs().max().item()
            raise InexactError(f"{what}: {name} differs by {away:.3g}")


def logits(model: PreTrainedModel) -> Tensor:
    config = model.config
    length = min(config.max_position_embeddings, 64)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(config.vocab_size, (2, length), generator=generator)
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False).logits


def check(folder: Path, other: Path | None) -> str:
    tensors, model = read_tensors(folder), load(folder)
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        require_same(f"{folder} and Transformers' copy", tensors, read_tensors(Path(scratch)))
    found = logits(model)
    if not found.isfinite().all():
        raise InexactError(f"{folder} gives logits that are not finite")
    if other:
        require_same(f"{folder} and {other}", tensors, read_tensors(other))
        require_same(f"{folder} and {other}", {"logits": found}, {"logits": logits(load(other))})
    count = sum(tensor.numel() for tensor in tensors.values())
    against = f"equals {other}" if other else "survives Transformers"
    return f"exact: {folder} {against}, {len(tensors)} tensors, {count} values"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("other", type=Path, nargs="?")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    try:
        print(check(arguments.folder, arguments.other))
    except InexactError as difference:
        print(f"not exact: {difference}")
        return 1
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        print(f"cannot read: {' '.join(str(error).split())}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
