#!/usr/bin/env python3
"""Tests of the documentation: code stands in compiled examples, links lead somewhere."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
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
