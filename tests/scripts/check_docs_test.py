"""scripts/check_docs.py: what is wrong in pages is found, and what is right passes."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_docs.py"

PAGE = """\
# Title

[Other](docs/other.md#a-part-with-code) and [the page](#title), [elsewhere](https://example.com/x).

| `--flag` | one |
|---|---|
| `INFINI_TRAIN_SETTING` | a variable |
| `INFINITRAIN_OPTION` | an option |

```bash
command --flag   # what it does
```
"""
OTHER = "# Other\n\n## A part with `code`\n\n## A part with `code`\n"


class CheckDocsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name)
        self.write("page.md", PAGE)
        self.write(
            "page.zh-CN.md", PAGE.replace("Title", "标题").replace("#title", "#标题").replace("what it does", "说明")
        )
        self.write("docs/other.md", OTHER)
        self.write("infini_train/core/settings.cc", 'const char* value = std::getenv("INFINI_TRAIN_SETTING");\n')
        self.write("CMakeLists.txt", 'option(INFINITRAIN_OPTION "Help" OFF)\n')

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def check(self):
        return subprocess.run(
            [sys.executable, SCRIPT, "--root", str(self.root)], capture_output=True, text=True, check=False
        )

    def expect(self, mistake):
        result = self.check()
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(mistake, result.stdout)
        self.assertEqual(result.stdout.count("\n"), 1, result.stdout)

    def test_what_is_right_passes(self):
        result = self.check()
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)

    def test_links_lead_somewhere(self):
        self.write("docs/other.md", OTHER + "[gone](gone.md)\n")
        self.expect("docs/other.md:6: gone.md: there is no such file")

    def test_anchors_are_headings(self):
        self.write("docs/other.md", OTHER + "[here](#a-part-with-code-1), [gone](../page.md#gone)\n")
        self.expect("docs/other.md:6: ../page.md#gone: the page has no such heading")

    def test_links_in_code_are_none(self):
        self.write("docs/other.md", OTHER + "`[a](b)`\n\n```\n[a](b)\n# no heading\n```\n")
        self.assertEqual(self.check().returncode, 0)

    def test_twins_have_the_same_headings(self):
        self.write("page.md", PAGE + "\n## More\n")
        self.expect("page.zh-CN.md: headings differ from the original's: line the end from its line 14 on")

    def test_twins_have_the_same_tables(self):
        self.write("page.md", PAGE.replace("| `--flag` | one |", "| `--flag` | one |\n| `x` | two |"))
        self.expect("page.zh-CN.md: rows of tables differ")

    def test_tables_that_a_script_writes_are_in_one_of_the_twins(self):
        self.write("page.md", PAGE + "\n<!-- lines of x -->\n| a | b |\n<!-- end of the lines -->\n")
        self.assertEqual(self.check().returncode, 0)

    def test_twins_have_the_same_commands(self):
        self.write("page.md", PAGE.replace("command --flag", "command --other"))
        self.expect("page.zh-CN.md: blocks of code differ")

    def test_twins_mention_the_same_flags(self):
        self.write("page.md", PAGE + "\n`--more`\n")
        self.expect("page.zh-CN.md: does not mention --more, its twin does")

    def test_a_twin_has_an_original(self):
        self.write("docs/alone.zh-CN.md", "# 标题\n")
        self.expect("docs/alone.zh-CN.md: there is no page of which it is a translation")

    def test_variables_are_documented(self):
        self.write("infini_train/core/more.cc", 'GetEnvironmentSwitch("INFINI_TRAIN_MORE");\n')
        self.expect("infini_train/core/more.cc: the variable INFINI_TRAIN_MORE is documented nowhere")

    def test_options_are_documented(self):
        self.write("cmake/More.cmake", 'set(INFINITRAIN_MORE "" CACHE STRING\n    "Help")\nset(INFINITRAIN_IT x)\n')
        self.expect("cmake/More.cmake: the option INFINITRAIN_MORE is documented nowhere")

    def test_names_that_pages_mention_are_there(self):
        self.write("docs/other.md", OTHER + "`-DINFINITRAIN_GONE=ON`\n")
        self.expect("docs/other.md: there is no INFINITRAIN_GONE")


if __name__ == "__main__":
    unittest.main()
