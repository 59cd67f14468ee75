"""scripts/model_runs/merge.py: every group keeps its place, changes go where they are meant, mistakes are named."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "model_runs"))

import merge

FOLDER = Path(merge.__file__).parent

MATRIX = """{
  "variables": {"steps": 5},
  "models": {"small": {"program": "train", "args": {"model": "tiny"}}, "big": {"program": "train"}},
  "groups": {
    "second": {
      "models": ["small", "big"],
      "args": {"num_iteration": "${steps}"},
      "cases": {
        "b": {"args": {"batch_size": 4, "shuffle": false}},
        "a": {"base": "second/b", "args": {"batch_size": 8}, "matches": "second/b"},
        "a_bfloat16": {"base": "second/a", "args": {"dtype": "bfloat16"}}
      }
    },
    "first": {
      "models": ["small"],
      "processes": 2,
      "args": {"batch_size": 2},
      "cases": {"c": {"base": "second/a"}}
    }
  }
}"""


def names(matrix):
    return [f"{group}/{case}" for group, entry in matrix["groups"].items() for case in entry["cases"]]


class MergeTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.matrix = self.file("matrix.json", MATRIX)

    def file(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def merged(self, *overrides):
        return merge.merged(self.matrix, [self.file(f"over{i}.json", over) for i, over in enumerate(overrides)])

    def args(self, matrix, group, case):
        return matrix["groups"][group]["cases"][case]["args"]

    def test_cases_have_what_their_base_and_group_have(self):
        matrix = self.merged()
        self.assertEqual(names(matrix), ["second/b", "second/a", "second/a_bfloat16", "first/c"])
        self.assertEqual(
            self.args(matrix, "second", "a"), {"num_iteration": "${steps}", "batch_size": 8, "shuffle": False}
        )
        self.assertEqual(self.args(matrix, "first", "c")["batch_size"], 2)
        self.assertEqual(matrix["groups"]["first"]["processes"], 2)
        self.assertEqual(matrix["groups"]["second"]["cases"]["a"]["matches"], "second/b")

    def test_changes_keep_every_place(self):
        change = {"groups": {"first": {"cases": {"c": {"args": {"num_iteration": 3, "seed": 1}}}}}}
        change["groups"]["second"] = {"cases": {"b": {"args": {"batch_size": 16, "shuffle": None}}}}
        matrix = self.merged(change, {"variables": {"steps": 7}})
        self.assertEqual(names(matrix), names(self.merged()))
        self.assertEqual(
            list(self.args(matrix, "second", "b").items()), [("num_iteration", "${steps}"), ("batch_size", 16)]
        )
        self.assertEqual(
            list(self.args(matrix, "first", "c").items()),
            [("num_iteration", 3), ("batch_size", 2), ("shuffle", False), ("seed", 1)],
        )
        self.assertEqual(matrix["variables"], {"steps": 7})
        self.assertEqual(self.args(matrix, "second", "a")["batch_size"], 8, "what others are based on was read before")

    def test_what_is_changed_is_a_copy(self):
        matrix = merge.load_matrix(self.matrix)
        change = self.file("change.json", {"variables": {"steps": 9}, "groups": {"second": {"args": {"seed": 3}}}})
        self.assertNotEqual(merge.apply_override(matrix, change), matrix)
        self.assertEqual(matrix, merge.load_matrix(self.matrix))

    def test_a_groups_arguments_reach_all_of_its_cases(self):
        matrix = self.merged({"groups": {"second": {"args": {"seed": 3, "num_iteration": 4}}}})
        for case in ("b", "a", "a_bfloat16"):
            self.assertEqual(self.args(matrix, "second", case)["seed"], 3)
            self.assertEqual(self.args(matrix, "second", case)["num_iteration"], 4)
        self.assertNotIn("seed", self.args(matrix, "first", "c"))

    def test_null_removes(self):
        self.assertEqual(names(self.merged({"groups": {"first": None}})), names(self.merged())[:3])
        matrix = self.merged({"groups": {"second": {"cases": {"a_bfloat16": None}}}})
        self.assertEqual(names(matrix), ["second/b", "second/a", "first/c"])

    def test_what_is_new_goes_to_the_end(self):
        group = {"new": True, "models": ["small"], "cases": {"x": {"base": "second/b", "args": {"batch_size": 1}}}}
        case = {"new": True, "base": "second/a", "args": {"seed": 9}}
        matrix = self.merged({"groups": {"added": group, "second": {"cases": {"z": case}}}})
        self.assertEqual(names(matrix), [*names(self.merged())[:3], "second/z", "first/c", "added/x"])
        self.assertEqual(self.args(matrix, "second", "z")["seed"], 9)
        self.assertEqual(self.args(matrix, "added", "x")["batch_size"], 1)

    def test_the_print_is_a_matrix(self):
        done = subprocess.run(
            [sys.executable, FOLDER / "merge.py", "--override", "maca"], capture_output=True, text=True, check=True
        )
        again = self.file("printed.json", done.stdout)
        self.assertEqual(merge.merged(again), merge.merged(merge.MATRIX, ["maca"]))

    def expect(self, message, *overrides):
        with self.assertRaises(merge.ConfigError) as caught:
            self.merged(*overrides)
        self.assertIn(message, str(caught.exception))

    def test_mistakes_of_overrides_are_named_with_their_place(self):
        for override, message in [
            ({"groups": {"frist": {"args": {}}}}, "over0.json: groups.frist: there is nothing of this name to change"),
            (
                {"groups": {"first": {"cases": {"d": {}}}}},
                "groups.first.cases.d: there is nothing of this name to change",
            ),
            (
                {"groups": {"first": {"cases": {"d": None}}}},
                "groups.first.cases.d: there is nothing of this name to remove",
            ),
            ({"groups": {"first": {"cases": {"c": {"new": True}}}}}, "groups.first.cases.c: is no new name"),
            ({"groups": {"first": {"args": {"seed": None}}}}, "groups.first.args.seed: there is no such argument"),
            ({"groups": {"first": {"arg": {}}}}, "groups.first.arg: unknown"),
            ({"groups": {"first": {"cases": {"c": {"args": {"seed": [1]}}}}}}, "cases.c.args.seed: expected a text"),
            ({"groups": {"first": {"cases": {"c": {"args": {"--seed": 1}}}}}}, "cases.c.args.--seed: expected a name"),
            ({"groups": {"first": {"cases": {"c": {"base": "second/b"}}}}}, "cases.c.base: only a new case"),
            ({"groups": {"first": {"models": ["huge"]}}}, 'groups.first.models: no "huge"'),
            ({"groups": {"first": {"processes": 0}}}, "groups.first.processes: expected a number of 1 or more"),
            ({"groups": {"x": {"new": True, "cases": {}}}}, "groups.x: expected models"),
            ({"variables": {"step": 1}}, "variables.step: no such variable"),
            ({"variables": {"steps": None}}, "variables.steps: expected a text"),
            ({"cases": {}}, "over0.json: cases: unknown"),
            ([], "over0.json: expected an object"),
            ('{"groups": {"first": {}, "first": {}}}', "over0.json: groups.first: stands here twice"),
            (
                '{"groups": {"first": {"cases": {"c": {"args": {"a": 1, "a": 2}}}}}}',
                "cases.c.args.a: stands here twice",
            ),
            ('{"variables": {"steps": NaN}}', "NaN is no number"),
            ("{", "over0.json: no JSON"),
        ]:
            with self.subTest(message):
                self.expect(message, override)
        with self.assertRaises(merge.ConfigError):
            merge.merged(self.matrix, [self.folder / "nowhere.json"])

    def test_the_whole_must_make_sense(self):
        def case(args, **entry):
            return {"groups": {"first": {"cases": {"c": {"args": args, **entry}}}}}

        def every_group(args):
            return {"groups": {"first": {"args": args}, "second": {"args": args}}}

        for override, message in [
            (case({"seed": "${sede}"}), "cases.c.args.seed: no variable 'sede'"),
            (case({"num_iteration": None}), "cases.c.args.num_iteration: expected a number of 1 or more"),
            (case({"num_iteration": "many"}), "cases.c.args.num_iteration: expected a number of 1 or more"),
            (case({"nthread_per_process": 0}), "cases.c.args.nthread_per_process: expected a number of 1 or more"),
            (case({"dtype": "bfloat16"}), "cases.c: expected bfloat16 in the id and as dtype"),
            (case({"load": "here/checkpoint_step_3"}), "cases.c.args.load: expected .../checkpoint_step_N below"),
            (case({}, matches="second/x"), "cases.c.matches: no case 'second/x' before this one"),
            (case({}, matches="first/c"), "cases.c.matches: no case 'first/c' before this one"),
            (every_group({"num_iteration": 1}), "variables.steps: nothing uses it"),
            ({"models": {"big": None}}, 'groups.second.models: no "big"'),
        ]:
            with self.subTest(message):
                self.expect(message, override)

    def test_a_base_stands_before(self):
        text = MATRIX.replace('"b": {"args"', '"b": {"base": "second/a", "args"')
        with self.assertRaises(merge.ConfigError) as caught:
            merge.merged(self.file("circle.json", text))
        self.assertIn("circle.json: groups.second.cases.b.base: expected a case before this one", str(caught.exception))

    def test_a_loaded_checkpoint_is_one_that_a_case_before_saves(self):
        cases = {
            "whole": {"args": {"num_iteration": 4, "save": "${checkpoints}/whole"}},
            "rest": {"args": {"num_iteration": 4, "load": "${checkpoints}/whole/checkpoint_step_000002"}},
        }
        added = {"groups": {"saved": {"new": True, "models": ["small"], "cases": cases}}}
        group = self.merged(added)["groups"]["saved"]
        self.assertEqual(merge.source_of(group, "rest"), "whole")
        self.assertIsNone(merge.source_of(group, "whole"))
        cases["rest"]["args"]["load"] = "${checkpoints}/other/checkpoint_step_000002"
        self.expect("saved.cases.rest.args.load: expected", added)
        cases["rest"]["args"] |= {"save": "${checkpoints}/other"}
        self.expect("saved.cases.rest.args.load: expected", added)
        cases["last"] = {"args": {"num_iteration": 4, "save": "${checkpoints}/last"}}
        cases["rest"]["args"]["load"] = "${checkpoints}/last/checkpoint_step_000002"
        self.expect("saved.cases.rest.args.load: expected", added)


# How many cases each group has.
COUNTS = {
    "basic": 20,
    "zero": 18,
    "lora": 16,
    "checkpoint": 6,
    "lr_scheduler": 14,
    "recompute": 16,
    "moe": 4,
    "8_proc": 10,
}


class TheMatrixTest(unittest.TestCase):
    """The files that the repository has."""

    def test_every_group_is_there_in_order_with_any_override(self):
        plain = merge.merged()
        self.assertEqual({name: len(group["cases"]) for name, group in plain["groups"].items()}, COUNTS)
        self.assertEqual(list(plain["groups"]), list(COUNTS))
        for overrides in (["maca"], ["nano"], ["maca", "nano"]):
            self.assertEqual(names(merge.merged(merge.MATRIX, overrides)), names(plain))

    def test_maca_does_without_workarounds_where_there_is_one_thread(self):
        matrix = merge.merged(merge.MATRIX, ["maca"])
        for group_name, group in matrix["groups"].items():
            for case_id, case in group["cases"].items():
                with self.subTest(f"{group_name}/{case_id}"):
                    one_thread = case["args"].get("nthread_per_process", 1) == 1
                    found = [
                        case["args"].get(f"maca_{name}") for name in ("multithread_workarounds", "retain_async_pool")
                    ]
                    self.assertEqual(found, [False, True] if one_thread else [None, None])

    def test_cases_that_match_read_the_same_tokens_in_a_step(self):
        matrix = merge.merged()
        for group in matrix["groups"].values():
            for case in group["cases"].values():
                if "matches" in case:
                    other_group, _, other_id = case["matches"].partition("/")
                    other = matrix["groups"][other_group]["cases"][other_id]
                    for flag in ("total_batch_size", "num_iteration", "dtype"):
                        self.assertEqual(case["args"].get(flag), other["args"].get(flag))


if __name__ == "__main__":
    unittest.main()
