"""What scripts/compare_metrics.py accepts and what it finds."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "compare_metrics.py"


def lines(count: int, first: int = 1, **changes: dict) -> list[dict]:
    """Steps of a run; `changes` maps step_N to fields that differ there."""
    records = []
    for step in range(first, first + count):
        record = {"step": step, "loss": 4.0 / step, "lr": 1e-3, "grad_norm": 1.0 + step}
        record |= {"milliseconds": step * 0.1, "peak_used_bytes": 100.0, "peak_reserved_bytes": 200.0}
        records.append(record | changes.get(f"step_{step}", {}))
    return records


class CompareMetrics(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, name: str, records: list[dict]) -> str:
        path = self.folder / name
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return str(path)

    def check(self, status: int, text: str, *arguments: str) -> None:
        done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(text, done.stdout + done.stderr)

    def test_a_resumed_run_is_compared_where_both_have_steps(self) -> None:
        whole = self.file("a", [*lines(10), {"step": 10, "val_loss": 1.0}])
        rest = self.file("b", lines(5, first=6, step_7={"milliseconds": 9.0}))
        self.check(0, "steps 6 to 10: equal", "same", whole, rest, "--steps", "5")
        self.check(1, "5 steps in both files, expected 6", "same", whole, rest, "--steps", "6")

    def test_the_smallest_difference_is_found(self) -> None:
        whole = self.file("a", lines(10))
        for figure in ("loss", "lr", "grad_norm"):
            other = self.file("b", lines(10, step_9={figure: lines(9)[8][figure] * (1 + 2e-16)}))
            self.check(1, f"step 9: {figure}", "same", whole, other)

    def test_losses_may_differ_by_a_share(self) -> None:
        whole = self.file("a", lines(10))
        other = self.file("b", lines(10, step_4={"loss": 1.0 + 1e-4, "grad_norm": 0.0}))
        self.check(0, "at most 1.0e-04 apart", "same", whole, other, "--relative", "1e-3")
        self.check(1, "1.0e-04 apart, expected 1e-05", "same", whole, other, "--relative", "1e-5")
        nan = self.file("c", lines(10, step_4={"loss": "nan"}))
        self.check(1, "step 4: loss", "same", whole, nan, "--relative", "1e-3")

    def test_growth_and_nan_are_not_steady(self) -> None:
        self.check(0, "peak_used_bytes: 100 in the steps after 3", "steady", self.file("a", lines(10)), "--after", "3")
        growing = self.file("b", lines(10, step_8={"peak_reserved_bytes": 201.0}))
        self.check(1, "peak_reserved_bytes grew from 200 to 201", "steady", growing, "--after", "3")
        self.check(0, "", "steady", growing, "--after", "8")
        self.check(1, "step 5: loss is nan", "steady", self.file("c", lines(10, step_5={"loss": "nan"})))
        self.check(1, "no steps", "steady", self.file("d", lines(3)), "--after", "3")

    def test_speed_is_that_of_the_median_steps(self) -> None:
        fast = self.file("fast", lines(11, step_1={"milliseconds": 500.0}, step_11={"milliseconds": 90.0}))
        doubled = [record | {"milliseconds": 2 * record["milliseconds"]} for record in lines(11)]
        slow = self.file("slow", doubled)
        self.check(0, "1.60 ms a step beside 0.80 ms: 0.50 times as fast", "speed", slow, fast, "--after", "4")
        self.check(0, "0.50 times", "speed", slow, fast, slow, fast, "--after", "4", "--at_least", "0.5")
        self.check(1, "0.50 times as fast, expected 0.6", "speed", slow, fast, "--after", "4", "--at_least", "0.6")
        self.check(1, "expected pairs", "speed", slow, fast, slow)
        self.check(1, "no times of the steps after step 11", "speed", slow, fast, "--after", "11")
        self.check(1, "no times", "speed", slow, self.file("c", [{"step": 1, "loss": 1.0}]), "--after", "0")


if __name__ == "__main__":
    unittest.main()
