"""scripts/check_snippets.py: stale, missing and unmarked code is found, and --fix mends what it can."""

import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_snippets.py"

SOURCE = """\
#include <cstdio>

namespace example {
  // [begin: outer]
  int One() {
    // [begin: inner]
    return 1;
    // [end: inner]
  }
  // [end: outer]
}  // namespace example
"""

INNER = "```cpp\nreturn 1;\n```\n"


class CheckSnippetsTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.root = Path(self.temporary.name)
        (self.root / "docs").mkdir()
        (self.root / "source.cc").write_text(SOURCE, encoding="utf-8")
        (self.root / "build.cmake").write_text("# [begin: call]\ncall()\n# [end: call]\n", encoding="utf-8")

    def check(self, page, *arguments):
        (self.root / "docs" / "page.md").write_text(page, encoding="utf-8")
        return subprocess.run(
            [sys.executable, SCRIPT, "--root", str(self.root), *arguments], capture_output=True, text=True, check=False
        )

    def page(self):
        return (self.root / "docs" / "page.md").read_text(encoding="utf-8")

    def expect_mistake(self, page, message):
        result = self.check(page)
        self.assertEqual(result.returncode, 1, page)
        self.assertIn(message, result.stderr)
        self.assertIn("docs/page.md", result.stderr)

    def test_code_that_is_the_files_passes(self):
        self.assertEqual(self.check("Text\n\n<!-- snippet: source.cc: inner -->\n" + INNER).returncode, 0)
        self.assertEqual(self.check("```bash\nanything\n```\n").returncode, 0)

    def test_stale_code_is_found_and_mended(self):
        stale = "Before\n<!-- snippet: source.cc: inner -->\n```cpp\nreturn 2;\n```\nAfter\n"
        self.expect_mistake(stale, "its code is not that of the files")
        self.assertEqual(self.check(stale, "--fix").returncode, 0)
        self.assertEqual(self.page(), "Before\n<!-- snippet: source.cc: inner -->\n" + INNER + "After\n")

    def test_parts_lose_inner_markers_and_indentation(self):
        self.assertEqual(self.check("<!-- snippet: source.cc: outer -->\n```cpp\n```\n", "--fix").returncode, 0)
        self.assertIn("```cpp\nint One() {\n  return 1;\n}\n```", self.page())

    def test_whole_files_and_other_comments(self):
        page = "<!-- snippet: source.cc -->\n```cpp\n```\n<!-- snippet: build.cmake: call -->\n```cmake\n```\n"
        self.assertEqual(self.check(page, "--fix").returncode, 0)
        self.assertIn("#include <cstdio>", self.page())
        self.assertNotIn("[begin", self.page())
        self.assertIn("```cmake\ncall()\n```", self.page())

    def test_cpp_without_a_source_is_refused(self):
        for language in ["cpp", "c++", "cuda"]:
            self.expect_mistake(f"```{language}\nint x;\n```\n", "line 1: code that is in no compiled file")

    def test_mistakes_are_named(self):
        for marker, message in [
            ("nowhere.cc: inner", "nowhere.cc does not exist"),
            ("source.cc: nothing", "source.cc has no part 'nothing'"),
        ]:
            self.expect_mistake(f"<!-- snippet: {marker} -->\n```cpp\n```\n", message)
        self.expect_mistake("<!-- snippet: source.cc: inner -->\n\n" + INNER, "expected a fenced block right after it")
        self.expect_mistake("<!-- snippet -->\n" + INNER, "expected <!-- snippet: path: name -->")
        self.expect_mistake("<!-- snippet: source.cc: inner -->\n```cpp\n", "the block has no end")

    def test_markers_must_pair(self):
        for text, message in [
            ("// [begin: a]\nx\n", "'a' has no end"),
            ("// [end: a]\n// [begin: a]\n", "not one begin and one end"),
            ("// [begin: a]\n// [end: a]\n// [begin: a]\n// [end: a]\n", "not one begin and one end"),
        ]:
            (self.root / "source.cc").write_text(textwrap.dedent(text), encoding="utf-8")
            self.expect_mistake("<!-- snippet: source.cc: a -->\n```cpp\n```\n", message)


if __name__ == "__main__":
    unittest.main()
