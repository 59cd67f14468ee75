"""Runs PyTorch (eager and compiled) and `train_step` in turn and prints how they compare.

    python benchmarks/compare.py build/cpu/benchmarks/train_step [--markdown FILE]
    python3 benchmarks/compare.py build/cuda/benchmarks/train_step --device cuda
    python3 benchmarks/compare.py build/cuda/benchmarks/train_step --device cuda \\
      --cases llama3.2-1b/8x1024:bfloat16:compile:1.2:0.8

A round runs every contender once, each in its own process, so that a machine that slows down slows
all of them; the order turns round from one round to the next. The table has medians of the rounds;
a ratio is ours over the better of PyTorch's and, in brackets, the least and the largest of a round.
Cases that differ for our program alone share PyTorch's results. Exit status 1 if a ratio is below
its case's or `--min_ratio`, or a ratio of peak memory above its case's; 2 if a contender fails.

With `--weights DIR` all start from the same weights, those of `train_step`, kept in DIR/MODEL; exit
status 1 too if the first gradient's norm or losses of the first steps are then farther apart than
rounding explains. Wide models leap at the default learning rate, and rounding with them: 1e-5 keeps
the steps comparable.
"""

import argparse
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TORCH_STEP = Path(__file__).with_name("torch_train_step.py")
EAGER, COMPILED, OURS = "PyTorch eager", "PyTorch compiled", "InfiniTrain"
MODES = {"eager": EAGER, "compile": COMPILED}
DEFAULT_CASES = {
    "cpu": ("4x64:float32", "1x1024:float32", "1x1024:bfloat16", "llama3-125m/4x64:float32"),
    "cuda": ("64x1024:bfloat16:compile", "8x1024:float32:compile", "4x64:bfloat16:eager"),
}
# What a case's type means to each side: fp8 is our option for products, beside bfloat16 in PyTorch.
TORCH_DTYPES = {"float32": "float32", "bfloat16": "bfloat16", "fp8": "bfloat16"}
# Largest relative difference from equal weights of the losses of the first steps and of the first
# gradient's norm. What rounding does to training without warm-up grows from step to step.
TOLERANCES = {"float32": 1e-4, "bfloat16": 1e-2, "fp8": 3e-2}
COMPARED_STEPS = 6
OUR_FLAGS = {
    "float32": ["--dtype", "float32"],
    "bfloat16": ["--dtype", "bfloat16"],
    "fp8": ["--dtype", "bfloat16", "--matmul_precision", "fp8"],
}


CASE_FORM = "[MODEL/]BATCHxSEQUENCE:DTYPE[:eager|compile|both[:RATIO[:MEMORY[:FLAGS]]]]"


@dataclass(frozen=True)
class Case:
    batch_size: int
    sequence_length: int
    dtype: str
    anchors: tuple[str, ...] = (EAGER, COMPILED)
    min_ratio: float = 0.0
    max_memory: float = math.inf  # the largest ratio of peak memory that passes
    model: str | None = None  # None: the one of --model
    flags: str = ""  # of our program

    @staticmethod
    def parse(text: str) -> "Case":
        try:
            *model, case = text.rsplit("/", 1)
            shape, dtype, *rest = case.split(":")
            flags = rest[3] if len(rest) > 3 else ""
            batch_size, sequence_length = (int(part) for part in shape.split("x"))
            anchors = (MODES[rest[0]],) if rest and rest[0] != "both" else tuple(MODES.values())
            min_ratio = float(rest[1]) if len(rest) > 1 else 0.0
            max_memory = float(rest[2]) if len(rest) > 2 else math.inf
            if len(rest) > 4:
                raise ValueError
        except (KeyError, ValueError):
            message = f"{text}: expected {CASE_FORM}, as in {DEFAULT_CASES['cpu'][0]} or 64x1024:bfloat16:compile:1.15"
            raise argparse.ArgumentTypeError(message) from None
        if dtype not in OUR_FLAGS:
            raise argparse.ArgumentTypeError(f"{text}: the type is one of {', '.join(OUR_FLAGS)}")
        name = model[0] if model else None
        return Case(batch_size, sequence_length, dtype, anchors, min_ratio, max_memory, name, flags)

    def __str__(self) -> str:
        name = f"{Path(self.model).name} " if self.model else ""
        flags = f", {self.flags}" if self.flags else ""
        return f"{name}{self.batch_size}x{self.sequence_length} {self.dtype}{flags}"


Results = dict[str, list[dict]]  # contender -> one result a round
Figure = Callable[[dict], float]


def run(command: tuple[str, ...], arguments: argparse.Namespace) -> dict | None:
    """The JSON line that a contender prints last."""
    environment = os.environ | {"OMP_NUM_THREADS": str(arguments.threads)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=arguments.timeout)
        status, output, errors = f"exit status {done.returncode}", done.stdout, done.stderr
    except subprocess.TimeoutExpired as expired:
        status, output, errors = "too slow", "", (expired.stderr or b"").decode(errors="replace")
    lines = output.strip().splitlines()
    if status == "exit status 0" and lines:
        try:
            return json.loads(lines[-1])
        except json.JSONDecodeError:
            pass
    sys.stderr.write(errors[-4000:])
    print(f"no result ({status}): {' '.join(command)}", file=sys.stderr)
    return None


def weights_folder(arguments: argparse.Namespace, case: Case) -> Path:
    return arguments.weights / Path(case.model or arguments.model).name


def make_weights(arguments: argparse.Namespace, case: Case) -> None:
    """Before any contender runs: `train_step` makes the folder where there is none."""
    model = case.model or arguments.model
    smallest = ("--model", model, "--batch_size", "1", "--sequence_length", "1", "--steps", "1")
    folder = weights_folder(arguments, case)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not folder.exists():
        run((str(arguments.train_step), *smallest, "--device", arguments.device, "--weights", str(folder)), arguments)


def contenders(arguments: argparse.Namespace, case: Case) -> dict[str, tuple[str, ...]]:
    common = ["--model", case.model or arguments.model, "--device", arguments.device]
    common += ["--batch_size", str(case.batch_size), "--sequence_length", str(case.sequence_length)]
    common += ["--threads", str(arguments.threads), "--steps", str(arguments.steps)]
    common += ["--learning_rate", str(arguments.learning_rate)]
    if arguments.weights:
        common += ["--weights", str(weights_folder(arguments, case))]
    torch = [arguments.python, str(TORCH_STEP), *common, "--dtype", TORCH_DTYPES[case.dtype]]
    commands = {name: (*torch, "--mode", mode) for mode, name in MODES.items() if name in case.anchors}
    if arguments.train_step:
        ours = [str(arguments.train_step), *common, "--json", *OUR_FLAGS[case.dtype]]
        commands[OURS] = (*ours, *shlex.split(case.flags), *shlex.split(arguments.train_step_flags))
    return commands


def measure(arguments: argparse.Namespace) -> dict[Case, Results]:
    """Results of all rounds, of those contenders that had one in each."""
    measured: dict[Case, Results] = {case: {} for case in arguments.cases}
    if arguments.weights:
        for case in arguments.cases:
            make_weights(arguments, case)
    for number in range(arguments.rounds):
        known: dict[tuple[str, ...], dict | None] = {}
        for case, results in measured.items():
            commands = list(contenders(arguments, case).items())
            for name, command in commands if number % 2 == 0 else reversed(commands):
                if command not in known:
                    known[command] = result = run(command, arguments)
                    if result is not None:
                        print(
                            f"{case}, round {number + 1} of {arguments.rounds}, {name}: "
                            f"{result['tokens_per_second']:.1f} tokens/s, loss {result['loss']:.4f}",
                            file=sys.stderr,
                            flush=True,
                        )
                if (result := known[command]) is not None:
                    results.setdefault(name, []).append(result)
    for results in measured.values():
        for name in list(results):
            if len(results[name]) < arguments.rounds:
                del results[name]
    return measured


def shown(value: float, form: str) -> str:
    """An empty cell where a program does not report the figure."""
    return "" if math.isnan(value) else f"{value:{form}}"


def medians(results: Results, figure: Figure, names: tuple[str, ...]) -> list[float]:
    return [statistics.median(figure(result) for result in results[name]) for name in names]


def spread(value: float, values: list[float], form: str) -> str:
    if len(values) == 1:
        return f"{value:{form}}"
    return f"{value:{form}} ({min(values):{form}} to {max(values):{form}})"


def has_ratio(case: Case, results: Results) -> bool:
    return OURS in results and all(name in results for name in case.anchors)


def ratio(case: Case, results: Results, figure: Figure, better: Callable[..., float]) -> float:
    """Ours over the better of PyTorch's medians."""
    (ours,) = medians(results, figure, (OURS,))
    return ours / better(medians(results, figure, case.anchors))


def ratios(case: Case, results: Results, figure: Figure, better: Callable[..., float]) -> list[float]:
    """The same in each round."""
    rounds = len(results[OURS])
    one = [{name: [values[i]] for name, values in results.items()} for i in range(rounds)]
    return [ratio(case, results, figure, better) for results in one]


def tokens_per_second(result: dict) -> float:
    return result["tokens_per_second"]


def peak_memory(result: dict) -> float:
    return result["peak_rss_bytes"] / 2**20


def model_memory(result: dict) -> float:
    """Without what the process took before it had a model, its libraries above all."""
    return peak_memory(result) - result.get("rss_before_model_bytes", 0) / 2**20


def device_memory(result: dict) -> float:
    return result.get("peak_device_bytes", float("nan")) / 2**20


def memory_figures(device: str) -> dict[str, Figure]:
    if device == "cpu":
        return {"peak MiB": peak_memory, "of the model": model_memory}
    return {"peak MiB on the device": device_memory}


def table(measured: dict[Case, Results], device: str) -> str:
    memory = memory_figures(device)
    unit, per_unit = ("GFLOP/s", 1.0) if device == "cpu" else ("TFLOP/s", 1e3)
    lines = [
        f"| case | program | tokens/s | step, ms | {unit} | {' | '.join(memory)} | loss |",
        f"|---|---|---:|---:|---:|{'---:|' * len(memory)}---:|",
    ]
    for case, results in measured.items():
        for name, rounds in results.items():
            step_ms, gflops, loss, speed = (
                statistics.median(result[key] for result in rounds)
                for key in ("step_ms", "gflops", "loss", "tokens_per_second")
            )
            speeds = spread(speed, [tokens_per_second(result) for result in rounds], ".0f")
            peaks = " | ".join(
                shown(statistics.median(figure(result) for result in rounds), ".0f") for figure in memory.values()
            )
            lines.append(
                f"| {case} | {name} | {speeds} | {step_ms:.2f} | {gflops / per_unit:.0f} | {peaks} | {loss:.4f} |"
            )
        if has_ratio(case, results):
            speed = spread(
                ratio(case, results, tokens_per_second, max),
                ratios(case, results, tokens_per_second, max),
                ".3f",
            )
            peaks = " | ".join(shown(ratio(case, results, figure, min), ".2f") for figure in memory.values())
            name = f"ours / {case.anchors[0] if len(case.anchors) == 1 else 'better PyTorch'}"
            lines.append(f"| {case} | **{name}** | **{speed}** | | | {peaks} | |")
    return "\n".join(lines)


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def setting(arguments: argparse.Namespace, measured: dict[Case, Results]) -> str:
    names = [name for results in measured.values() for name in MODES.values() if name in results]
    torch = next((results[name][0] for results in measured.values() for name in names if name in results), {})
    place = f"{arguments.threads} threads on {cpu_name()}"
    if arguments.device != "cpu":
        place = torch.get("device_name", arguments.device)
    ours = f" Ours with {arguments.train_step_flags}." if arguments.train_step_flags else ""
    return (
        f"{arguments.model}, {place}, {torch.get('framework', 'no PyTorch')}, "
        f"{arguments.rounds} rounds in turn of {arguments.steps} steps, medians.{ours}"
    )


def results_json(measured: dict[Case, Results], device: str) -> str:
    cases = []
    for case, results in measured.items():
        entry: dict = {"case": str(case), "results": results}
        if has_ratio(case, results):
            entry["ratio"] = ratio(case, results, tokens_per_second, max)
            entry["memory_ratio"] = {
                name: ratio(case, results, figure, min) for name, figure in memory_figures(device).items()
            }
            if case.min_ratio:
                entry["min_ratio"] = case.min_ratio
        cases.append(entry)
    return json.dumps(cases, indent=1)


def below_target(arguments: argparse.Namespace, measured: dict[Case, Results]) -> list[str]:
    below = []
    for case, results in measured.items():
        target = case.min_ratio or arguments.min_ratio or 0.0
        if target and has_ratio(case, results):
            found = ratio(case, results, tokens_per_second, max)
            if found < target:
                below.append(f"{case}: {found:.3f}, expected at least {target:g}")
        if case.max_memory < math.inf and has_ratio(case, results):
            figure = next(iter(memory_figures(arguments.device).values()))
            used = ratio(case, results, figure, min)
            if used > case.max_memory:
                below.append(f"{case}: {used:.2f} of the memory, expected at most {case.max_memory:g}")
    return below


def different_numbers(measured: dict[Case, Results]) -> list[str]:
    """Cases whose programs, from equal weights, have another first gradient or other losses in the first steps."""
    different = []
    for case, results in measured.items():
        for name in case.anchors:
            apart = {"losses": 0.0, "grad_norms": 0.0}
            for mine, theirs in zip(results.get(OURS, []), results.get(name, []), strict=False):
                for key, count in (("losses", COMPARED_STEPS), ("grad_norms", 1)):
                    for found, expected in zip(mine[key][:count], theirs[key][:count], strict=True):
                        share = abs(found - expected) / expected
                        apart[key] = max(apart[key], share if math.isfinite(share) else math.inf)
            losses, norm = apart.values()
            text = f"{case}, beside {name}: first losses at most {losses:.1e} apart, first gradient's norm {norm:.1e}"
            print(text)
            if max(losses, norm) > TOLERANCES[case.dtype]:
                different.append(f"{text}, expected {TOLERANCES[case.dtype]:g}")
    return different


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train_step", type=Path, nargs="?", help="our program; without, PyTorch only")
    parser.add_argument("--model", default="gpt2", help="preset, or folder with config.json")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ...; the same for all")
    parser.add_argument(
        "--cases",
        type=Case.parse,
        nargs="+",
        help=f"{CASE_FORM}; DTYPE float32, bfloat16 or fp8 (products, ours alone); RATIO the least that passes, "
        "MEMORY the largest ratio of peak memory, FLAGS of our program",
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--timeout", type=float, default=1800, metavar="SECONDS", help="of one program")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has PyTorch")
    parser.add_argument("--train_step_flags", default="", metavar="FLAGS", help="more flags for our program")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    parser.add_argument("--min_ratio", type=float, help="of cases without a ratio of their own")
    parser.add_argument("--weights", type=Path, metavar="DIR", help="start all from weights kept there; see above")
    arguments = parser.parse_args()
    for flag in ("threads", "steps", "rounds"):
        if getattr(arguments, flag) < 1:
            parser.error(f"--{flag}: at least 1 is needed")
    if (arguments.min_ratio or arguments.weights) and not arguments.train_step:
        parser.error("--min_ratio and --weights need train_step")
    if arguments.train_step and not arguments.train_step.is_file():
        parser.error(f"{arguments.train_step}: no such program")
    if not arguments.cases:
        kind = "cpu" if arguments.device == "cpu" else "cuda"
        arguments.cases = [Case.parse(text) for text in DEFAULT_CASES[kind]]
    return arguments


def main() -> int:
    arguments = parse_arguments()
    measured = measure(arguments)
    report = f"{setting(arguments, measured)}\n\n{table(measured, arguments.device)}\n"
    print(report, end="")
    if arguments.markdown:
        arguments.markdown.write_text(report)
    if arguments.json:
        arguments.json.write_text(results_json(measured, arguments.device))
    if any(set(results) != set(contenders(arguments, case)) for case, results in measured.items()):
        return 2
    if arguments.weights and (different := different_numbers(measured)):
        print(f"the programs differ: {'; '.join(different)}", file=sys.stderr)
        return 1
    if below := below_target(arguments, measured):
        print(f"below the target: {'; '.join(below)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
