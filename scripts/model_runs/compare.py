#!/usr/bin/env python3
"""Compares the logs of two runs of the matrix (run.py --log-dir), case by case.

    python3 scripts/model_runs/compare.py BASELINE TEST [OPTION...]

A case is compared with the one of the same path: it must have passed on both sides, with the same
steps and finite losses, which may differ by a share of the baseline's, the threshold of its dtype.
What one side lacks is a failure, and so are folders without a case. With --throughput, the mean
tokens per second, without each run's first step, may be lower by that share. Exit status 1 if
anything failed, 2 if a folder cannot be read.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import compare_metrics as metrics

PASSED = "[RESULT] passed"
# Largest differences of losses, as shares.
THRESHOLD_FP32 = 1e-5
THRESHOLD_BF16 = 1e-2


def cases(folder):
    """The relative paths of a folder's cases, without endings."""
    files = [path for ending in ("*.log", "*.jsonl") for path in folder.rglob(ending)]
    return {path.relative_to(folder).with_suffix("").as_posix() for path in files}


def read(folder, case):
    """The steps of a case; ValueError if it did not pass."""
    log, numbers = folder / f"{case}.log", folder / f"{case}.jsonl"
    for path in (log, numbers):
        if not path.is_file():
            raise ValueError(f"{path} is missing")
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if not lines or not lines[-1].startswith(PASSED):
        raise ValueError(f"{log} does not end with {PASSED}")
    steps = metrics.load(numbers)
    if not steps:
        raise ValueError(f"{numbers} has no steps")
    return steps


def list_steps(steps):
    shown = ", ".join(str(step) for step in sorted(steps)[:5])
    return shown + (f" and {len(steps) - 5} more" if len(steps) > 5 else "")


def throughput(steps):
    """Mean tokens per second of all steps but the first, which warms up."""
    rates = [steps[step].get("tokens_per_second") for step in sorted(steps)[1:]]
    if not rates or not all(metrics.is_finite(rate) and rate > 0 for rate in rates):
        raise ValueError("no tokens per second to compare")
    return sum(rates) / len(rates)


def threshold_of(case, options):
    """run.py sees to it that the names of bfloat16 cases say so."""
    return options.threshold_bf16 if "bfloat16" in case.rpartition("/")[2] else options.threshold_fp32


def compare_case(case, options):
    """What is right about a case; ValueError with what is wrong."""
    baseline, test = read(options.baseline, case), read(options.test, case)
    for name, surplus in (("the test", baseline.keys() - test.keys()), ("the baseline", test.keys() - baseline.keys())):
        if surplus:
            raise ValueError(f"{name} lacks steps: {list_steps(surplus)}")
    result = metrics.compare(test, baseline, threshold_of(case, options))
    if result.problem:
        raise ValueError(result.problem)
    summary = f"{len(result.steps)} steps, at most {result.worst:.1e} apart"
    if options.throughput is not None:
        before, now = throughput(baseline), throughput(test)
        change = now / before - 1.0
        speed = f"{before:.0f} to {now:.0f} tokens per second, {100 * change:+.1f}%"
        if change < -options.throughput:
            raise ValueError(f"slower: {speed}")
        summary += f", {speed}"
    return summary


def share(text):
    value = float(text)
    if not 0.0 <= value < float("inf"):
        raise ValueError
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baseline", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument(
        "--threshold-fp32", type=share, default=THRESHOLD_FP32, metavar="SHARE", help="of float32 (%(default)g)"
    )
    parser.add_argument(
        "--threshold-bf16", type=share, default=THRESHOLD_BF16, metavar="SHARE", help="of bfloat16 (%(default)g)"
    )
    parser.add_argument("--throughput", type=share, metavar="SHARE", help="compare tokens per second too")
    parser.add_argument("--verbose", action="store_true", help="a line for each case that passes too")
    options = parser.parse_args()
    for folder in (options.baseline, options.test):
        if not folder.is_dir():
            print(f"compare.py: {folder} is no folder", file=sys.stderr)
            return 2
    names = sorted(cases(options.baseline) | cases(options.test))
    failures = 0
    for case in names:
        try:
            summary = compare_case(case, options)
            if options.verbose:
                print(f"{case}: {summary}")
        except (OSError, ValueError) as error:
            failures += 1
            print(f"{case}: FAILED: {error}")
    if not names:
        print("no cases in either folder")
    print(f"{len(names)} cases compared, {failures} failed")
    return 1 if failures or not names else 0


if __name__ == "__main__":
    sys.exit(main())
