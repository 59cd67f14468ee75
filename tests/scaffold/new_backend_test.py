"""tools/new_backend.py: names, the files that it writes, and that it never overwrites."""

import importlib.util
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "tools" / "new_backend.py"

spec = importlib.util.spec_from_file_location("new_backend", SCRIPT)
new_backend = importlib.util.module_from_spec(spec)
spec.loader.exec_module(new_backend)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class NewBackendTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = Path(self.temporary.name).resolve() / "provider"

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)

    def test_writes_a_provider_outside_the_repository(self):
        result = self.run_script("acme_x1", "--output", str(self.folder))
        self.assertEqual(result.returncode, 0, result.stderr)
        written = contents(self.folder)
        for name in [
            "CMakeLists.txt",
            "README.md",
            "README.zh-CN.md",
            "cmake/pre_project.cmake",
            "extension_api_version",
            "include/infini_train_acme_x1/backend.h",
            "src/backend.cc",
            "src/runtime/device_guard.cc",
        ]:
            self.assertIn(name, written)
        for name, data in written.items():
            for word in [b"my_backend", b"MY_BACKEND", b"MyBackend"]:
                self.assertNotIn(word, data, name)
        self.assertIn(b"InfiniTrain::Backend::ACME_X1Executable", written["CMakeLists.txt"])
        self.assertIn(b"class AcmeX1DeviceGuard", written["src/runtime/device_guard.cc"])
        self.assertEqual(
            written["extension_api_version"], (REPOSITORY / "backends" / "extension_api_version").read_bytes()
        )
        self.assertIn(f"-DINFINITRAIN_BACKEND_DIR={self.folder}", result.stdout)

    def test_a_provider_of_the_repository_shares_its_version(self):
        self.assertNotIn("extension_api_version", new_backend.files("acme", outside=False))

    def test_writes_nothing_twice(self):
        self.assertEqual(self.run_script("acme", "--output", str(self.folder)).returncode, 0)
        before = {path: path.stat().st_mtime_ns for path in self.folder.rglob("*")}
        result = self.run_script("acme", "--output", str(self.folder))
        self.assertEqual(result.returncode, 0)
        self.assertIn("complete already", result.stdout)
        self.assertEqual(before, {path: path.stat().st_mtime_ns for path in self.folder.rglob("*")})

    def test_completes_a_provider_that_lacks_files(self):
        new_backend.write_backend("acme", self.folder)
        (self.folder / "README.md").unlink()
        self.assertEqual(new_backend.write_backend("acme", self.folder), ["README.md"])

    def test_never_overwrites(self):
        new_backend.write_backend("acme", self.folder)
        (self.folder / "src" / "backend.cc").write_text("// my work\n", encoding="utf-8")
        (self.folder / "README.md").unlink()
        before = contents(self.folder)
        result = self.run_script("acme", "--output", str(self.folder))
        self.assertEqual(result.returncode, 2)
        self.assertIn("src/backend.cc", result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)
        self.assertEqual(contents(self.folder), before)

    def test_a_file_in_the_way_is_one_line(self):
        self.folder.write_text("", encoding="utf-8")
        result = self.run_script("acme", "--output", str(self.folder))
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stderr)

    def test_names(self):
        for name in ["a", "sim2", "acme_x1", "a" * 64]:
            new_backend.check_name(name)
        for name in [
            "",
            "A",
            "1a",
            "a-b",
            "a.b",
            "a/b",
            "../a",
            "a b",
            "a__b",
            "a_",
            "_a",
            "é",
            "a" * 65,
            "cpu",
            "cuda",
            "privateuse1",
            "auto",
            "host",
            "meta",
            "core",
            "simt",
            "runtime",
            "testing",
        ]:
            with self.assertRaises(new_backend.Refused, msg=name):
                new_backend.check_name(name)
        result = self.run_script("cpu", "--output", str(self.folder))
        self.assertEqual(result.returncode, 2)
        self.assertIn("'cpu' is reserved", result.stderr)
        self.assertFalse(self.folder.exists())

    def test_every_room_of_the_framework_is_taken(self):
        rooms = {path.name for path in (REPOSITORY / "infini_train").iterdir() if path.is_dir()} - {"kernels"}
        self.assertLessEqual(rooms, new_backend.TAKEN)


if __name__ == "__main__":
    unittest.main()
