#!/usr/bin/env python3
"""Checks that the code in the documentation is the code of compiled files.

A fenced block of C++ in a page follows a line that says where it is from:

    <!-- snippet: path/from/the/root.cc: name -->

The file marks that part with the lines `// [begin: name]` and `// [end: name]` (`#` in place of `//`
where that starts a comment); without a name the block is the whole file. --fix writes the files' code
into the pages. C++ without such a line is refused. infini_rt/ has a check of its own.
"""

import argparse
import re
import sys
import textwrap
from pathlib import Path

MARKER = re.compile(r"^[ \t]*(?://|#)[ \t]*\[(begin|end): ([^\]]+)\][ \t]*$")
SNIPPET = re.compile(r"^<!-- snippet: (?P<path>[^:\s]+)(?:: (?P<name>.+?))? -->$")
FENCE = re.compile(r"^(`{3,})(\S*)")
REFUSED_WITHOUT_SOURCE = {"cpp", "c++", "cc", "cuda"}


class Mistake(Exception):
    """Says what is wrong with a page or a source."""


def region(text, name, where):
    """The lines between the markers of `name`, without other markers and common indentation."""
    lines, inside, found = [], False, False
    for line in text.splitlines():
        match = MARKER.match(line)
        if match and match[2] == name:
            if (match[1] == "begin") == inside or (match[1] == "begin" and found):
                raise Mistake(f"{where}: the markers of '{name}' are not one begin and one end after it")
            inside = match[1] == "begin"
            found = True
        elif inside and not match:
            lines.append(line)
    if not found:
        raise Mistake(f"{where} has no part '{name}'")
    if inside:
        raise Mistake(f"{where}: '{name}' has no end")
    return textwrap.dedent("\n".join(lines)).strip("\n")


def source_of(root, match):
    path = root / match["path"]
    if not path.is_file():
        raise Mistake(f"{match['path']} does not exist")
    text = path.read_text(encoding="utf-8")
    if match["name"]:
        return region(text, match["name"], match["path"])
    return "\n".join(line for line in text.splitlines() if not MARKER.match(line)).strip("\n")


def update(root, page):
    """Returns the page's text with the code of its sources, and the mistakes of the page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    result, mistakes = [], []
    i = 0
    while i < len(lines):
        line = lines[i]
        result.append(line)
        i += 1
        snippet = SNIPPET.match(line)
        if line.startswith("<!-- snippet") and not snippet:
            mistakes.append(f"line {i}: expected <!-- snippet: path: name -->")
        start = i if snippet else i - 1
        fence = FENCE.match(lines[start]) if start < len(lines) else None
        if snippet and not fence:
            mistakes.append(f"line {i}: expected a fenced block right after it")
            continue
        if not fence:
            continue
        end = next((k for k in range(start + 1, len(lines)) if lines[k] == fence[1]), None)
        if end is None:
            mistakes.append(f"line {start + 1}: the block has no end")
            break
        body = lines[start + 1 : end]
        if snippet:
            result.append(lines[start])
            try:
                body = source_of(root, snippet).splitlines()
            except Mistake as mistake:
                mistakes.append(f"line {i}: {mistake}")
        elif fence[2].lower() in REFUSED_WITHOUT_SOURCE:
            mistakes.append(f"line {start + 1}: code that is in no compiled file; mark where it is from")
        result += [*body, lines[end]]
        i = end + 1
    return "\n".join(result) + "\n", mistakes


def pages(root):
    return [*sorted(root.glob("*.md")), *sorted(root.glob("docs/**/*.md"))]


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="write the code of the files into the pages")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    wrong = 0
    for page in pages(options.root):
        name = page.relative_to(options.root)
        text, mistakes = update(options.root, page)
        for mistake in mistakes:
            print(f"{name}: {mistake}", file=sys.stderr)
        wrong += len(mistakes)
        if text != page.read_text(encoding="utf-8"):
            if options.fix:
                page.write_text(text, encoding="utf-8")
                print(f"{name}: updated")
            else:
                print(
                    f"{name}: its code is not that of the files; run scripts/check_snippets.py --fix", file=sys.stderr
                )
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
