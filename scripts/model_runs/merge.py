#!/usr/bin/env python3
"""Merges overrides into the matrix of model runs, by key, and prints the result as JSON.

    python3 scripts/model_runs/merge.py [--override NAME_OR_FILE]... [--matrix FILE]

Groups, their cases and a case's arguments are keyed. An override changes or adds arguments, sets
variables, and removes with null; entries of its own say `"new": true` and go to the end. All else
keeps its place. docs/model-runs.md describes the files. What is wrong is named with its place in
the file, and the exit status is 2.
"""

import argparse
import copy
import json
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
MATRIX = FOLDER / "test_groups.json"

NAME = re.compile(r"\w+\Z", re.ASCII)
VARIABLE = re.compile(r"\$\{(\w*)\}", re.ASCII)
STEP_FOLDER = re.compile(r"(.+)/checkpoint_step_(\d+)\Z")
# What the runner gives: the folder for a group's checkpoints.
RUNNERS_VARIABLES = ("checkpoints",)
# Flags that the runner reads itself, and what they are where a case does not say.
COUNTS = {"num_iteration": "", "nthread_per_process": "1"}
# The parts of each kind of entry; those with values of their own kind are read by functions below.
MATRIX_PARTS = ("variables", "models", "groups")
MODEL_PARTS = ("program", "args")
GROUP_PARTS = ("models", "processes", "args", "cases")
CASE_PARTS = ("base", "args", "matches")


class ConfigError(Exception):
    """What is wrong, with its file and place."""


class Place:
    """Where in a file a value stands, for messages."""

    def __init__(self, file, keys=()):
        self.file, self.keys = file, keys

    def __truediv__(self, key):
        return Place(self.file, (*self.keys, str(key)))

    def error(self, message):
        return ConfigError(": ".join(part for part in (str(self.file), ".".join(self.keys), message) if part))


class Repeated:
    """Stands for the value of a key that an object has twice."""


def read(path):
    """The JSON object of a file, in which no object has a key twice."""

    def unique(pairs):
        result = {}
        for key, value in pairs:
            result[key] = Repeated if key in result else value
        return result

    def check(value, place):
        if value is Repeated:
            raise place.error("stands here twice")
        for key, part in value.items() if isinstance(value, dict) else ():
            check(part, place / key)

    def refuse(constant):
        raise ValueError(f"{constant} is no number of JSON")

    place = Place(Path(path).name)
    try:
        text = Path(path).read_text(encoding="utf-8")
        data = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except OSError as error:
        raise Place(path).error(error.strerror) from error
    except ValueError as error:
        raise place.error(f"no JSON: {error}") from error
    check(data, place)
    return data


def check_object(value, place, keys=None):
    """That it is an object, with no other than these keys, or with names for keys."""
    if not isinstance(value, dict):
        raise place.error(f"expected an object, found {json.dumps(value)}")
    for key in value:
        if keys is not None and key not in keys:
            raise (place / key).error(f"unknown; expected {', '.join(keys)}")
        if not NAME.match(key):
            raise (place / key).error("expected a name of letters, digits and _")


def check_scalars(values, place, removable):
    check_object(values, place)
    for key, value in values.items():
        if not (isinstance(value, (str, int, float)) or (removable and value is None)):
            raise (place / key).error(f"expected a text, a number, true or false, found {json.dumps(value)}")


def check_names(values, place, known):
    if not isinstance(values, list) or not values:
        raise place.error(f"expected a list of names, found {json.dumps(values)}")
    for value in values:
        if not isinstance(value, str) or value not in known:
            raise place.error(f"no {json.dumps(value)}; there are {', '.join(known)}")
    if len(set(values)) != len(values):
        raise place.error("a name stands here twice")


def check_count(value, place):
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise place.error(f"expected a number of 1 or more, found {json.dumps(value)}")


def merge_args(args, changes, place):
    """Changes arguments in place."""
    check_scalars(changes, place, removable=True)
    for flag, value in changes.items():
        if value is None and flag not in args:
            raise (place / flag).error("there is no such argument to remove")
        args[flag] = value
    for flag in [flag for flag, value in args.items() if value is None]:
        del args[flag]


def find_case(groups, name, place):
    """The case that `group/id` names; it stands before the one that speaks of it."""
    group, _, case = name.partition("/") if isinstance(name, str) else ("", "", "")
    found = groups.get(group, {}).get("cases", {}).get(case)
    if found is None:
        raise place.error(f"expected a case before this one, as group/id, found {json.dumps(name)}")
    return found


def make_case(groups, group_args, entry, place):
    """A case with all of its arguments: those of its base, of its group, and its own."""
    check_object(entry, place, CASE_PARTS)
    case = {"args": {}}
    if "base" in entry:
        case["args"] |= find_case(groups, entry["base"], place / "base")["args"]
    case["args"] |= group_args
    if "args" in entry:
        check_scalars(entry["args"], place / "args", removable=False)
        case["args"] |= entry["args"]
    if "matches" in entry:
        find_case(groups, entry["matches"], place / "matches")
        case["matches"] = entry["matches"]
    return case


def add_group(matrix, name, entry, place):
    check_object(entry, place, GROUP_PARTS)
    for part in ("models", "cases"):
        if part not in entry:
            raise place.error(f"expected {part}")
    check_names(entry["models"], place / "models", matrix["models"])
    group = matrix["groups"][name] = {"models": entry["models"]}
    if "processes" in entry:
        check_count(entry["processes"], place / "processes")
        group["processes"] = entry["processes"]
    group_args = entry.get("args", {})
    check_scalars(group_args, place / "args", removable=False)
    group["cases"] = {}
    check_object(entry["cases"], place / "cases")
    for case, own in entry["cases"].items():
        group["cases"][case] = make_case(matrix["groups"], group_args, own, place / "cases" / case)


def add_model(matrix, name, entry, place):
    check_object(entry, place, MODEL_PARTS)
    if not isinstance(entry.get("program"), str):
        raise place.error("expected a program")
    check_scalars(entry.get("args", {}), place / "args", removable=False)
    matrix["models"][name] = {"program": entry["program"], "args": entry.get("args", {})}


def load_matrix(path):
    """The matrix of a file, every case with all of its arguments."""
    data, place = read(path), Place(Path(path).name)
    check_object(data, place, MATRIX_PARTS)
    matrix = {"variables": data.get("variables", {}), "models": {}, "groups": {}}
    check_scalars(matrix["variables"], place / "variables", removable=False)
    for part, add in (("models", add_model), ("groups", add_group)):
        if part not in data:
            raise place.error(f"expected {part}")
        check_object(data[part], place / part)
        for name, entry in data[part].items():
            add(matrix, name, entry, place / part / name)
    return matrix


def merge_entries(entries, changes, place, parts, add, change):
    """Changes, removes and adds entries that have names: models, groups or cases."""
    check_object(changes, place)
    for name, entry in changes.items():
        here = place / name
        if entry is None:
            if name not in entries:
                raise here.error("there is nothing of this name to remove")
            del entries[name]
            continue
        check_object(entry, here, (*parts, "new"))
        entry = dict(entry)
        new = entry.pop("new", False)
        if not isinstance(new, bool):
            raise (here / "new").error(f"expected true or false, found {json.dumps(new)}")
        if new and name in entries:
            raise here.error("is no new name")
        if not new and name not in entries:
            raise here.error('there is nothing of this name to change; one that is to be added says "new": true')
        (add if new else change)(name, entry, here)


def apply_override(matrix, path):
    """The matrix with the changes of a file."""
    matrix = copy.deepcopy(matrix)
    data, place = read(path), Place(Path(path).name)
    check_object(data, place, MATRIX_PARTS)
    set_variables(matrix, data.get("variables", {}), place / "variables")

    def change_model(name, entry, here):
        model = matrix["models"][name]
        if "program" in entry:
            if not isinstance(entry["program"], str):
                raise (here / "program").error("expected a name")
            model["program"] = entry["program"]
        merge_args(model["args"], entry.get("args", {}), here / "args")

    def change_group(name, entry, here):
        group = matrix["groups"][name]
        if "models" in entry:
            check_names(entry["models"], here / "models", matrix["models"])
            group["models"] = entry["models"]
        if "processes" in entry:
            check_count(entry["processes"], here / "processes")
            group["processes"] = entry["processes"]
        for case in group["cases"].values():
            merge_args(case["args"], entry.get("args", {}), here / "args")

        def add_case(name, entry, here):
            group["cases"][name] = make_case(matrix["groups"], {}, entry, here)

        def change_case(name, entry, here):
            if "base" in entry:
                raise (here / "base").error("only a new case has a base")
            case = group["cases"][name]
            merge_args(case["args"], entry.get("args", {}), here / "args")
            if "matches" in entry:
                if entry["matches"] is None:
                    case.pop("matches", None)
                else:
                    case["matches"] = entry["matches"]

        cases = entry.get("cases", {})
        merge_entries(group["cases"], cases, here / "cases", CASE_PARTS, add_case, change_case)

    def add_new(add):
        return lambda name, entry, here: add(matrix, name, entry, here)

    models, groups = data.get("models", {}), data.get("groups", {})
    merge_entries(matrix["models"], models, place / "models", MODEL_PARTS, add_new(add_model), change_model)
    merge_entries(matrix["groups"], groups, place / "groups", GROUP_PARTS, add_new(add_group), change_group)
    return matrix


def set_variables(matrix, values, place):
    check_scalars(values, place, removable=False)
    for name, value in values.items():
        if name not in matrix["variables"]:
            raise (place / name).error(f"no such variable; there are {', '.join(matrix['variables'])}")
        matrix["variables"][name] = value


def text_of(value):
    """A value as a flag takes it."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def substitute(value, variables, place):
    def replace(match):
        if match[1] not in variables:
            raise place.error(f"no variable {match[1]!r}; there are {', '.join(variables)}")
        return text_of(variables[match[1]])

    return VARIABLE.sub(replace, text_of(value))


def arguments(matrix, model, case, variables=(), place=None):
    """The flags of a case of the matrix for a model and their values as texts, the model's first."""
    variables = matrix["variables"] | dict(variables)
    place = place or Place("matrix")
    values = matrix["models"][model]["args"] | case["args"]
    return {flag: substitute(value, variables, place / flag) for flag, value in values.items()}


def source_of(group, case_id):
    """The case of the same group whose checkpoints a case loads, if it loads any."""
    load = group["cases"][case_id]["args"].get("load")
    if load is None:
        return None
    step_folder = STEP_FOLDER.match(str(load))
    for other_id, other in group["cases"].items():
        if other_id == case_id:
            break
        if step_folder and other["args"].get("save") == step_folder[1]:
            return other_id
    raise ValueError(f"expected .../checkpoint_step_N below what a case before this one saves, found {load}")


def check(matrix, name="matrix"):
    """What holds for a whole matrix once nothing more is merged into it."""
    place = Place(name)
    used = set()
    earlier = set()
    given = dict.fromkeys(RUNNERS_VARIABLES, "")
    for model_name, model in matrix["models"].items():
        for value in model["args"].values():
            used.update(VARIABLE.findall(text_of(value)))
        substitute(model["program"], matrix["variables"], place / "models" / model_name / "program")
    for group_name, group in matrix["groups"].items():
        check_names(group["models"], place / "groups" / group_name / "models", matrix["models"])
        for case_id, case in group["cases"].items():
            here = place / "groups" / group_name / "cases" / case_id
            for model in group["models"]:
                values = arguments(matrix, model, case, given, here / "args")
                for flag, default in COUNTS.items():
                    count = values.get(flag, default)
                    if not re.fullmatch(r"[1-9]\d*", count):
                        raise (here / "args" / flag).error(f"expected a number of 1 or more, found {count!r}")
                if ("bfloat16" in case_id) != (values.get("dtype") == "bfloat16"):
                    raise here.error(f"expected bfloat16 in the id and as dtype, or in neither, found {values}")
            try:
                source_of(group, case_id)
            except ValueError as error:
                raise (here / "args" / "load").error(str(error)) from error
            if "matches" in case and case["matches"] not in earlier:
                raise (here / "matches").error(f"no case {case['matches']!r} before this one")
            earlier.add(f"{group_name}/{case_id}")
            for value in case["args"].values():
                used.update(VARIABLE.findall(text_of(value)))
    for name in matrix["variables"]:
        if name not in used:
            raise (place / "variables" / name).error("nothing uses it")


def merged(path=MATRIX, overrides=(), variables=()):
    """The matrix of a file with overrides: files, or names of those in this folder."""
    matrix = load_matrix(path)
    for override in overrides:
        known = FOLDER / f"{override}.json"
        matrix = apply_override(matrix, known if known.is_file() else override)
    set_variables(matrix, dict(variables), Place("--set"))
    check(matrix, Path(path).name)
    return matrix


def print_matrix(matrix):
    """As JSON, a line for each case."""

    def compact(entries, indent):
        return ",\n".join(f"{indent}{json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())

    print("{")
    print('  "variables": {\n' + compact(matrix["variables"], "    ") + "\n  },")
    print('  "models": {\n' + compact(matrix["models"], "    ") + "\n  },")
    groups = []
    for name, group in matrix["groups"].items():
        rest = compact({key: value for key, value in group.items() if key != "cases"}, "      ")
        cases = compact(group["cases"], "        ")
        groups.append(f'    {json.dumps(name)}: {{\n{rest},\n      "cases": {{\n{cases}\n      }}\n    }}')
    print('  "groups": {\n' + ",\n".join(groups) + "\n  }\n}")


def add_options(parser):
    parser.add_argument("--matrix", type=Path, default=MATRIX, metavar="FILE", help="default: test_groups.json")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME_OR_FILE",
        help="maca, nano, or a file of changes; repeats are applied in turn",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    options = parser.parse_args()
    try:
        print_matrix(merged(options.matrix, options.override))
    except ConfigError as error:
        print(f"merge.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
