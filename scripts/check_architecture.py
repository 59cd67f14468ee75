#!/usr/bin/env python3
"""Checks that the repository keeps to its architecture: which room may know of which, where vendor
names may appear, and what a header may drag in. Prints one line for each violation and exits 1."""

import argparse
import pathlib
import re
import sys

# Rooms of infini_train/ from the bottom up. A room may include its own level and those below; rooms
# of one level may not include each other in circles.
LEVELS = [
    {"core"},
    {"ops"},
    {"autograd"},
    {"nn", "optim", "data", "checkpoint", "parallel", "conformance"},
    {"models"},
    {"trainer"},
]
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
# What tools/new_backend.py copies; a provider itself.
PROVIDER_TEMPLATE = "tools/backend_template/"
# Kernels are reached through the op registry alone, and see no further up than ops.
KERNELS = "kernels"
KERNELS_MAY_INCLUDE = {"core", "ops", KERNELS}
# What all providers use; every other folder of backends/ is a provider.
SHARED_BACKEND_ROOMS = {"runtime", "simt"}

SOURCE_SUFFIXES = {".h", ".hpp", ".cuh", ".cc", ".cpp", ".cu", ".simt", ".maca"}
HEADER_SUFFIXES = {".h", ".hpp", ".cuh"}
TEXT_SUFFIXES = SOURCE_SUFFIXES | {".cmake", ".txt", ".py", ".sh", ".md", ".json", ".yml", ".imp", ".in"}
MAX_LINES = 600
MAX_SUBJECTS_IN_FOLDER = 18

VENDOR_WORDS = re.compile(
    r"(?i)(?<![a-z])(nvidia|cublas\w*|cudnn\w*|nccl\w*|metax|maca|mccl\w*|mcblas\w*|iluvatar|corex|"
    r"mthreads|musa|cambricon|cnrt\w*|cncl\w*|ascend|aclrt\w*|hccl\w*|rocm|hip)(?![a-z])"
)
# The framework has a type for CUDA devices. Where devices are defined and where users choose one, it
# may be spoken of; elsewhere no more than the type's name appears.
CUDA_WORD = re.compile(r"(?i)(?<!\bk)cuda")
CUDA_IS_NAMED_IN = ("infini_train/core/device/", "infini_train/trainer/")

VENDOR_HEADERS = re.compile(
    r"^(cuda|cublas|cudnn|nccl|cub/|mc_|mcr/|mc(blas|dnn|runtime)|mccl|maca|musa|mublas|mudnn|mccl|cnrt|cnnl|cncl|"
    r"acl/|hccl|ixrt|hip/)"
)
THIRD_PARTY_HEADERS = re.compile(r"^(fmt/|nlohmann/|CLI/|pcre2|dnnl|oneapi/|omp\.h|Eigen/|boost/|gtest/|gmock/)")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
# A first path component that exists on the author's machine only. Examples use /path/to.
PRIVATE_PATH = re.compile(r"(?:^|(?<=[\s\"'(=`]))/(?:home|root|Users|work|workspace|mnt|data|scratch)/[\w.]")
LEAVING_PATH = re.compile(r"(?<![\w./}])(?:\.\./)+[\w.-]+")
LEFT_BEHIND = re.compile(r"\b(TO)DO\b|\b(FIX)ME\b|\bX{3}\b")


class Repository:
    """The files that are checked, and the violations found in them."""

    def __init__(self, root):
        self.root = root
        self.violations = []
        self.texts = {}
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root)
            if any(part.startswith((".", "build")) or part in ("runs", "__pycache__") for part in name.parts[:-1]):
                continue
            if path.suffix in TEXT_SUFFIXES and path.is_file():
                self.texts[name.as_posix()] = path.read_text(encoding="utf-8", errors="replace")

    def sources(self, *folders):
        for name, text in self.texts.items():
            if name.startswith(folders) and pathlib.PurePosixPath(name).suffix in SOURCE_SUFFIXES:
                yield name, text

    def report(self, name, text, offset, message):
        line = text.count("\n", 0, offset) + 1
        self.violations.append(f"{name}:{line}: {message}")


def includes(text):
    """(offset, "<" or '"', path) of every include directive."""
    return [(match.start(), match[1], match[2]) for match in INCLUDE.finditer(text)]


def room_of(path):
    """The room that a path below infini_train/ belongs to; None for files outside of all rooms."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "infini_train" else None


def is_public(path):
    """Whether a header of infini_train/ is installed: those in a room's own folder, not below it."""
    return path.count("/") == 2 or path.startswith("infini_train/core/device/")


def check_rooms(repository):
    """Arrows inside infini_train/ point down."""
    uses = {}
    for name, text in repository.sources("infini_train/"):
        room = room_of(name)
        if room != KERNELS and room not in LEVEL_OF:
            repository.report(name, text, 0, f"infini_train/ has no room '{room}'; see LEVELS in this script")
            continue
        for offset, quote, path in includes(text):
            if quote == "<":
                if path.startswith(("infini_train/", "infini/")):
                    repository.report(name, text, offset, f'include "{path}" with quotes')
                continue
            other = room_of(path)
            if other is None:
                repository.report(name, text, offset, f'"{path}": expected a path from the repository root')
            elif not (repository.root / path).exists():
                repository.report(name, text, offset, f'"{path}" does not exist')
            elif room == KERNELS:
                if other not in KERNELS_MAY_INCLUDE:
                    repository.report(name, text, offset, f"kernels may not know of {other}")
            elif other == KERNELS:
                repository.report(name, text, offset, "kernels are reached through the op registry only")
            elif other in LEVEL_OF and LEVEL_OF[other] > LEVEL_OF[room]:
                repository.report(name, text, offset, f"{room} may not know of {other}, which is above it")
            elif other != room:
                uses.setdefault((room, other), (name, text, offset))
    for (room, other), (name, text, offset) in uses.items():
        if (other, room) in uses and room < other:
            repository.report(name, text, offset, f"{room} and {other} include each other")


def check_vendors(repository):
    """The framework knows no vendor, and vendor headers stay with their vendor's code."""
    for name, text in repository.sources("infini_train/"):
        for match in VENDOR_WORDS.finditer(text):
            repository.report(name, text, match.start(), f"the framework knows no vendor, found '{match[0]}'")
        if not name.startswith(CUDA_IS_NAMED_IN):
            for match in CUDA_WORD.finditer(text):
                repository.report(name, text, match.start(), f"only {' and '.join(CUDA_IS_NAMED_IN)} name '{match[0]}'")
    for name, text in repository.sources(""):
        at_home = name.startswith(("infini_rt/src/native/", "infini_rt/tests/", "infini_rt/benchmarks/")) or (
            name.startswith("backends/") and name.split("/")[1] not in SHARED_BACKEND_ROOMS
        )
        for offset, _, path in includes(text):
            if VENDOR_HEADERS.match(path) and not at_home:
                repository.report(name, text, offset, f"vendor header {path} outside its vendor's code")
    for name, text in repository.sources(*(f"backends/{room}/" for room in SHARED_BACKEND_ROOMS)):
        for match in re.finditer(r"^[ \t]*#[ \t]*(?:el)?if.*", text, re.MULTILINE):
            if VENDOR_WORDS.search(match[0]) or CUDA_WORD.search(match[0]):
                repository.report(name, text, match.start(), "shared code may not ask for its provider")


def check_products(repository):
    """infini_rt/ stands alone, and nothing uses the backends."""
    for name, text in repository.sources("infini_rt/"):
        for offset, _, path in includes(text):
            if path.startswith(("infini_train", "backends/")):
                repository.report(name, text, offset, f"InfiniRT may not know of {path}")
    for name, text in repository.sources("infini_train/", "tools/", "examples/"):
        if name.startswith(PROVIDER_TEMPLATE):
            continue
        for offset, _, path in includes(text):
            if path.startswith(("backends/", "infini_train_")):
                repository.report(name, text, offset, f"providers are reached through registries, not {path}")
    for name, text in repository.sources("infini_train/"):
        for offset, _, path in includes(text):
            if path.startswith("infini/rt"):
                repository.report(name, text, offset, "the framework reaches devices through providers only")


def check_backends(repository):
    """Shared rooms of backends/ serve providers without knowing them, and providers know each other not at all."""
    for name, text in repository.sources("backends/"):
        owner = name.split("/")[1]
        for offset, _, path in includes(text):
            if match := re.match(r"backends/([^/]+)/|infini_train_([^/]+)/", path):
                other = match[1] or match[2]
                if other == owner or (other in SHARED_BACKEND_ROOMS and owner not in SHARED_BACKEND_ROOMS):
                    continue
                repository.report(name, text, offset, f"{owner} may not know of {other}")


def check_headers(repository):
    """Public headers need nothing but the standard library and each other."""
    for name, text in repository.sources("infini_train/", "infini_rt/", "backends/"):
        if pathlib.PurePosixPath(name).suffix not in HEADER_SUFFIXES:
            continue
        if not re.search(r"^#pragma once$", text, re.MULTILINE):
            repository.report(name, text, 0, "expected #pragma once")
        if not name.startswith("infini_train/") or not is_public(name):
            continue
        for offset, _, path in includes(text):
            if THIRD_PARTY_HEADERS.match(path):
                repository.report(
                    name,
                    text,
                    offset,
                    f"a public header may not include {path}; "
                    "move it to a source or to a header below the room's folder",
                )
            if path.startswith("infini_train/") and not is_public(path):
                repository.report(name, text, offset, f"{path} is not installed, this header is")


def check_sizes(repository):
    """A file has one subject, a folder about a dozen."""
    subjects = {}
    for name, text in repository.sources("infini_train/", "infini_rt/", "backends/", "tools/", "examples/"):
        lines = text.count("\n")
        if lines > MAX_LINES and not text.startswith("// Generated by "):
            repository.report(name, text, 0, f"{lines} lines, expected at most {MAX_LINES}")
        path = pathlib.PurePosixPath(name)
        subjects.setdefault(path.parent, set()).add(path.stem)
    for folder, stems in subjects.items():
        if len(stems) > MAX_SUBJECTS_IN_FOLDER:
            repository.violations.append(f"{folder}: {len(stems)} subjects, expected at most {MAX_SUBJECTS_IN_FOLDER}")


def check_tests(repository):
    """A test that nobody compiles promises nothing: its folder's CMakeLists.txt, or one above, names it."""
    for name, text in repository.sources("tests/"):
        path = pathlib.PurePosixPath(name)
        if not path.stem.endswith("_test"):
            continue
        lists = "".join(repository.texts.get(f"{folder}/CMakeLists.txt", "") for folder in path.parents)
        if not re.search(rf"\b{re.escape(path.stem.removesuffix('_test'))}(_test\.cc)?\b", lists):
            repository.report(name, text, 0, "no CMakeLists.txt names this test")


def check_texts(repository):
    """Nothing names its author's machine, leaves the repository, or waits to be finished."""
    for name, text in repository.texts.items():
        if name.startswith("tests/golden/data/") or name.endswith("check_architecture_test.py"):
            continue
        for match in PRIVATE_PATH.finditer(text):
            repository.report(name, text, match.start(), f"path of one machine: {match[0]}...")
        for match in LEFT_BEHIND.finditer(text):
            repository.report(name, text, match.start(), f"'{match[0]}' left behind")
        if pathlib.PurePosixPath(name).suffix in (".md", ".yml", ".json", ".h", ".cc"):
            folder = (repository.root / name).parent
            for match in LEAVING_PATH.finditer(text):
                target = (folder / match[0]).resolve()
                if not target.is_relative_to(repository.root):
                    repository.report(name, text, match.start(), f"{match[0]} leaves the repository")


CHECKS = [
    check_rooms,
    check_vendors,
    check_products,
    check_backends,
    check_headers,
    check_sizes,
    check_tests,
    check_texts,
]


def check(root):
    """All violations in the tree at `root`, as 'file:line: message'."""
    repository = Repository(root.resolve())
    for function in CHECKS:
        function(repository)
    return repository.violations


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--root",
        type=pathlib.Path,
        default=pathlib.Path(__file__).parent.parent,
        help="repository to check (default: this one)",
    )
    violations = check(parser.parse_args().root)
    for violation in violations:
        print(violation)
    print(f"{len(violations)} violations of the architecture" if violations else "The architecture holds.")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
