#!/usr/bin/env python3
"""Writes a new accelerator provider that builds, registers and passes the shared test suites at once.

Its devices are host memory and every op falls back to the CPU; docs/writing-a-backend.md goes on from
there. The folder is made below backends/, or where --output says. Files that are there already are
never overwritten: where all of them are as they would be written, nothing is done; where one differs,
nothing is written and the exit status is 2.
"""

import argparse
import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TEMPLATE = REPOSITORY / "tools" / "backend_template"
# What the template's provider is called.
WORD = "my_backend"
RESERVED = {"cpu", "cuda", "privateuse1", "auto", "host", "meta"}
# Folders of backends/ and namespaces of the framework.
TAKEN = {
    "runtime",
    "simt",
    "autograd",
    "backend",
    "checkpoint",
    "conformance",
    "core",
    "data",
    "detail",
    "models",
    "nn",
    "op",
    "ops",
    "optim",
    "parallel",
    "test",
    "testing",
    "trainer",
}


class Refused(Exception):
    """Why nothing is written."""


def check_name(name):
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
        raise Refused(
            f"'{name}' cannot name a provider: expected a lower-case letter and up to 63 of [a-z0-9_] after it"
        )
    if "__" in name or name.endswith("_"):
        raise Refused(
            f"'{name}' cannot name a provider: it becomes a C++ name, where '__' and a trailing '_' are not used"
        )
    if name in RESERVED:
        raise Refused(f"'{name}' is reserved; other names are free")
    if name in TAKEN:
        raise Refused(f"'{name}' is the name of a part of the framework; other names are free")


def camel_case(name):
    return "".join(word.capitalize() for word in name.split("_"))


def rename(text, name):
    return text.replace(WORD, name).replace(WORD.upper(), name.upper()).replace(camel_case(WORD), camel_case(name))


def files(name, outside):
    """Maps the provider's files, relative to its folder, to their content."""
    result = {}
    for path in sorted(TEMPLATE.rglob("*")):
        if path.is_file():
            relative = rename(path.relative_to(TEMPLATE).as_posix(), name)
            result[relative] = rename(path.read_text(encoding="utf-8"), name)
    if outside:
        # A provider of the repository shares the repository's statement.
        result["extension_api_version"] = (REPOSITORY / "backends" / "extension_api_version").read_text(
            encoding="utf-8"
        )
    return result


def write_backend(name, folder):
    """Writes the provider; returns the files that were written, none where all are there already."""
    check_name(name)
    wanted = files(name, outside=folder.parent != REPOSITORY / "backends")
    different = []
    for relative, text in wanted.items():
        path = folder / relative
        if path.is_symlink() or (path.exists() and (not path.is_file() or path.read_text(encoding="utf-8") != text)):
            different.append(relative)
    if different:
        raise Refused(f"{folder} has files that differ from new ones, nothing is written: {', '.join(different)}")
    written = []
    for relative, text in wanted.items():
        path = folder / relative
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(relative)
    return written


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="as in --device NAME: [a-z0-9_]+")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="the provider's folder; by default backends/NAME of this repository",
    )
    options = parser.parse_args(arguments)
    folder = (options.output or REPOSITORY / "backends" / options.name).resolve()
    try:
        written = write_backend(options.name, folder)
    except (Refused, OSError) as error:
        print(f"new_backend.py: {error}", file=sys.stderr)
        return 2
    print(f"{folder}: {len(written)} files written" if written else f"{folder}: complete already")
    where = "" if folder.parent == REPOSITORY / "backends" else f" -DINFINITRAIN_BACKEND_DIR={folder}"
    print(
        f"Next: cmake -S {REPOSITORY} -B build/{options.name} -G Ninja -DINFINITRAIN_BACKEND={options.name}{where} "
        f"-DBUILD_TEST=ON\n      ninja -C build/{options.name} tests_{options.name}\n"
        f"      ctest --test-dir build/{options.name} -L '^{options.name}$'\n"
        f"      and docs/writing-a-backend.md"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
