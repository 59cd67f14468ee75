#!/usr/bin/env python3
"""Counts what a provider costs: the lines of code in its folder, without blank lines and comments.

Only what a provider must have counts: sources, headers and CMake files, not tests, examples, scripts, pages
and stand-ins for the SDK. A provider that compiles the shared kernels of backends/simt/ may have 600 lines,
one that brings a runtime alone 500. Kernels below src/kernels/, which call the vendor's tuned libraries, are
counted apart and have no budget: every op works without them, and each buys speed. Prints the table that
stands in docs/writing-a-backend.md; --check says where a budget is exceeded or the page is out of date, --fix
mends the page.
"""

import argparse
import re
import sys
from pathlib import Path

PAGE = "docs/writing-a-backend.md"
BEGIN, END = "<!-- lines of the providers: scripts/count_provider_lines.py --fix -->", "<!-- end of the lines -->"
SHARED = {"runtime", "simt"}
TEMPLATE = "tools/backend_template"
BUDGETS = {"runtime only": 500, "SIMT": 600}
CODE = {".h", ".hpp", ".cuh", ".cc", ".cpp", ".cu", ".simt", ".maca"}
LEFT_OUT = {"tests", "examples", "scripts", "standin"}
# Strings are kept whole, so that "//" inside one starts no comment.
CPP_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)


def count_lines(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix in CODE:
        text = CPP_TOKEN.sub(lambda token: token[0] if token[0][0] in "\"'" else re.sub(r"[^\n]", "", token[0]), text)
    else:
        text = re.sub(r"^[ \t]*#.*", "", text, flags=re.MULTILINE)
    return sum(1 for line in text.splitlines() if line.strip())


def counted_files(folder):
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if (
            path.is_file()
            and relative.parts[0] not in LEFT_OUT
            and (path.suffix in CODE or path.suffix == ".cmake" or path.name == "CMakeLists.txt")
        ):
            yield path


def measure(folder):
    """The kind of provider, its lines without src/kernels, and those of src/kernels."""
    required = kernels = 0
    kind = "runtime only"
    for path in counted_files(folder):
        lines = count_lines(path)
        if path.relative_to(folder).parts[:2] == ("src", "kernels"):
            kernels += lines
        else:
            required += lines
        if path.name == "CMakeLists.txt" and "infinitrain_simt_kernels(" in path.read_text(encoding="utf-8"):
            kind = "SIMT"
    return kind, required, kernels


def providers(root):
    folders = [
        path
        for path in sorted((root / "backends").iterdir())
        if path.is_dir() and path.name not in SHARED and (path / "CMakeLists.txt").exists()
    ]
    return {**{f"`{path.name}`": path for path in folders}, "as `tools/new_backend.py` writes it": root / TEMPLATE}


def table(root):
    """The table, and a line for each budget that is exceeded."""
    rows = [
        "| provider | kind | runtime, registration, collectives, build | budget | tuned kernels |",
        "|---|---|---:|---:|---:|",
    ]
    exceeded = []
    for name, folder in providers(root).items():
        kind, required, kernels = measure(folder)
        budget = BUDGETS[kind]
        rows.append(f"| {name} | {kind} | {required} | {budget} | {kernels} |")
        if required > budget:
            exceeded.append(f"{folder.relative_to(root)}: {required} lines, expected at most {budget} ({kind})")
    return "\n".join(rows), exceeded


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="check budgets and page")
    mode.add_argument("--fix", action="store_true", help="write the table into the page")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    rows, wrong = table(options.root)
    if not options.check and not options.fix:
        print(rows)
        return 0
    page = options.root / PAGE
    text = page.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN + "\n")
    _, end, tail = rest.partition(END)
    new = head + begin + rows + "\n" + end + tail
    if not begin or not end:
        wrong.append(f"{PAGE}: expected the lines {BEGIN} and {END}")
    elif new != text:
        if options.fix:
            page.write_text(new, encoding="utf-8")
        else:
            wrong.append(f"{PAGE}: its table is out of date; run scripts/count_provider_lines.py --fix")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
