#!/usr/bin/env python3
"""Runs the matrix of model runs with the programs of a build.

    python3 scripts/model_runs/run.py --build-dir build/sim --log-dir runs/sim --device sim
    python3 scripts/model_runs/run.py --build-dir build/sim --override nano --list

A case is a training; its output goes to LOG_DIR/GROUP/MODEL_ID.log and its numbers to .jsonl beside
it. It passes if the program succeeds, every step is there with a finite loss, and, where the matrix
says which case it matches, the losses are those of that case. What a build, or the machine, cannot
run yet is listed as pending, with what it needs. Exit status 1 if a case failed or none ran, 2 if
something is wrong with the matrix, the options or the build.
"""

import argparse
import contextlib
import itertools
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import compare
import merge
import programs

LAST_LINES = 20


@dataclass
class Run:
    """A case of the matrix for one model, and what became of it."""

    group: str
    case: str
    model: str
    program: str
    processes: int
    arguments: dict[str, str]
    source: "Run | None" = None  # whose checkpoint it loads
    matches: str | None = None
    status: str = ""  # passed, failed or pending
    reason: str = ""

    @property
    def name(self):
        return f"{self.group}/{self.model}_{self.case}"

    @property
    def steps(self):
        """The steps that it makes."""
        loads = merge.STEP_FOLDER.match(self.arguments.get("load", ""))
        return range(int(loads[2]) + 1 if loads else 1, int(self.arguments["num_iteration"]) + 1)

    @property
    def devices(self):
        return self.processes * int(self.arguments.get("nthread_per_process", 1))


@dataclass
class Setting:
    """Where things are written and how programs are started."""

    build: programs.Build
    device: str
    log_dir: Path
    checkpoints: Path
    timeout: float
    input_bin: str = ""
    device_counts: dict[str, int] = field(default_factory=dict)

    def file(self, name, ending):
        return self.log_dir / f"{name}{ending}"


def emit(arguments):
    """Flags with their values. A boolean's is never a word of its own: some parsers would not read it."""
    return [f"--{flag}={value}" for flag, value in arguments.items()]


def selected(matrix, only, models):
    """The (group, case id, model) triples that were asked for, in the order of the matrix."""
    wanted = set()
    for entry in only:
        group, slash, case = entry.partition("/")
        if group not in matrix["groups"]:
            raise merge.ConfigError(f"--only: no group {group!r}; there are {', '.join(matrix['groups'])}")
        cases = matrix["groups"][group]["cases"]
        if slash and case not in cases:
            raise merge.ConfigError(f"--only: no case {case!r} in {group}; there are {', '.join(cases)}")
        wanted |= {(group, case)} if slash else {(group, case) for case in cases}
    for model in models:
        if model not in matrix["models"]:
            raise merge.ConfigError(f"--model: no model {model!r}; there are {', '.join(matrix['models'])}")
    for group_name, group in matrix["groups"].items():
        for case in group["cases"]:
            for model in matrix["models"]:
                asked = (not models or model in models) and (not only or (group_name, case) in wanted)
                if asked and model in group["models"]:
                    yield group_name, case, model


def plan(matrix, only, models, checkpoints):
    """The runs, in order."""
    runs = {}
    for group_name, case_id, model in selected(matrix, only, models):
        group = matrix["groups"][group_name]
        case = group["cases"][case_id]
        variables = {"checkpoints": str(checkpoints / group_name / model)}
        run = Run(
            group_name,
            case_id,
            model,
            merge.substitute(matrix["models"][model]["program"], matrix["variables"], merge.Place("program")),
            group.get("processes", 1),
            merge.arguments(matrix, model, case, variables),
        )
        if source := merge.source_of(group, case_id):
            run.source = runs.get(f"{group_name}/{model}_{source}")
            if run.source is None:
                raise merge.ConfigError(f"--only: {group_name}/{case_id} loads what {source} saves; name both")
        if "matches" in case:
            run.matches = case["matches"].replace("/", f"/{model}_", 1)
        runs[run.name] = run
    if not runs:
        raise merge.ConfigError("no case is selected")
    return runs


def find_device(device, counts):
    """The device that `auto` means, and that a device of the kind is there."""
    if device == "auto":
        return next(iter(counts), "cpu")
    kind = device.partition(":")[0]
    if kind != "cpu" and kind not in counts:
        raise merge.ConfigError(f"--device: no {kind}; there are {', '.join(['cpu', *counts])}")
    return device


def pending_reason(run, setting):
    """What a run needs that is not there; None if nothing is missing."""
    for program in (run.program, *(["infini_run"] if run.processes > 1 else [])):
        if not setting.build.has(program):
            return f"needs the program {program}"
    if lacks := setting.build.lacks(run.program, run.arguments):
        return f"needs {' '.join(lacks)}"
    kind = setting.device.partition(":")[0]
    if kind != "cpu" and run.devices > setting.device_counts[kind]:
        return f"needs {run.devices} devices of {kind}, found {setting.device_counts[kind]}"
    if run.source and run.source.status == "pending":
        return f"needs {run.source.name}"
    return None


def make_tokens(setting):
    """Token files of a text that is the same wherever it is made."""
    folder = setting.log_dir / "data"
    if not list(folder.glob("train_*.bin")):
        # Of the generator's functions only random() promises the same numbers in every version.
        number = random.Random(20260101).random
        letters = "etaoinshrdlu"
        words = ["".join(letters[int(12 * number())] for _ in range(1 + int(8 * number()))) for _ in range(300)]
        text = " ".join(words[int(300 * number() ** 2)] for _ in range(50_000))
        corpus = setting.log_dir / "corpus.txt"
        corpus.parent.mkdir(parents=True, exist_ok=True)
        corpus.write_text(text, encoding="ascii")
        tokenize = [setting.build.program("infini-train"), "tokenize", "--tokenizer=bytes", "--val_fraction=0"]
        programs.ask([*tokenize, "--overwrite=true", f"--output={folder}", str(corpus)])
        # Beside its data, a tokenizer would set the size of the models' vocabularies.
        (folder / "tokenizer.json").unlink(missing_ok=True)
        corpus.unlink()
    return str(folder / "train_*.bin")


def command_of(run, setting):
    given = {"input_bin": setting.input_bin, "device": setting.device}
    files = {"metrics_file": str(setting.file(run.name, ".jsonl"))}
    launcher = [str(setting.build.program("infini_run")), f"--nproc_per_node={run.processes}"]
    command = [str(setting.build.program(run.program)), *emit(given | run.arguments | files)]
    return launcher + command if run.processes > 1 else command


def execute(command, log, timeout):
    """Runs a command whose output goes to an open file; what went wrong, if anything did."""
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        status = process.wait(timeout)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            return f"not done after {timeout:g} s"
        raise
    if status < 0:
        return f"ended by signal {-status}"
    return f"exit status {status}" if status else None


def check_metrics(run, runs, setting):
    """What is right about the numbers of a run; ValueError with what is wrong."""
    steps = compare.metrics.load(setting.file(run.name, ".jsonl"))
    missing, surplus = set(run.steps) - steps.keys(), steps.keys() - set(run.steps)
    for kind, found in (("missing", missing), ("unexpected", surplus)):
        if found:
            raise ValueError(f"{kind} steps: {compare.list_steps(found)}")
    for step, record in steps.items():
        if not compare.metrics.is_finite(record["loss"]):
            raise ValueError(f"step {step}: the loss is {record['loss']}")
    if run.matches is None:
        return ""
    other = runs.get(run.matches)
    if other is None or other.status != "passed":
        return f"; not compared with {run.matches}, which did not pass here"
    other_steps = compare.metrics.load(setting.file(other.name, ".jsonl"))
    # What goes on from a checkpoint repeats the run that was not interrupted.
    bfloat16 = run.arguments.get("dtype") == "bfloat16"
    relative = None if run.source else compare.THRESHOLD_BF16 if bfloat16 else compare.THRESHOLD_FP32
    result = compare.metrics.compare(steps, other_steps, relative)
    if len(result.steps) < len(steps):
        raise ValueError(f"{run.matches} lacks steps: {compare.list_steps(steps.keys() - other_steps.keys())}")
    if result.problem:
        raise ValueError(f"unlike {run.matches}: {result.problem}")
    return f"; as {run.matches}, " + ("exactly" if relative is None else f"at most {result.worst:.1e} apart")


def run_case(run, runs, setting):
    """Runs a case and sets its status and reason."""
    log_path, metrics = setting.file(run.name, ".log"), setting.file(run.name, ".jsonl")
    log_path.parent.mkdir(parents=True, exist_ok=True)
    metrics.unlink(missing_ok=True)
    if run.source and run.source.status != "passed":
        run.status, run.reason = "failed", f"not run: {run.source.name}, whose checkpoint it loads, did not pass"
        log_path.write_text(f"[RESULT] failed: {run.reason}\n", encoding="utf-8")
        return
    command = command_of(run, setting)
    # The program appends to what stands in the log.
    with log_path.open("w", encoding="utf-8") as log:
        print(f"[COMMAND] {shlex.join(command)}", file=log)
    start = time.monotonic()
    with log_path.open("ab") as log:
        try:
            problem = execute(command, log, setting.timeout)
        except OSError as error:
            problem = str(error)
    seconds = time.monotonic() - start
    if problem is None:
        try:
            run.status, run.reason = "passed", f"in {seconds:.1f} s{check_metrics(run, runs, setting)}"
        except (OSError, ValueError) as error:
            problem = str(error)
    if problem is not None:
        run.status, run.reason = "failed", problem
    with log_path.open("a", encoding="utf-8") as log:
        print(f"[RESULT] {run.status}{':' if problem else ''} {run.reason}", file=log)


def run_all(runs, setting):
    """Runs those that are not pending, group by group; a group's checkpoints go when it ends."""
    todo = [run for run in runs.values() if run.status != "pending"]
    for group, members in itertools.groupby(todo, key=lambda run: run.group):
        folder = setting.checkpoints / group
        shutil.rmtree(folder, ignore_errors=True)
        try:
            for run in members:
                run_case(run, runs, setting)
                print(f"{run.name}: {run.status}{':' if run.status == 'failed' else ''} {run.reason}", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if setting.checkpoints.is_dir():
        setting.checkpoints.rmdir()


def report_failures(failed, setting):
    for run in failed:
        log = setting.file(run.name, ".log")
        print(f"\n== {run.name}: {run.reason} ({log})")
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]:
            print(f"  {line}")


def report_pending(pending):
    by_reason = {}
    for run in pending:
        by_reason.setdefault((run.group, run.model, run.reason), []).append(run.case)
    for (group, model, reason), cases in by_reason.items():
        print(f"pending: {group}, {model}: {reason}: {' '.join(cases)}")


def parse_options():
    def variable(text):
        name, equals, value = text.partition("=")
        if not equals:
            raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
        return name, value

    def seconds(text):
        if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) == 0.0:
            raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got {text!r}")
        return float(text)

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    merge.add_options(parser)
    parser.add_argument("--set", action="append", type=variable, default=[], metavar="NAME=VALUE", help="a variable")
    parser.add_argument("--only", nargs="+", default=[], metavar="GROUP[/ID]", help="groups, or cases of them")
    parser.add_argument("--model", nargs="+", default=[], metavar="MODEL", help="some of the models")
    parser.add_argument("--device", default="auto", help="of the programs; auto: an accelerator if there is one")
    parser.add_argument("--build-dir", type=Path, required=True, help="its bin/ has the programs")
    parser.add_argument("--log-dir", type=Path, default=Path("runs/model_runs"), help="default: %(default)s")
    parser.add_argument("--input-bin", help="token files; default: a text of invented words, made in LOG_DIR/data")
    parser.add_argument("--checkpoint-dir", type=Path, help="for a folder that is deleted again; default: LOG_DIR")
    parser.add_argument("--timeout", type=seconds, default=1800.0, metavar="SECONDS", help="a case (%(default)g)")
    parser.add_argument("--list", action="store_true", help="say what would run and what is pending, and why")
    return parser.parse_args()


def interrupt(signal_number, frame):
    """So that a program that is running ends too, and checkpoints are deleted."""
    raise KeyboardInterrupt


def main():
    options = parse_options()
    signal.signal(signal.SIGTERM, interrupt)
    build = programs.Build(options.build_dir.resolve() / "bin")
    log_dir = options.log_dir.resolve()
    checkpoints = (options.checkpoint_dir or log_dir).resolve() / "model_run_checkpoints"
    try:
        matrix = merge.merged(options.matrix, options.override, options.set)
        runs = plan(matrix, options.only, options.model, checkpoints)
        counts = programs.devices(build.program("infini-train"))
        device = find_device(options.device, counts)
        setting = Setting(build, device, log_dir, checkpoints, options.timeout, options.input_bin or "", counts)
        for run in runs.values():
            if reason := pending_reason(run, setting):
                run.status, run.reason = "pending", reason
        if options.list:
            for run in runs.values():
                print(f"{run.name}: {run.status or 'runs'}{f': {run.reason}' if run.reason else ''}")
        elif any(not run.status for run in runs.values()):
            setting.input_bin = setting.input_bin or make_tokens(setting)
            run_all(runs, setting)
    except (merge.ConfigError, programs.ProgramError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("run.py: interrupted", file=sys.stderr)
        return 130
    by_status = {name: [run for run in runs.values() if run.status == name] for name in ("passed", "failed", "pending")}
    if options.list:
        print(f"{len(runs) - len(by_status['pending'])} cases to run on {device}, {len(by_status['pending'])} pending")
        return 0
    report_failures(by_status["failed"], setting)
    report_pending(by_status["pending"])
    print(f"on {device}: " + ", ".join(f"{len(found)} {name}" for name, found in by_status.items()))
    if by_status["failed"]:
        print(f"failed: {' '.join(run.name for run in by_status['failed'])}")
    return 0 if by_status["passed"] and not by_status["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
