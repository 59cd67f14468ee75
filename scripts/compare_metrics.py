"""Checks the metrics files of training runs (`infini-train train --metrics_file`).

    python3 scripts/compare_metrics.py same A B [--relative TOLERANCE] [--steps N]
    python3 scripts/compare_metrics.py steady FILE [--after STEP]
    python3 scripts/compare_metrics.py speed A B [A B]... [--at_least RATIO] [--after STEP]

`same`: the steps that both files have gave the same loss, gradient norm and learning rate, exactly,
or with --relative the same loss within that share; N steps must be in both. `steady`: all losses are
finite, and the memory figures never exceed those of the steps up to STEP. `speed`: the median step of
all A files behind STEP takes at most 1 / RATIO of the time of that of all B files; runs that took turns
come in pairs. Exit status 1 if not.

scripts/model_runs/compare.py compares folders of such files.
"""

import argparse
import json
import math
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

FIGURES = ("loss", "grad_norm", "lr")
MEMORY = ("peak_used_bytes", "peak_reserved_bytes")


def load(path: Path) -> dict[int, dict]:
    """The lines of training steps; validations have lines of their own."""
    records = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            record = json.loads(line)
            step, is_step = record["step"], "loss" in record
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{path}: line {number} is no metrics of a step") from error
        if is_step and step in records:
            raise ValueError(f"{path}: step {step} is there twice")
        if is_step:
            records[step] = record
    return records


def is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclass
class Comparison:
    """The steps that both runs have, how far apart their losses are, and what is wrong, if anything is."""

    steps: list[int]
    worst: float = 0.0
    problem: str | None = None


def compare(first: dict[int, dict], second: dict[int, dict], relative: float | None = None) -> Comparison:
    """Exactly, or with `relative` the losses alone, whose difference may be that share of the second."""
    result = Comparison(sorted(first.keys() & second.keys()))
    worst_step = None
    for step in result.steps:
        if relative is None:
            for figure in FIGURES:
                x, y = first[step].get(figure), second[step].get(figure)
                if x != y:
                    result.problem = f"step {step}: {figure} {x} and {y}"
                    return result
        x, y = first[step].get("loss"), second[step].get("loss")
        if not (is_finite(x) and is_finite(y)):
            result.problem = f"step {step}: loss {x} and {y}"
            return result
        apart = abs(x - y)
        share = apart / abs(y) if y else math.inf if apart else 0.0
        if share > result.worst:
            result.worst, worst_step = share, step
    if relative is not None and result.worst > relative:
        apart = f"up to {result.worst:.1e} apart, expected {relative:g}; furthest in step {worst_step}"
        result.problem = f"losses of {len(result.steps)} steps are {apart}"
    return result


def same(a: Path, b: Path, relative: float | None, steps: int | None) -> str | None:
    """What differs first, if anything does."""
    result = compare(load(a), load(b), relative)
    count = len(result.steps)
    if not count or (steps is not None and count != steps):
        return f"{count} steps in both files, expected {steps or 'some'}"
    if result.problem is None:
        apart = "equal" if relative is None else f"at most {result.worst:.1e} apart"
        print(f"steps {result.steps[0]} to {result.steps[-1]}: {apart}")
    return result.problem


def steady(path: Path, after: int) -> str | None:
    records = load(path)
    for step, record in records.items():
        for figure in FIGURES[:2]:
            if not isinstance(record[figure], (int, float)):
                return f"step {step}: {figure} is {record[figure]}"
    early = [record for step, record in records.items() if step <= after]
    late = [record for step, record in records.items() if step > after]
    if not early or not late:
        return f"no steps up to and after step {after}"
    for figure in MEMORY:
        most = max(record[figure] for record in early)
        grown = max(record[figure] for record in late)
        if grown > most:
            return f"{figure} grew from {most:.0f} to {grown:.0f} after step {after}"
        print(f"{figure}: {grown:.0f} in the steps after {after}, {most:.0f} before")
    return None


def median_milliseconds(paths: list[Path], after: int) -> float:
    values = []
    for path in paths:
        times = [record.get("milliseconds") for step, record in load(path).items() if step > after]
        if not times or not all(is_finite(time) and time > 0 for time in times):
            raise ValueError(f"{path}: no times of the steps after step {after}")
        values += times
    return statistics.median(values)


def speed(pairs: list[Path], at_least: float | None, after: int) -> str | None:
    if len(pairs) % 2:
        return f"expected pairs of files, got {len(pairs)}"
    first, second = (median_milliseconds(pairs[side::2], after) for side in (0, 1))
    ratio = second / first
    print(f"{first:.2f} ms a step beside {second:.2f} ms: {ratio:.2f} times as fast")
    if at_least is not None and ratio < at_least:
        return f"{ratio:.2f} times as fast, expected {at_least:g}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("same")
    command.add_argument("a", type=Path)
    command.add_argument("b", type=Path)
    command.add_argument("--relative", type=float)
    command.add_argument("--steps", type=int)
    command = commands.add_parser("steady")
    command.add_argument("file", type=Path)
    command.add_argument("--after", type=int, default=1)
    command = commands.add_parser("speed")
    command.add_argument("pairs", type=Path, nargs="+")
    command.add_argument("--at_least", type=float)
    command.add_argument("--after", type=int, default=1)
    arguments = parser.parse_args()
    try:
        if arguments.command == "same":
            problem = same(arguments.a, arguments.b, arguments.relative, arguments.steps)
        elif arguments.command == "steady":
            problem = steady(arguments.file, arguments.after)
        else:
            problem = speed(arguments.pairs, arguments.at_least, arguments.after)
    except (OSError, ValueError) as error:
        problem = str(error)
    if problem:
        print(problem, file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
