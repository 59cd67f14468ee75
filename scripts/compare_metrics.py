"""Checks the metrics files of training runs (`infini-train train --metrics_file`).

    python3 scripts/compare_metrics.py same A B [--relative TOLERANCE] [--steps N]
    python3 scripts/compare_metrics.py steady FILE [--after STEP]

`same`: the steps that both files have gave the same loss, gradient norm and learning rate, exactly,
or with --relative the same loss within that share; N steps must be in both. `steady`: all losses are
finite, and the memory figures never exceed those of the steps up to STEP. Exit status 1 if not.
"""

import argparse
import json
import math
import sys
from pathlib import Path

FIGURES = ("loss", "grad_norm", "lr")
MEMORY = ("peak_used_bytes", "peak_reserved_bytes")


def load(path: Path) -> dict[int, dict]:
    """The lines of training steps; validations have lines of their own."""
    records = (json.loads(line) for line in path.read_text().splitlines())
    return {record["step"]: record for record in records if "loss" in record}


def same(a: Path, b: Path, relative: float | None, steps: int | None) -> str | None:
    """What differs first, if anything does."""
    first, second = load(a), load(b)
    common = sorted(first.keys() & second.keys())
    if not common or (steps is not None and len(common) != steps):
        return f"{len(common)} steps in both files, expected {steps or 'some'}"
    worst = 0.0
    for step in common:
        for figure in FIGURES if relative is None else FIGURES[:1]:
            x, y = first[step].get(figure), second[step].get(figure)
            if relative is None:
                if x != y:
                    return f"step {step}: {figure} {x} and {y}"
                continue
            if not all(isinstance(value, float) and math.isfinite(value) for value in (x, y)):
                return f"step {step}: {figure} {x} and {y}"
            worst = max(worst, abs(x - y) / abs(y))
    if relative is not None and worst > relative:
        return f"losses of {len(common)} steps are up to {worst:.1e} apart, expected {relative:.0e}"
    apart = "equal" if relative is None else f"at most {worst:.1e} apart"
    print(f"steps {common[0]} to {common[-1]}: {apart}")
    return None


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
    arguments = parser.parse_args()
    if arguments.command == "same":
        problem = same(arguments.a, arguments.b, arguments.relative, arguments.steps)
    else:
        problem = steady(arguments.file, arguments.after)
    if problem:
        print(problem, file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
