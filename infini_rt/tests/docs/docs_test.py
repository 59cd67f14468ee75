#!/usr/bin/env python3
"""Tests of the documentation: code stands in compiled examples, links lead somewhere."""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import generate_public_headers as generator  # noqa: E402

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
GENERATED = {"api_reference.md", "backend_support.md"}


def squeeze(text: str) -> str:
    return "".join(text.split())


class DocsTest(unittest.TestCase):
    def test_code_comes_from_examples(self) -> None:
        examples = [squeeze(path.read_text()) for path in ROOT.glob("examples/**/*.cc")]
        for page in PAGES:
            if page.name in GENERATED:
                continue
            for block in re.findall(r"```cpp\n(.*?)```", page.read_text(), flags=re.DOTALL):
                with self.subTest(page=page.name, block=block):
                    self.assertTrue(any(squeeze(block) in example for example in examples))

    def test_links_lead_to_files(self) -> None:
        for page in PAGES:
            for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
                if "://" not in target:
                    with self.subTest(page=page.name, target=target):
                        self.assertTrue((page.parent / target).exists())

    def test_the_migration_table_is_that_of_the_headers(self) -> None:
        functions = {function.name: function for function in generator.FUNCTIONS}
        headers = "".join(path.read_text() for path in (ROOT / "include/infini/rt").glob("*.h"))
        headers += (ROOT / "scripts/header_emitters.py").read_text()  # of generated headers
        page = (ROOT / "docs/migration.md").read_text()
        rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
        self.assertGreater(len(rows), 25)
        for old, new, *more in rows:
            named = re.findall(r"`(\w+)(?:\(([^)]*)\))?`", new)
            with self.subTest(old=old):
                for name, arguments in named:
                    if name in functions:
                        parameters = functions[name].params
                        needed = [parameter for parameter in parameters if parameter.default is None]
                        given = [argument for argument in arguments.split(",") if argument]
                        if arguments:
                            self.assertIn(len(given), range(len(needed), len(parameters) + 1), name)
                    else:
                        self.assertRegex(headers, rf"\b{name}\b")
                for name in re.findall(r"`(k\w+)`", " ".join(more)):
                    self.assertRegex(headers, rf"\b{name}\b")
                # The calls of a row keep their names, but for what the row is about.
                calls = re.findall(r"`(?:infinirt|\.\.\.)([A-Z]\w*)", old)
                if new.endswith("and so on"):
                    prefix = re.match(r"Stream|Event|", calls[0])[0]
                    for call in calls:
                        self.assertIn(call if call.startswith(prefix) else prefix + call, functions)

    def test_both_readmes_have_the_same_shape(self) -> None:
        def shape(name: str) -> list[str]:
            text = (ROOT / name).read_text()
            return [
                line.split(" ")[0] if line.startswith("#") else "|"
                for line in text.splitlines()
                if line.startswith(("#", "|"))
            ]

        self.assertEqual(shape("README.md"), shape("README.zh-CN.md"))


if __name__ == "__main__":
    unittest.main()
