#!/usr/bin/env python3
"""Checks what pages say about the repository: links and their anchors lead somewhere, a page and its Chinese twin
(*.zh-CN.md) have the same parts, the options of CMake and the variables of the environment that there are have a
page that mentions them, and those that a page mentions are there. Flags of the programs have a check of their own
(tests/trainer/cli_docs_test.py). Prints one line for each mistake and exits 1."""

import argparse
import re
import sys
from itertools import zip_longest
from pathlib import Path

TWIN = ".zh-CN.md"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`]+)`")
HEADING = re.compile(r"^(#+) +(.*?)\s*$")
FENCE = re.compile(r"^\s*(`{3,})(\S*)")
FLAG = re.compile(r"--?\w[\w-]*")
# A name of this project's in CMake or the environment, with what may be around it in code.
NAME = re.compile(r"(?:(?<!\w)|(?<=-D))((?:INFINI|MACA|MCCL)[A-Z0-9]*_[A-Z0-9_]*[A-Z0-9])(?!\w)")
READS_ENVIRONMENT = re.compile(r"getenv\(|GetEnvironment\w*\(")
CMAKE_OPTION = re.compile(r"(?:^|\n)\s*(?:option\(\s*(\w+)|set\(\s*(\w+)[^()]*?\sCACHE\s+(?!INTERNAL))")
SOURCES = (".cc", ".h", ".py", ".sh", ".cmake", ".txt", ".json", ".in")
OWN_NAMES = ("INFINITRAIN_", "INFINI_TRAIN_", "INFINI_RT_")
GENERATED = re.compile(r"^<!-- (end of the )?lines")
NOT_THE_PROJECT = {"tests", "standin", "examples"}


class Page:
    """A page taken apart: headings, rows of tables, code, and what links to it may name."""

    def __init__(self, path):
        self.path = path
        self.headings, self.rows, self.blocks, self.links = [], [], [], []
        self.anchors = set()
        fence, block, prose, generated = None, [], [], False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if fence:
                if line.strip() == fence:
                    self.blocks.append((number, block))
                    fence, block = None, []
                else:
                    block.append(line)
                continue
            if match := FENCE.match(line):
                fence = match[1]
                continue
            if match := HEADING.match(line):
                self.headings.append((number, len(match[1]), match[2]))
                self.anchors.add(anchor(match[2], self.anchors))
            elif match := GENERATED.match(line):
                generated = match[1] is None
            elif line.startswith("|") and not generated:
                self.rows.append((number, line.replace("\\|", "").count("|")))
            self.links += [(number, target) for target in LINK.findall(CODE.sub("``", line))]
            prose.append(line)
        self.codes = {" ".join(code.split()) for code in CODE.findall("\n".join(prose))}


def anchor(heading, taken):
    """The name that GitHub gives a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
    if name not in taken:
        return name
    return next(f"{name}-{i}" for i in range(1, 1000) if f"{name}-{i}" not in taken)


def check_links(root, pages):
    for page in pages.values():
        for number, link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            path, _, fragment = link.partition("#")
            target = (page.path.parent / path).resolve() if path else page.path
            where = f"{page.path.relative_to(root)}:{number}"
            if not target.exists():
                yield f"{where}: {link}: there is no such file"
            elif fragment and target in pages and fragment not in pages[target].anchors:
                yield f"{where}: {link}: the page has no such heading"


def without_comments(block):
    return [re.sub(r"\s*(?:#|//) .*$", "", line).rstrip() for line in block]


def check_twins(root, pages):
    """A page and its translation have the same headings, tables and code, line for line."""
    for path, twin in pages.items():
        if not path.name.endswith(TWIN):
            continue
        original = pages.get(path.with_name(path.name.removesuffix(TWIN) + ".md"))
        name = path.relative_to(root)
        if original is None:
            yield f"{name}: there is no page of which it is a translation"
            continue
        parts = {
            "headings": lambda page: [(number, level) for number, level, _ in page.headings],
            "rows of tables": lambda page: page.rows,
            "blocks of code": lambda page: [(number, without_comments(block)) for number, block in page.blocks],
        }
        for kind, part in parts.items():
            for ours, theirs in zip_longest(part(twin), part(original)):
                if ours is None or theirs is None or ours[1] != theirs[1]:
                    line, other = (item[0] if item else "the end" for item in (ours, theirs))
                    yield f"{name}: {kind} differ from the original's: line {line} from its line {other} on"
                    break
        for page, other in ((twin, original), (original, twin)):
            lacking = sorted(code for code in other.codes - page.codes if FLAG.fullmatch(code) or NAME.search(code))
            if lacking:
                yield f"{page.path.relative_to(root)}: does not mention {', '.join(lacking)}, its twin does"


def check_names(root, pages):
    """Options of CMake and variables of the environment are documented, and there."""
    texts = {
        path.relative_to(root): path.read_text(encoding="utf-8", errors="replace")
        for path in files_below(root)
        if path.suffix in SOURCES
    }
    known = {name for text in texts.values() for name in NAME.findall(text)}
    documented = {name for page in pages.values() for code in page.codes for name in NAME.findall(code)}
    for path, text in texts.items():
        if NOT_THE_PROJECT.intersection(path.parts):
            continue
        kind, names = "", []
        if path.suffix in (".cmake", ".txt"):
            kind, names = "option", [first or second for first, second in CMAKE_OPTION.findall(text)]
        elif path.suffix == ".cc" and READS_ENVIRONMENT.search(text):
            kind, names = "variable", re.findall(r'"(\w+)"', text)
        for name in names:
            if NAME.fullmatch(name) and name not in documented:
                yield f"{path}: the {kind} {name} is documented nowhere"
    for page in pages.values():
        for name in sorted({name for code in page.codes for name in NAME.findall(code)} - known):
            if name.startswith(OWN_NAMES):
                yield f"{page.path.relative_to(root)}: there is no {name}"


def files_below(root):
    for path in sorted(root.rglob("*")):
        folders = path.relative_to(root).parts[:-1]
        if not any(folder.startswith((".", "build")) or folder == "runs" for folder in folders) and path.is_file():
            yield path


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help=argparse.SUPPRESS)
    root = parser.parse_args(arguments).root.resolve()
    pages = {path: Page(path) for path in files_below(root) if path.suffix == ".md"}
    mistakes = [mistake for check in (check_links, check_twins, check_names) for mistake in check(root, pages)]
    print("\n".join(mistakes) or f"{len(pages)} pages agree with each other and with the files.")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
