"""scripts/model_runs/run.py: how programs are called, what fails, and what is pending.

The programs are one script that does what its flags say; with the bin/ folder of a build as argument,
a few cases of the repository's matrix run with the real ones.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "model_runs"))

import programs

FOLDER = Path(programs.__file__).parent

# The folder of real programs.
REAL_PROGRAMS = None

HELP = """\
Trains a model on token files.
Usage: train [OPTIONS]

Options:
  -h,--help                           Print this help message and exit

Model:
  --model TEXT                        preset; the first one only
  --device TEXT=auto                  cpu, or a provider's name
  --dtype TEXT=float32                float32 or bfloat16
  --input_bin TEXT                    token files
  --metrics_file TEXT                 numbers of every step
  --shuffle                           visit windows at random, the first batch only [true]
  --fault TEXT                        what goes wrong
  --loss FLOAT=2                      of every step
  --num_iteration INT=10              steps
  --save TEXT                         folder
  --load TEXT                         folder
  --very_long_name,--even_longer_alias_of_it INT=1
                                      on a line of its own; 1 only

Parallelism:
  --nthread_per_process INT=1         devices of a process
  --tensor_parallel INT=1             1 only
  --sequence_parallel                 false only [false]
"""

PROGRAM = """\
#!{python}
import json, os, pathlib, subprocess, sys, time
here = pathlib.Path(__file__).parent
with open(here / "calls", "a") as calls:
    print(json.dumps([pathlib.Path(__file__).name, *sys.argv[1:]]), file=calls)
(here / "pid").write_text(str(os.getpid()))
if sys.argv[1].startswith("--nproc"):
    sys.exit(subprocess.run(sys.argv[2:]).returncode)
elif sys.argv[1] == "--help":
    print((here / "help").read_text())
elif sys.argv[1] == "info":
    print("InfiniTrain\\ndevice cpu: CPU\\ndevice chip:0: one\\ndevice chip:1: two\\npreset tiny: device of none")
elif sys.argv[1] == "tokenize":
    folder = pathlib.Path(dict(word[2:].split("=", 1) for word in sys.argv[2:] if word[0] == "-")["output"])
    folder.mkdir()
    (folder / "train_0.bin").write_bytes(pathlib.Path(sys.argv[-1]).read_bytes())
    (folder / "tokenizer.json").touch()
else:
    flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
    fault = flags.get("fault", "")
    first = 1
    if "load" in flags:
        first += int((pathlib.Path(flags["load"]) / "step").read_text())
    with open(flags["metrics_file"], "w") as metrics:
        for step in range(first, int(flags["num_iteration"]) + 1):
            print("step", step, flush=True)
            if fault == "missing" and step == 2:
                continue
            if fault == "slow":
                time.sleep(60)
            loss = float("nan") if fault == "nan" and step == 2 else float(flags.get("loss", 2))
            print(json.dumps({{"step": step, "loss": loss, "lr": 1.0, "grad_norm": 1.0}}), file=metrics, flush=True)
            if "save" in flags:
                folder = pathlib.Path(flags["save"]) / f"checkpoint_step_{{step:06}}"
                folder.mkdir(parents=True)
                (folder / "step").write_text(str(step))
    if fault == "exit":
        print("no memory is left", file=sys.stderr)
        sys.exit(3)
"""

MATRIX = {
    "variables": {"steps": 3, "preset": "tiny"},
    "models": {
        "gpt2": {"program": "gpt2", "args": {"model": "${preset}"}},
        "llama3": {"program": "llama3", "args": {"model": "${preset}"}},
    },
    "groups": {
        "basic": {
            "models": ["gpt2"],
            "args": {"num_iteration": "${steps}"},
            "cases": {
                "1": {"args": {"shuffle": False}},
                "1_bfloat16": {"base": "basic/1", "args": {"dtype": "bfloat16", "loss": 2.01}, "matches": "basic/1"},
                "2": {"args": {"nthread_per_process": 2}, "matches": "basic/1"},
                "4": {"base": "basic/2", "args": {"tensor_parallel": 2, "sequence_parallel": True}},
                "8": {"args": {"nthread_per_process": 8}},
            },
        },
        "checkpoint": {
            "models": ["gpt2"],
            "args": {"num_iteration": 6},
            "cases": {
                "whole": {"args": {"save": "${checkpoints}/whole"}},
                "rest": {
                    "args": {"load": "${checkpoints}/whole/checkpoint_step_000004", "save": "${checkpoints}/rest"},
                    "matches": "checkpoint/whole",
                },
            },
        },
        "lora": {
            "models": ["gpt2", "llama3"],
            "cases": {"1_lora": {"base": "basic/1", "args": {"lora_rank": 8, "very_long_name": 2}}},
        },
        "processes": {"models": ["gpt2"], "processes": 2, "cases": {"1": {"base": "basic/1"}}},
    },
}


class RunnerTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.logs = self.folder / "logs"

    def run_script(self, *options):
        command = [sys.executable, FOLDER / "run.py", "--log-dir", self.logs, *map(str, options)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def expect(self, status, *texts, options=()):
        done = self.run_script(*options)
        output = done.stdout + done.stderr
        self.assertEqual(done.returncode, status, output)
        for text in texts:
            self.assertIn(text, output)
        return output

    def log(self, name):
        return (self.logs / f"{name}.log").read_text(encoding="utf-8").splitlines()


class FakeProgramsTest(RunnerTest):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / "build" / "bin"
        self.bin.mkdir(parents=True)
        for program in ("gpt2", "infini-train"):
            self.program(program)
        (self.bin / "help").write_text(HELP)
        self.matrix = self.file("matrix.json", MATRIX)

    def program(self, name):
        path = self.bin / name
        path.write_text(PROGRAM.format(python=sys.executable))
        path.chmod(0o755)

    def file(self, name, content):
        path = self.folder / name
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    def expect(self, status, *texts, only=(), device="cpu", args=None, options=()):
        """Runs the test's matrix; `args` are given to basic/1, with what is based on it left as it is."""
        words = ["--matrix", self.matrix, "--build-dir", self.bin.parent, "--device", device]
        if args:
            words += ["--override", self.file("o.json", {"groups": {"basic": {"cases": {"1": {"args": args}}}}})]
        return super().expect(status, *texts, options=[*words, *options, *(["--only", *only] if only else [])])

    def calls(self):
        words = [json.loads(line) for line in (self.bin / "calls").read_text().splitlines()]
        return [call for call in words if call[1] not in ("--help", "info", "tokenize")]

    def test_flags_and_values_are_one_word(self):
        self.expect(0, only=["basic/1"], options=["--input-bin", "tokens.bin"])
        metrics = self.logs / "basic" / "gpt2_1.jsonl"
        expected = ["--input_bin=tokens.bin", "--device=cpu", "--model=tiny", "--num_iteration=3", "--shuffle=false"]
        self.assertEqual(self.calls(), [["gpt2", *expected, f"--metrics_file={metrics}"]])
        self.assertEqual(self.log("basic/gpt2_1")[0].split()[2:], shlex.join(self.calls()[0][1:]).split())
        self.assertRegex(self.log("basic/gpt2_1")[-1], r"^\[RESULT\] passed in \d")

    def test_everything_is_run_or_pending_with_a_reason(self):
        output = self.expect(
            0,
            "basic/gpt2_1: passed",
            "basic/gpt2_1_bfloat16: passed",
            "; as basic/gpt2_1, at most 5.0e-03 apart",
            "pending: basic, gpt2: needs --tensor_parallel=2 --sequence_parallel=true: 4\n",
            "pending: lora, gpt2: needs --lora_rank=8 --very_long_name=2: 1_lora\n",
            "pending: lora, llama3: needs the program llama3: 1_lora\n",
            "pending: processes, gpt2: needs the program infini_run: 1\n",
            "checkpoint/gpt2_rest: passed",
            "; as checkpoint/gpt2_whole, exactly",
            "on cpu: 6 passed, 0 failed, 4 pending",
        )
        places = [output.index(f"{name}: passed") for name in ("basic/gpt2_1", "basic/gpt2_8", "checkpoint/gpt2_whole")]
        self.assertEqual(places, sorted(places))
        self.assertFalse((self.logs / "model_run_checkpoints").exists())
        self.assertTrue(list((self.logs / "data").glob("train_*.bin")))
        self.assertFalse((self.logs / "data" / "tokenizer.json").exists())

    def test_what_a_program_learns_is_pending_no_more(self):
        text = HELP.replace("             1 only", "             of linears").replace(
            "false only [false]", "too [false]"
        )
        (self.bin / "help").write_text(text)
        self.expect(0, "basic/gpt2_4: passed", "0 pending", only=["basic"])
        for program in ("llama3", "infini_run"):
            self.program(program)
        (self.bin / "help").write_text(text.replace("; 1 only", "") + "  --lora_rank INT=0   rank\n")
        self.expect(0, "lora/llama3_1_lora: passed", "processes/gpt2_1: passed", "10 passed, 0 failed, 0 pending")
        launched = [call for call in self.calls() if call[0] == "infini_run"]
        self.assertEqual([call[1:3] for call in launched], [["--nproc_per_node=2", str(self.bin / "gpt2")]])

    def test_devices_are_counted(self):
        output = self.expect(
            0, "basic/gpt2_2: passed", "needs 8 devices of chip, found 2: 8", device="chip", only=["basic"]
        )
        self.assertIn("on chip: 3 passed, 0 failed, 2 pending", output)
        self.assertIn("on chip:", self.expect(0, device="auto", only=["basic/1"]))
        self.expect(2, "no other; there are cpu, chip", device="other")

    def test_the_list_says_the_same_and_runs_nothing(self):
        self.expect(
            0,
            "basic/gpt2_1: runs\n",
            "basic/gpt2_4: pending: needs --tensor_parallel=2",
            "6 cases to run on cpu, 4 pending",
            options=["--list"],
        )
        self.assertEqual(self.calls(), [])
        self.assertFalse(self.logs.exists())

    def test_failures_of_a_case_fail_the_run(self):
        for fault, problem in [
            ("exit", "exit status 3"),
            ("nan", "step 2: the loss is nan"),
            ("missing", "missing steps: 2"),
        ]:
            with self.subTest(fault):
                only = ["basic/1", "basic/2"]
                output = self.expect(1, f"basic/gpt2_1: failed: {problem}", only=only, args={"fault": fault})
                self.assertIn("on cpu: 1 passed, 1 failed, 0 pending", output)
                self.assertIn("\nfailed: basic/gpt2_1\n", output)
                self.assertIn("not compared with basic/gpt2_1, which did not pass here", output)
                self.assertEqual(self.log("basic/gpt2_1")[-1], f"[RESULT] failed: {problem}")
                self.assertIn("  step 3\n", output[output.index("== basic/gpt2_1") :])
        self.assertIn("  no memory is left\n", self.expect(1, only=["basic/1"], args={"fault": "exit"}))

    def test_a_case_that_hangs_fails(self):
        self.expect(
            1,
            "basic/gpt2_1: failed: not done after 1.5 s",
            only=["basic/1"],
            args={"fault": "slow"},
            options=["--timeout", "1.5"],
        )

    def test_who_ends_the_runner_ends_the_case(self):
        slow = self.file("slow.json", {"groups": {"checkpoint": {"cases": {"whole": {"args": {"fault": "slow"}}}}}})
        options = ["--matrix", self.matrix, "--override", slow, "--build-dir", self.bin.parent, "--log-dir", self.logs]
        command = [sys.executable, FOLDER / "run.py", *options, "--device", "cpu", "--only", "checkpoint"]
        runner = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        log = self.logs / "checkpoint" / "gpt2_whole.log"
        while runner.poll() is None and not (log.exists() and "step 1" in log.read_text()):
            time.sleep(0.05)
        runner.terminate()
        _, message = runner.communicate()
        self.assertEqual((runner.returncode, message), (130, "run.py: interrupted\n"))
        self.assertFalse((self.logs / "model_run_checkpoints" / "checkpoint").exists())
        with self.assertRaises(ProcessLookupError):
            os.kill(int((self.bin / "pid").read_text()), 0)

    def test_a_case_unlike_the_one_that_it_matches_fails(self):
        only = ["basic/1", "basic/1_bfloat16", "basic/2"]
        self.expect(0, "as basic/gpt2_1, at most 5.0e-06 apart", only=only, args={"loss": 2.00001})
        output = self.expect(
            1, "basic/gpt2_2: failed: unlike basic/gpt2_1: losses of 3 steps", only=only, args={"loss": 2.0001}
        )
        self.assertIn("2 passed, 1 failed", output)
        self.expect(1, "basic/gpt2_1_bfloat16: failed: unlike basic/gpt2_1", only=only, args={"loss": 2.1})
        self.expect(1, "basic/gpt2_1 lacks steps: 3", only=only, args={"num_iteration": 2})

    def test_old_numbers_do_not_count(self):
        self.expect(0, only=["basic/1"])
        (self.bin / "gpt2").write_text(f"#!{sys.executable}\nprint({HELP!r})\n")
        self.expect(1, "basic/gpt2_1: failed", only=["basic/1"])

    def test_a_case_whose_checkpoint_is_missing_fails(self):
        fail = self.file("fail.json", {"groups": {"checkpoint": {"cases": {"whole": {"args": {"fault": "exit"}}}}}})
        output = self.expect(1, only=["checkpoint"], options=["--override", fail])
        self.assertIn("checkpoint/gpt2_rest: failed: not run: checkpoint/gpt2_whole, whose checkpoint it loads", output)
        lacks = self.file("lacks.json", {"groups": {"checkpoint": {"cases": {"whole": {"args": {"lora_rank": 1}}}}}})
        self.expect(
            1,
            "needs checkpoint/gpt2_whole: rest",
            "0 passed, 0 failed, 2 pending",
            only=["checkpoint"],
            options=["--override", lacks],
        )
        self.expect(2, "checkpoint/rest loads what whole saves; name both", only=["checkpoint/rest"])

    def test_checkpoints_are_deleted_and_nothing_else(self):
        root = self.folder / "root"
        (root / "checkpoint").mkdir(parents=True)
        self.expect(0, only=["checkpoint"], options=["--checkpoint-dir", root])
        self.assertEqual([path.name for path in root.iterdir()], ["checkpoint"])
        saved = [word for call in self.calls() for word in call if word.startswith("--save=")]
        self.assertEqual(saved[0], f"--save={root}/model_run_checkpoints/checkpoint/gpt2/whole")

    def test_variables_are_set(self):
        self.expect(0, only=["basic/1"], options=["--set", "steps=1", "--set", "preset=other"])
        self.assertIn("--num_iteration=1", self.calls()[0])
        self.assertIn("--model=other", self.calls()[0])

    def test_mistakes_are_named(self):
        for options, message in [
            (["--only", "basic", "nothing"], "no group 'nothing'; there are basic, checkpoint"),
            (["--only", "basic/3"], "no case '3' in basic; there are 1,"),
            (["--model", "bert"], "no model 'bert'; there are gpt2, llama3"),
            (["--model", "llama3", "--only", "basic"], "no case is selected"),
            (["--set", "stps=1"], "--set: stps: no such variable"),
            (["--set", "steps"], "expected NAME=VALUE"),
            (["--timeout", "0"], "expected a number of seconds above 0"),
            (["--override", "nowhere"], "nowhere"),
        ]:
            with self.subTest(message):
                self.expect(2, message, options=options)
        (self.bin / "infini-train").unlink()
        self.expect(2, "infini-train")

    def test_nothing_that_runs_is_no_success(self):
        self.expect(1, "0 passed, 0 failed, 2 pending", only=["lora"])


class HelpTest(unittest.TestCase):
    def test_flags_and_the_only_values_that_they_take(self):
        flags = programs.parse_help(HELP)
        self.assertEqual(flags["tensor_parallel"], "1")
        self.assertEqual(flags["sequence_parallel"], "false")
        self.assertEqual(flags["very_long_name"], "1")
        self.assertEqual(flags["even_longer_alias_of_it"], "1")
        for flag in ("help", "model", "shuffle", "nthread_per_process", "num_iteration"):
            self.assertIsNone(flags[flag])
        self.assertEqual(len(flags), HELP.count("--"))


class RealProgramsTest(RunnerTest):
    """Cases of the repository's matrix with the programs of a build, small and short."""

    def setUp(self):
        if REAL_PROGRAMS is None:
            self.skipTest("no programs were named")
        super().setUp()
        small = {"args": {"batch_size": 8}}
        ranks = {"args": {"batch_size": 1}}
        resume = {"args": {"load": "${checkpoints}/no_resume/checkpoint_step_000002"}}
        # The other cases that load something would load what is not saved any more.
        others = dict.fromkeys(["ckpt_bfloat16_resume", "ckpt_3d_ddp_tp_pp_resume"])
        short = {
            "basic": {"cases": {"2": small, "2_bfloat16": small, "3": ranks, "3_bfloat16": ranks}},
            "checkpoint": {
                "args": {"num_iteration": 4, "save_interval": 2},
                "cases": {"ckpt_resume": resume, **others},
            },
            "lr_scheduler": {"cases": {"2_cosine": small}},
            "recompute": {"cases": {"2_recompute_uniform2": small}},
        }
        path = self.folder / "short.json"
        path.write_text(json.dumps({"variables": {"tokens_per_step": 128}, "groups": short}))
        self.options = [
            "--build-dir",
            REAL_PROGRAMS.parent,
            "--override",
            "nano",
            "--override",
            path,
            "--model",
            "gpt2",
        ]

    def test_devices_agree(self):
        parent = self.logs
        for kind in ("cpu", *programs.devices(REAL_PROGRAMS / "infini-train")):
            self.logs = parent / kind
            options = ["--device", kind, "--set", "steps=2", "--only", "basic/1"]
            self.expect(0, "1 passed, 0 failed, 0 pending", options=[*self.options, *options])
            command = [sys.executable, FOLDER / "compare.py", parent / "cpu", self.logs]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_other_groups_run(self):
        only = ["--only", "basic/1_bfloat16", "basic/2", "lr_scheduler/2_cosine", "recompute/2_recompute_uniform2"]
        options = ["--device", "cpu", "--set", "steps=3", *only]
        output = self.expect(0, "4 passed, 0 failed, 0 pending", options=[*self.options, *options])
        self.assertIn("as basic/gpt2_2, at most", output)

    def test_eight_ranks_that_are_threads_have_the_losses_of_one(self):
        only = ["--only", "basic/2", "basic/3", "basic/2_bfloat16", "basic/3_bfloat16"]
        options = ["--device", "cpu", "--set", "steps=3", *only]
        output = self.expect(0, "4 passed, 0 failed, 0 pending", options=[*self.options, *options])
        self.assertRegex(output, r"basic/gpt2_3: passed in .* as basic/gpt2_2, at most")
        self.assertRegex(output, r"basic/gpt2_3_bfloat16: passed in .* as basic/gpt2_2_bfloat16, at most")

    def test_other_families_run(self):
        options = ["--model", "llama3", "qwen3", "--device", "cpu", "--set", "steps=2", "--only", "basic/1"]
        self.expect(0, "2 passed, 0 failed, 0 pending", options=[*self.options, *options])

    def test_a_resumed_run_repeats_the_whole_one(self):
        only = ["--only", "checkpoint/ckpt_no_resume", "checkpoint/ckpt_resume"]
        self.expect(0, "as checkpoint/gpt2_ckpt_no_resume, exactly", options=[*self.options, "--device", "cpu", *only])

    def test_the_whole_matrix_is_run_or_pending(self):
        output = self.expect(0, options=[*self.options, "--device", "cpu", "--list"])
        cases = [line for line in output.splitlines() if "/gpt2_" in line]
        self.assertEqual(len(cases), 98)
        for line in cases:
            self.assertRegex(line, r"^\w+/gpt2_\w+: (runs|pending: needs .+)$")

    def test_a_mistake_fails(self):
        options = ["--device", "cpu", "--set", "gpt2_model=nowhere", "--only", "basic/1"]
        self.expect(1, "basic/gpt2_1: failed: exit status 2", "nowhere is no folder", options=[*self.options, *options])


if __name__ == "__main__":
    if len(sys.argv) > 1 and Path(sys.argv[1]).is_dir():
        REAL_PROGRAMS = Path(sys.argv.pop(1))
    unittest.main()
