#!/usr/bin/env python3
"""Tests of generate_public_headers.py: what each set of backends gets, and what is refused."""

from __future__ import annotations

import filecmp
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import generate_public_headers as generator  # noqa: E402
from header_model import MESSAGES  # noqa: E402

ACCELERATORS = [
    backend.name
    for backend in generator.BACKENDS
    if backend.name != "cpu" and generator.native_header(backend, ROOT).exists()
]
BACKENDS = {backend.name: backend for backend in generator.BACKENDS}


class GeneratorTest(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.directory)

    def generate(self, *names: str, root: Path = ROOT) -> Path:
        output = self.directory / "-".join(names)
        generator.generate(list(names), output, root)
        return output

    def header(self, output: Path) -> str:
        return (output / "include/infini/rt/generated.h").read_text()

    def test_cpu_has_the_whole_table(self) -> None:
        header = self.header(self.generate("cpu"))
        for function in generator.FUNCTIONS:
            self.assertIn(f" {function.name}(", header)
        self.assertNotIn("kErrorNotSupported", header)

    def test_every_accelerator_alone_and_with_the_cpu(self) -> None:
        for name in ACCELERATORS:
            with self.subTest(name):
                support = generator.supported(BACKENDS[name], ROOT)
                alone = self.header(self.generate(name))
                both = self.header(self.generate("cpu", name))
                for function in generator.FUNCTIONS:
                    declared = f" {function.name}(" in alone
                    self.assertEqual(declared, function.name in support or function.name in MESSAGES)
                    self.assertIn(f" {function.name}(", both)
                dispatch = (self.directory / f"cpu-{name}" / "src/dispatch.cc").read_text()
                lacking = len(generator.FUNCTIONS) - len(support | MESSAGES.keys())
                self.assertEqual(dispatch.count("kErrorNotSupported"), lacking)

    def test_output_is_deterministic_and_order_does_not_matter(self) -> None:
        for name in ACCELERATORS[:1]:
            first = self.generate("cpu", name)
            second = self.generate(name, "cpu")
            for path in first.rglob("*"):
                if path.is_file():
                    self.assertTrue(filecmp.cmp(path, second / path.relative_to(first), shallow=False), path)

    def test_unchanged_files_are_not_touched(self) -> None:
        output = self.generate("cpu")
        header = output / "include/infini/rt/generated.h"
        before = header.stat().st_mtime_ns
        self.generate("cpu")
        self.assertEqual(header.stat().st_mtime_ns, before)

    def test_headers_of_other_backends_are_removed(self) -> None:
        output = self.directory / "out"
        generator.generate(["cpu", ACCELERATORS[0]], output)
        stale = output / "include/infini/rt" / ACCELERATORS[0] / "runtime.h"
        self.assertTrue(stale.exists())
        generator.generate(["cpu"], output)
        self.assertFalse(stale.exists())

    def test_bad_sets_are_refused(self) -> None:
        for names in (["cpu", "tpu"], [], ["nvidia", "metax"], ["cpu", "moore", "ascend"]):
            with self.subTest(names), self.assertRaises(generator.GeneratorError):
                generator.choose(names)

    def copy_of_native(self) -> Path:
        root = self.directory / "root"
        shutil.copytree(ROOT / "src/native", root / "src/native")
        return root

    def edit(self, root: Path, old: str, new: str) -> None:
        path = generator.native_header(BACKENDS["cpu"], root)
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1))

    def test_comments_do_not_count_as_support(self) -> None:
        root = self.copy_of_native()
        old = "INFINI_RT_API static Error StreamQuery(Stream stream);"
        self.edit(root, old, f"// {old}\n  /* {old} */")
        self.assertNotIn("StreamQuery", generator.supported(BACKENDS["cpu"], root))

    def test_shared_parts_belong_to_the_backend(self) -> None:
        for backend in generator.BACKENDS:
            text = generator.native_text(backend, ROOT)
            self.assertNotIn('#include "', text)
            public = text.split("private:")[0]
            for name in generator.supported(backend, ROOT):
                declarations = re.findall(rf"\bstatic [\w *]+ {name}\(", public)
                self.assertEqual(len(declarations), 1, f"{backend.name} {name}")
        root = self.copy_of_native()
        part = root / "src/native/cuda_style/common.inc"
        part.write_text(part.read_text().replace("Free(void* ptr)", "Free(int ptr)"))
        for damage in (lambda: None, part.unlink):
            damage()
            with self.assertRaises(generator.GeneratorError):
                generator.supported(BACKENDS["moore"], root)

    def test_header_and_table_must_agree(self) -> None:
        edits = (
            ("Error Free(void* ptr)", "Error Free(const void* ptr)"),
            ("Error Free(void* ptr)", "void Free(void* ptr)"),
            ("Error Free(void* ptr)", "Error Frei(void* ptr)"),
            ("INFINI_RT_API static Error Free(void* ptr);", ""),
        )
        for old, new in edits:
            root = self.copy_of_native()
            self.edit(root, old, new)
            with self.subTest(new), self.assertRaises(generator.GeneratorError):
                generator.supported(BACKENDS["cpu"], root)
            shutil.rmtree(root)

    def test_main_reports_mistakes_in_one_line(self) -> None:
        arguments = ["--backends", "nvidia", "metax", "--output-dir", str(self.directory)]
        self.assertEqual(generator.main(arguments), 1)

    def test_check_finds_stale_pages(self) -> None:
        docs = self.directory / "docs"
        self.assertEqual(generator.main(["--docs-dir", str(docs)]), 0)
        self.assertEqual(generator.main(["--docs-dir", str(docs), "--check"]), 0)
        page = docs / "backend_support.md"
        page.write_text(page.read_text() + "\nmore\n")
        self.assertEqual(generator.main(["--docs-dir", str(docs), "--check"]), 1)


if __name__ == "__main__":
    unittest.main()
