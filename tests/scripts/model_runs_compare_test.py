"""scripts/model_runs/compare.py: what one side lacks, what did not pass and what differs is a failure."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "model_runs" / "compare.py"
LOSS = 4.0  # a power of two: what is added to it is exactly that share


def steps(count, first=1, **changes):
    """Steps of a run; `changes` maps step_N to fields that differ there, or to None for no such step."""
    records = []
    for step in range(first, first + count):
        change = changes.get(f"step_{step}", {})
        if change is not None:
            records.append({"step": step, "loss": LOSS, "tokens_per_second": 100.0} | change)
    return records


class CompareTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        for side in ("a", "b"):
            self.case(side, "basic/gpt2_1", steps(5))
            self.case(side, "zero/gpt2_1", steps(5))

    def case(self, side, name, records, result="[RESULT] passed in 1.0 s"):
        path = self.folder / side / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".log").write_text(f"[COMMAND] train\nstep 1\n{result}\n", encoding="utf-8")
        text = "".join(json.dumps(record) + "\n" for record in records)
        path.with_suffix(".jsonl").write_text(text, encoding="utf-8")
        return path

    def compare(self, status, *texts, options=()):
        command = [sys.executable, SCRIPT, self.folder / "a", self.folder / "b", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        for text in texts:
            self.assertIn(text, done.stdout + done.stderr)
        return done.stdout

    def both_ways(self, *texts, options=()):
        """Whichever is the baseline, it is a failure of that one case."""
        self.compare(1, *texts, "2 cases compared, 1 failed", options=options)
        (self.folder / "a").rename(self.folder / "c")
        (self.folder / "b").rename(self.folder / "a")
        (self.folder / "c").rename(self.folder / "b")
        self.compare(1, "2 cases compared, 1 failed", options=options)

    def test_equal_runs_pass(self):
        self.assertNotIn("basic", self.compare(0, "2 cases compared, 0 failed"))
        self.compare(0, "basic/gpt2_1: 5 steps, at most 0.0e+00 apart", options=["--verbose"])

    def test_a_missing_step_is_a_failure(self):
        for step, text in ((1, "lacks steps: 1"), (3, "lacks steps: 3"), (5, "lacks steps: 5")):
            self.case("b", "basic/gpt2_1", steps(5, **{f"step_{step}": None}))
            self.both_ways(text)
            self.case("a", "basic/gpt2_1", steps(5))
        self.case("b", "basic/gpt2_1", steps(12))
        self.both_ways("the baseline lacks steps: 6, 7, 8, 9, 10 and 2 more")

    def test_what_is_no_number_is_a_failure_even_on_both_sides(self):
        for loss in (float("nan"), float("inf"), "nan", None, True):
            with self.subTest(loss):
                for side, other in (("a", "b"), ("b", "a")):
                    self.case(side, "basic/gpt2_1", steps(5, step_4={"loss": loss}))
                    self.case(other, "basic/gpt2_1", steps(5))
                    self.compare(1, "step 4: loss", "1 failed")
                self.case(other, "basic/gpt2_1", steps(5, step_4={"loss": loss}))
                self.compare(1, "step 4: loss", "1 failed")

    def test_the_threshold_itself_passes(self):
        share = 2.0**-16
        other = steps(5, step_2={"loss": LOSS * (1 + share)})
        self.case("b", "basic/gpt2_1", other)
        self.compare(0, options=["--threshold-fp32", repr(share)])
        self.compare(1, "furthest in step 2", options=["--threshold-fp32", repr(share * (1 - 2**-40))])
        self.compare(1, "1.5e-05 apart, expected 1e-05")
        self.case("b", "basic/gpt2_1", steps(5, step_2={"loss": LOSS * (1 - share)}))
        self.compare(1, "1.5e-05 apart, expected 1e-05")

    def test_the_name_says_which_threshold_counts(self):
        for side, loss in (("a", LOSS), ("b", LOSS * 1.005)):
            self.case(side, "zero/gpt2_3_bfloat16_distopt", steps(5, step_2={"loss": loss}))
        self.compare(0, "3 cases compared")
        self.compare(1, "expected 0.004", options=["--threshold-bf16", "0.004", "--threshold-fp32", "1"])
        for side, loss in (("a", LOSS), ("b", LOSS * 1.005)):
            self.case(side, "all_bfloat16/gpt2_3", steps(5, step_2={"loss": loss}))
        self.compare(1, "all_bfloat16/gpt2_3: FAILED")

    def test_a_file_of_one_side_is_a_failure(self):
        for ending in (".log", ".jsonl"):
            (self.folder / "b" / "basic" / "gpt2_1").with_suffix(ending).unlink()
            self.both_ways("is missing")
        for side in ("a", "b"):
            self.case(side, "basic/gpt2_1", steps(5))
        path = self.case("b", "lora/gpt2_1", steps(5))
        self.compare(1, "lora/gpt2_1: FAILED", "3 cases compared, 1 failed")
        path.with_suffix(".jsonl").unlink()
        self.case("a", "lora/gpt2_1", []).with_suffix(".jsonl").unlink()
        self.compare(1, "lora/gpt2_1: FAILED", "3 cases compared, 1 failed")

    def test_the_same_name_in_another_group_is_another_case(self):
        self.case("b", "zero/gpt2_1", steps(5, step_2={"loss": 5.0}))
        self.compare(1, "zero/gpt2_1: FAILED", "1 failed")

    def test_empty_and_broken_files_are_failures(self):
        for side in ("a", "b"):
            self.case(side, "basic/gpt2_1", [])
        self.compare(1, "has no steps")
        path = self.case("b", "basic/gpt2_1", steps(5))
        self.case("a", "basic/gpt2_1", steps(5))
        metrics = path.with_suffix(".jsonl")
        metrics.write_text(metrics.read_text() + '{"step": 6, "lo', encoding="utf-8")
        self.compare(1, "line 6 is no metrics of a step")
        self.case("b", "basic/gpt2_1", [*steps(5), *steps(1)])
        self.compare(1, "step 1 is there twice")

    def test_a_case_that_did_not_pass_is_a_failure(self):
        for result in ("[RESULT] failed: exit status 1", "", "step 5"):
            for side in ("a", "b"):
                self.case(side, "basic/gpt2_1", steps(5), result)
            self.compare(1, "does not end with [RESULT] passed", "1 failed")

    def test_folders_without_cases_are_a_failure(self):
        for side in ("a", "b"):
            (self.folder / side / "basic").rename(self.folder / f"{side}1")
            (self.folder / side / "zero").rename(self.folder / f"{side}2")
        self.compare(1, "no cases in either folder")
        (self.folder / "b").rmdir()
        self.compare(2, "is no folder")

    def test_only_slower_is_a_failure(self):
        def rate(value):
            return steps(5, **{f"step_{step}": {"tokens_per_second": value} for step in range(2, 6)})

        self.case("b", "basic/gpt2_1", rate(75.0))
        self.compare(0)
        self.compare(0, "100 to 75 tokens per second, -25.0%", options=["--throughput", "0.25", "--verbose"])
        self.compare(1, "slower: 100 to 75", options=["--throughput", "0.2"])
        self.case("b", "basic/gpt2_1", rate(300.0))
        self.compare(0, options=["--throughput", "0"])
        self.case("b", "basic/gpt2_1", steps(5, step_1={"tokens_per_second": 1.0}))
        self.compare(0, options=["--throughput", "0"])

    def test_speeds_that_are_no_numbers_are_a_failure(self):
        self.case("b", "basic/gpt2_1", steps(5, step_3={"tokens_per_second": None}))
        self.compare(1, "no tokens per second", options=["--throughput", "0.2"])
        for side in ("a", "b"):
            self.case(side, "basic/gpt2_1", steps(1))
        self.compare(1, "no tokens per second", options=["--throughput", "0.2"])


if __name__ == "__main__":
    unittest.main()
