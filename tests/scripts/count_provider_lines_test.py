"""scripts/count_provider_lines.py: what counts as a line, the budgets, and the page."""

import importlib.util
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "count_provider_lines.py"

spec = importlib.util.spec_from_file_location("count_provider_lines", SCRIPT)
count = importlib.util.module_from_spec(spec)
spec.loader.exec_module(count)


class CountProviderLinesTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.root = Path(self.temporary.name)
        self.write("backends/simt/CMakeLists.txt", "shared()\n" * 900)
        self.write("backends/chip/CMakeLists.txt", "# comment\nadd()\n\n")
        self.write("backends/chip/src/runtime/guard.cc", "int a;\n")
        self.write("tools/backend_template/CMakeLists.txt", "add()\n")
        self.write(count.PAGE, f"Text\n{count.BEGIN}\n{count.END}\nMore\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def run_script(self, *arguments):
        return subprocess.run(
            [sys.executable, SCRIPT, "--root", str(self.root), *arguments], capture_output=True, text=True, check=False
        )

    def test_blank_lines_and_comments_are_free(self):
        path = self.write(
            "a.cc",
            "// one\n\nint a;  // two\n/* three\n   four */\nint b; /* five */ int c;\n"
            'auto s = "// no comment";\nchar q = \'"\'; // six\n  \t\n',
        )
        self.assertEqual(count.count_lines(path), 4)
        self.assertEqual(count.count_lines(self.write("a.cmake", '# one\n\n  # two\nset(a "#")\n')), 1)

    def test_tests_examples_scripts_and_pages_are_free(self):
        for name in ["tests/a.cc", "examples/b.cc", "scripts/c.cmake", "README.md", "src/data.txt"]:
            self.write(f"backends/chip/{name}", "line\n" * 1000)
        self.assertEqual(count.measure(self.root / "backends/chip"), ("runtime only", 2, 0))

    def test_kernels_are_told_apart(self):
        self.write("backends/chip/src/kernels/gemm.cc", "int a;\nint b;\n")
        self.write("backends/chip/src/ccl/ccl.cc", "int a;\n")
        self.assertEqual(count.measure(self.root / "backends/chip"), ("runtime only", 3, 2))
        self.write("backends/chip/CMakeLists.txt", "infinitrain_simt_kernels(sources)\n")
        self.assertEqual(count.measure(self.root / "backends/chip")[0], "SIMT")

    def test_shared_rooms_are_no_providers(self):
        rows, exceeded = count.table(self.root)
        self.assertNotIn("simt", rows)
        self.assertIn("| `chip` | runtime only | 2 | 500 | 0 |", rows)
        self.assertEqual(exceeded, [])

    def test_the_page_is_checked_and_mended(self):
        result = self.run_script("--check")
        self.assertEqual(result.returncode, 1)
        self.assertIn("its table is out of date", result.stderr)
        self.assertEqual(self.run_script("--fix").returncode, 0)
        self.assertEqual(self.run_script("--check").returncode, 0)
        page = (self.root / count.PAGE).read_text(encoding="utf-8")
        self.assertTrue(page.startswith(f"Text\n{count.BEGIN}\n| provider |") and page.endswith(f"{count.END}\nMore\n"))
        self.write(count.PAGE, "no table\n")
        self.assertIn("expected the lines", self.run_script("--check").stderr)

    def test_budgets_are_kept(self):
        self.run_script("--fix")
        self.write("backends/chip/src/runtime/guard.cc", "int a;\n" * 500)
        result = self.run_script("--check")
        self.assertEqual(result.returncode, 1)
        self.assertIn("backends/chip: 501 lines, expected at most 500 (runtime only)", result.stderr)

    def test_tuned_kernels_have_no_budget(self):
        self.write("backends/chip/src/kernels/gemm.cc", "int a;\n" * 700)
        rows, exceeded = count.table(self.root)
        self.assertIn("| `chip` | runtime only | 2 | 500 | 700 |", rows)
        self.assertEqual(exceeded, [])


if __name__ == "__main__":
    unittest.main()
