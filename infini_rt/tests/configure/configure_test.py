#!/usr/bin/env python3
"""Tests of the configuration: backends that are refused, a parent project, vendor compilers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


class ConfigureTest(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.directory)

    def configure(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = ["cmake", "-S", str(ROOT), "-B", str(self.directory / "build"), *options]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)

    def test_two_accelerators_are_one_clear_error(self) -> None:
        result = self.configure("-DWITH_CAMBRICON=ON", "-DWITH_ASCEND=ON")
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stderr.count("CMake Error"), 1)
        self.assertIn("at most one accelerator, got cambricon and ascend", result.stderr)

    def test_missing_sdk_names_the_variable_to_set(self) -> None:
        for backend, variable in (
            ("METAX", "MACA_PATH"),
            ("ILUVATAR", "COREX_HOME"),
            ("MOORE", "MUSA_HOME"),
            ("CAMBRICON", "NEUWARE_HOME"),
            ("ASCEND", "ASCEND_HOME_PATH"),
        ):
            with self.subTest(backend):
                shutil.rmtree(self.directory / "build", ignore_errors=True)
                result = self.configure(f"-DWITH_{backend}=ON")
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(f"set {variable}", " ".join(result.stderr.split()))

    def test_a_parent_project_gets_a_target_and_nothing_else(self) -> None:
        (self.directory / "CMakeLists.txt").write_text(
            f"""
            cmake_minimum_required(VERSION 3.25)
            project(Parent LANGUAGES CXX)
            add_compile_options(-DPARENT)
            set(WITH_CPU ON)
            add_subdirectory("{ROOT}" infini_rt)
            add_executable(consumer "{ROOT}/examples/consumer/main.cc")
            target_link_libraries(consumer PRIVATE InfiniRT::infinirt)
            """
        )
        build = self.directory / "build"
        command = ["cmake", "-S", str(self.directory), "-B", str(build)]
        subprocess.run(
            [*command, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DCMAKE_BUILD_TYPE="],
            check=True,
            capture_output=True,
        )
        entries = json.loads((build / "compile_commands.json").read_text())
        commands = {Path(entry["file"]): entry["command"] for entry in entries}
        consumer = commands.pop(ROOT / "examples/consumer/main.cc")
        options = set(re.findall(r" (-[^Io]\S*)", consumer))
        self.assertLessEqual(options, {"-DPARENT", "-c", "-std=c++20", "-std=gnu++20"})
        self.assertIn(ROOT / "src/device.cc", commands)
        self.assertFalse([file for file in commands if ROOT / "tests" in file.parents])
        for text in commands.values():
            self.assertIn(" -DPARENT ", text)
            self.assertNotRegex(text, " -(O|g|DNDEBUG)")
        self.assertNotIn("InfiniRT", (build / "infini_rt/cmake_install.cmake").read_text())
        self.assertFalse((build / "infini_rt/CTestTestfile.cmake").exists())

    def fake_compiler(self, path: Path) -> None:
        path.parent.mkdir(parents=True)
        path.write_text('#!/bin/sh\nfor a in "$@"; do echo "$a"; done\n')
        path.chmod(0o755)

    def seen(self, wrapper: str, *arguments: str, **environment: str) -> list[str]:
        result = subprocess.run(
            [str(ROOT / "scripts" / wrapper), *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            check=True,
        )
        return result.stdout.splitlines()

    def test_mxcc_does_not_see_flags_it_does_not_know(self) -> None:
        self.fake_compiler(self.directory / "mxgpu_llvm/bin/mxcc")
        seen = self.seen(
            "mxcc_wrapper.sh",
            *("-pthread", "-B", "dir", "-Bdir", "-c", "a b.cc", "-O2"),
            MACA_PATH=str(self.directory),
        )
        self.assertEqual(seen, ["-c", "a b.cc", "-O2"])

    def test_mcc_sees_libstdcxx(self) -> None:
        self.fake_compiler(self.directory / "bin/mcc")
        environment = {"MUSA_HOME": str(self.directory)}
        compiling = self.seen("mcc_wrapper.sh", "-pthread", "-c", "a.cc", **environment)
        self.assertEqual(compiling[:2], ["-c", "a.cc"])
        self.assertIn("-isystem", compiling)
        self.assertFalse([flag for flag in compiling if flag.startswith("-L")])
        linking = self.seen("mcc_wrapper.sh", "a.o", **environment)
        self.assertTrue([flag for flag in linking if flag.startswith("-L")])


if __name__ == "__main__":
    unittest.main()
