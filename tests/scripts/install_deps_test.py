"""scripts/install_deps.sh asks for what is missing, and for nothing else."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "install_deps.sh"


def run(*options, installed=(), apt_status=0, script=SCRIPT, path=""):
    """Runs the script beside package tools that pretend. Returns its result and the apt-get calls."""
    with tempfile.TemporaryDirectory() as folder:
        tools = pathlib.Path(folder)
        calls = tools / "calls"
        calls.touch()
        stubs = {
            "dpkg-query": f'case " {" ".join(installed)} " in *" ${{!#}} "*) printf installed ;; *) exit 1 ;; esac',
            "apt-get": f'echo "$@" >>"{calls}"; exit {apt_status}',
            "sudo": 'exec "$@"',
        }
        for name, body in stubs.items():
            (tools / name).write_text(f"#!/usr/bin/env bash\n{body}\n", encoding="utf-8")
            (tools / name).chmod(0o755)
        result = subprocess.run(
            [script, *options],
            env={**os.environ, "PATH": f"{tools}:{path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        return result, calls.read_text(encoding="utf-8").splitlines()


# A Python whose environments remember what was installed into them.
PYTHON = """#!/usr/bin/env bash
echo "$@" >>"{calls}"
[[ $2 == venv ]] || exit 1
environment=${{!#}}
rm -rf "$environment" && mkdir -p "$environment/bin"
cat >"$environment/bin/python" <<END
#!/usr/bin/env bash
if [[ \\$3 == freeze ]]; then cat "$environment/freeze"; else echo "\\${{!#}}" >>"$environment/freeze"; fi
END
chmod +x "$environment/bin/python"
"""


class InstallDepsTest(unittest.TestCase):
    def packages(self, *groups):
        result, calls = run(*groups, "--list")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(calls, [])
        return result.stdout.split()

    def test_groups(self):
        build, test = self.packages("--build"), self.packages("--test")
        self.assertIn("g++", build)
        self.assertIn("libgtest-dev", test)
        self.assertEqual(self.packages(), build + test)

    def test_nothing_is_missing(self):
        result, calls = run("--build", installed=self.packages("--build"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(calls, [])

    def test_only_what_is_missing(self):
        packages = self.packages("--build")
        result, calls = run("--build", installed=packages[:-2])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(calls), 2, calls)
        self.assertTrue(calls[0].endswith("update"), calls)
        self.assertTrue(calls[1].endswith(" " + " ".join(packages[-2:])), calls)
        self.assertNotIn(packages[0] + " ", calls[1])

    def test_failure_of_the_package_tool(self):
        result, _ = run("--build", apt_status=100)
        self.assertNotEqual(result.returncode, 0)

    def test_tools_of_pypi_are_pinned_and_stay_in_the_checkout(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            calls = root / "python_calls"
            python = root / "python3"
            python.write_text(PYTHON.format(calls=calls), encoding="utf-8")
            python.chmod(0o755)
            (root / "scripts").mkdir()
            script = shutil.copy(SCRIPT, root / "scripts")

            def install():
                packages = self.packages("--lint")
                result, apt_calls = run("--lint", installed=packages, script=script, path=folder)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(apt_calls, [])
                return calls.read_text(encoding="utf-8").splitlines()

            environment = root / "build" / "lint"
            self.assertEqual(install(), [f"-m venv --clear {environment}"])
            frozen = environment / "freeze"
            self.assertRegex(frozen.read_text(encoding="utf-8"), r"^ruff==[0-9.]+\n$")
            self.assertEqual(len(install()), 1, "installed again")
            frozen.write_text("ruff==0.0.1\n", encoding="utf-8")
            self.assertEqual(len(install()), 2, "another version is no reason to install")

    def test_unknown_option(self):
        result, calls = run("--everything")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--everything", result.stderr)
        self.assertEqual(calls, [])


if __name__ == "__main__":
    unittest.main()
