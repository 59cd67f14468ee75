"""Runs PyTorch (eager and compiled) and `train_step` in turn and prints how they compare.

    python benchmarks/compare.py build/cpu/benchmarks/train_step [--markdown FILE]

A round runs every contender once, each in its own process, so that a machine that slows down slows
all of them; the order turns round from one round to the next. A ratio is ours over the better of
PyTorch's two in the same round; the table has the median of the rounds and, in brackets, the least
and the largest. Exit status 1 if `--min_ratio` is given and not reached, 2 if a contender fails.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TORCH_STEP = Path(__file__).with_name("torch_train_step.py")
EAGER, COMPILED, OURS = "PyTorch eager", "PyTorch compiled", "InfiniTrain"
DEFAULT_CASES = ("4x64:float32", "1x1024:float32", "1x1024:bfloat16")


@dataclass(frozen=True)
class Case:
    batch_size: int
    sequence_length: int
    dtype: str

    @staticmethod
    def parse(text: str) -> "Case":
        try:
            shape, dtype = text.split(":")
            batch_size, sequence_length = (int(part) for part in shape.split("x"))
        except ValueError:
            message = f"{text}: expected BATCHxSEQUENCE:DTYPE, as in {DEFAULT_CASES[0]}"
            raise argparse.ArgumentTypeError(message) from None
        if dtype not in ("float32", "bfloat16"):
            raise argparse.ArgumentTypeError(f"{text}: the type is float32 or bfloat16")
        return Case(batch_size, sequence_length, dtype)

    def __str__(self) -> str:
        return f"{self.batch_size}x{self.sequence_length} {self.dtype}"


Results = dict[str, list[dict]]  # contender -> one result a round
Figure = Callable[[dict], float]


def run(command: list[str], threads: int) -> dict:
    """The JSON line that a contender prints last."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        try:
            return json.loads(lines[-1])
        except json.JSONDecodeError:
            pass
    sys.stderr.write(done.stderr)
    print(f"no result (exit status {done.returncode}): {' '.join(command)}", file=sys.stderr)
    raise SystemExit(2)


def contenders(arguments: argparse.Namespace, case: Case) -> dict[str, list[str]]:
    common = ["--model", arguments.model, "--batch_size", str(case.batch_size)]
    common += ["--sequence_length", str(case.sequence_length), "--dtype", case.dtype]
    common += ["--threads", str(arguments.threads), "--steps", str(arguments.steps)]
    torch = [arguments.python, str(TORCH_STEP), *common, "--mode"]
    commands = {EAGER: [*torch, "eager"], COMPILED: [*torch, "compile"]}
    if arguments.train_step:
        commands[OURS] = [str(arguments.train_step), *common, "--json"]
    return commands


def measure(arguments: argparse.Namespace, case: Case) -> Results:
    commands = contenders(arguments, case)
    results: Results = {name: [] for name in commands}
    names = list(commands)
    for number in range(arguments.rounds):
        for name in names:
            result = run(commands[name], arguments.threads)
            results[name].append(result)
            print(
                f"{case}, round {number + 1} of {arguments.rounds}, {name}: "
                f"{result['tokens_per_second']:.1f} tokens/s, loss {result['loss']:.4f}",
                file=sys.stderr,
            )
        names.reverse()
    return results


def spread(values: list[float], form: str) -> str:
    median = f"{statistics.median(values):{form}}"
    if len(values) == 1:
        return median
    return f"{median} ({min(values):{form}} to {max(values):{form}})"


def ratios(results: Results, figure: Figure, better: Callable[..., float]) -> list[float]:
    """Ours over the better of PyTorch's two, round by round."""
    rounds = zip(results[OURS], results[EAGER], results[COMPILED], strict=True)
    return [figure(ours) / better(figure(eager), figure(comp)) for ours, eager, comp in rounds]


def tokens_per_second(result: dict) -> float:
    return result["tokens_per_second"]


def peak_memory(result: dict) -> float:
    return result["peak_rss_bytes"] / 2**20


def model_memory(result: dict) -> float:
    """Without what the process took before it had a model, its libraries above all."""
    return peak_memory(result) - result.get("rss_before_model_bytes", 0) / 2**20


def table(measured: dict[Case, Results]) -> str:
    lines = [
        "| case | program | tokens/s | step, ms | GFLOP/s | peak MiB | of the model | loss |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for case, results in measured.items():
        for name, rounds in results.items():
            step_ms, gflops, loss = (
                statistics.median(result[key] for result in rounds) for key in ("step_ms", "gflops", "loss")
            )
            speed = spread([tokens_per_second(result) for result in rounds], ".0f")
            peak, model = (
                statistics.median(figure(result) for result in rounds) for figure in (peak_memory, model_memory)
            )
            lines.append(
                f"| {case} | {name} | {speed} | {step_ms:.1f} | {gflops:.0f} | {peak:.0f} | {model:.0f} | {loss:.4f} |"
            )
        if OURS in results:
            speed = spread(ratios(results, tokens_per_second, max), ".2f")
            peak = statistics.median(ratios(results, peak_memory, min))
            model = statistics.median(ratios(results, model_memory, min))
            lines.append(f"| {case} | **ours / PyTorch** | **{speed}** | | | {peak:.2f} | {model:.2f} | |")
    return "\n".join(lines)


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def setting(arguments: argparse.Namespace, measured: dict[Case, Results]) -> str:
    torch = next(iter(measured.values()))[EAGER][0]["framework"]
    return (
        f"{arguments.model}, {arguments.threads} threads on {cpu_name()}, {torch}, "
        f"{arguments.rounds} rounds in turn of {arguments.steps} steps, medians."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train_step", type=Path, nargs="?", help="our program; without, PyTorch only")
    parser.add_argument("--model", default="gpt2", help="preset, or folder with config.json")
    parser.add_argument("--cases", type=Case.parse, nargs="+", default=[Case.parse(text) for text in DEFAULT_CASES])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable, help="interpreter that has PyTorch")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table there")
    parser.add_argument("--min_ratio", type=float, help="fail if a case's median is below")
    arguments = parser.parse_args()
    for flag in ("threads", "steps", "rounds"):
        if getattr(arguments, flag) < 1:
            parser.error(f"--{flag}: at least 1 is needed")
    if arguments.min_ratio and not arguments.train_step:
        parser.error("--min_ratio needs train_step")
    if arguments.train_step and not arguments.train_step.is_file():
        parser.error(f"{arguments.train_step}: no such program")

    measured = {case: measure(arguments, case) for case in arguments.cases}
    report = f"{setting(arguments, measured)}\n\n{table(measured)}\n"
    print(report, end="")
    if arguments.markdown:
        arguments.markdown.write_text(report)
    if arguments.min_ratio:
        slow = [
            str(case)
            for case, results in measured.items()
            if statistics.median(ratios(results, tokens_per_second, max)) < arguments.min_ratio
        ]
        if slow:
            print(f"below {arguments.min_ratio}: {', '.join(slow)}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
