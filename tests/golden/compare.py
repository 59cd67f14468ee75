"""Compares a freshly generated folder of golden files with the committed one."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

# Another CPU rounds differently; a changed generator changes far more.
TOLERANCE = 1e-4
# How far a run is from float64 is rounding itself, and the versions name the machine's Python.
UNCOMPARED = ("measured_error", "versions")


def differences(fresh: Path, committed: Path) -> list[str]:
    """What differs, one line each; empty if nothing does."""
    names = [sorted(p.relative_to(d).as_posix() for p in d.rglob("*.*")) for d in (fresh, committed)]
    if names[0] != names[1]:
        return [f"files: generated {names[0]}, committed {names[1]}"]
    return [line for name in names[0] for line in _file(name, fresh / name, committed / name)]


def _file(name: str, fresh: Path, committed: Path) -> Iterator[str]:
    if fresh.read_bytes() == committed.read_bytes():
        return
    if fresh.suffix == ".json":
        values = (json.loads(path.read_text()) for path in (fresh, committed))
        yield from _json(name, *values)
    elif fresh.suffix == ".safetensors" and fresh.name != "model.safetensors":
        yield from _tensors(name, load_file(fresh), load_file(committed))
    else:
        yield f"{name}: other bytes"


def _tensors(name: str, fresh: dict, committed: dict) -> Iterator[str]:
    if fresh.keys() != committed.keys():
        yield f"{name}: generated {sorted(fresh)}, committed {sorted(committed)}"
        return
    for key, value in fresh.items():
        other = committed[key]
        if value.shape != other.shape or value.dtype != other.dtype:
            yield f"{name}: {key} is {_kind(value)}, was {_kind(other)}"
            continue
        distance = (value.double() - other.double()).abs().max()
        if not distance <= TOLERANCE * other.double().abs().max():
            yield f"{name}: {key} is {distance:.2e} away"


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"


def _json(where: str, fresh: Any, committed: Any) -> Iterator[str]:
    if isinstance(fresh, dict) and isinstance(committed, dict):
        for key in sorted((fresh.keys() | committed.keys()) - set(UNCOMPARED)):
            yield from _json(f"{where}: {key}", fresh.get(key), committed.get(key))
    elif isinstance(fresh, list) and isinstance(committed, list) and len(fresh) == len(committed):
        for index, pair in enumerate(zip(fresh, committed, strict=True)):
            yield from _json(f"{where}[{index}]", *pair)
    elif isinstance(fresh, float) and isinstance(committed, float):
        if not math.isclose(fresh, committed, rel_tol=TOLERANCE):
            yield f"{where}: {fresh}, was {committed}"
    elif fresh != committed:
        yield f"{where}: {fresh}, was {committed}"
