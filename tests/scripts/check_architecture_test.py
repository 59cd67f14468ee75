"""Every rule of scripts/check_architecture.py finds what breaks it, and nothing in a sound tree."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))

import check_architecture  # noqa: E402

SOUND = {
    "infini_train/core/tensor.h": "#pragma once\n#include <vector>\n",
    "infini_train/core/device/device.h": "#pragma once\nenum class DeviceType { kCPU, kCUDA };\n",
    "infini_train/ops/matmul.h": '#pragma once\n#include "infini_train/core/tensor.h"\n',
    "infini_train/kernels/cpu/matmul.cc": '#include "infini_train/ops/matmul.h"\n#include <omp.h>\n',
    "infini_train/nn/linear.h": '#pragma once\n#include "infini_train/ops/matmul.h"\n',
    "infini_train/checkpoint/format/json.h": "#pragma once\n#include <nlohmann/json.hpp>\n",
    "infini_train/checkpoint/load.cc": '#include "infini_train/checkpoint/format/json.h"\n'
    '#include "infini_train/nn/linear.h"\n',
    "infini_rt/src/native/nvidia/runtime_.h": "#pragma once\n#include <cuda_runtime.h>\n",
    "backends/simt/kernels/add.simt": "#if defined(INFINI_SIMT_WARP_SIZE)\n#endif\n",
    "backends/simt/kernels/mul.cc": '#include "backends/simt/dialect.h"\n#include "infini_train/ops/matmul.h"\n',
    "backends/runtime/guard.h": '#pragma once\n#include <infini/rt/types.h>\n#include "infini_train/core/tensor.h"\n',
    "backends/maca/src/runtime/runtime.cc": '#include <mc_runtime.h>\n#include "infini_train/core/tensor.h"\n'
    '#include "backends/runtime/guard.h"\n#include "backends/simt/dialect.h"\n'
    '#include "infini_train_maca/backend.h"\n',
    "docs/start.md": "See [the code](../infini_train/core/tensor.h), say in /path/to/a/folder.\n",
}


class CheckArchitectureTest(unittest.TestCase):
    def violations(self, extra=()):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**SOUND, **dict(extra)}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return check_architecture.check(root)

    def expect(self, name, text, *messages):
        """A tree with this one file more has exactly these violations, each in that file."""
        found = self.violations({name: text})
        self.assertEqual(len(found), len(messages), found)
        for violation, message in zip(found, messages, strict=True):
            self.assertTrue(violation.startswith(name), violation)
            self.assertIn(message, violation)

    def test_sound_tree(self):
        self.assertEqual(self.violations(), [])

    def test_arrow_up(self):
        self.expect(
            "infini_train/core/shape.cc",
            '#include "infini_train/ops/matmul.h"\n',
            "core may not know of ops, which is above it",
        )

    def test_line_number(self):
        found = self.violations({"infini_train/core/shape.cc": '\n\n#include "infini_train/ops/matmul.h"\n'})
        self.assertTrue(found[0].startswith("infini_train/core/shape.cc:3: "), found)

    def test_circle_on_one_level(self):
        found = self.violations(
            {
                "infini_train/nn/module.cc": '#include "infini_train/optim/sgd.h"\n',
                "infini_train/optim/sgd.h": '#pragma once\n#include "infini_train/nn/linear.h"\n',
            }
        )
        self.assertEqual(len(found), 1)
        self.assertIn("nn and optim include each other", found[0])

    def test_kernels_see_no_further_than_ops(self):
        self.expect(
            "infini_train/kernels/cpu/linear.cc", '#include "infini_train/nn/linear.h"\n', "kernels may not know of nn"
        )

    def test_kernels_are_not_included(self):
        self.expect(
            "infini_train/ops/gemm.cc",
            '#include "infini_train/kernels/cpu/matmul.cc"\n',
            "through the op registry only",
        )

    def test_unknown_room(self):
        self.expect("infini_train/utils/misc.cc", "", "no room 'utils'")

    def test_include_that_is_not_there(self):
        self.expect(
            "infini_train/core/a.cc",
            '#include "infini_train/core/missing.h"\n#include "tensor.h"\n',
            "does not exist",
            "expected a path from the repository root",
        )

    def test_own_header_in_angle_brackets(self):
        self.expect("infini_train/core/a.cc", "#include <infini_train/core/tensor.h>\n", "with quotes")

    def test_vendor_word_in_the_framework(self):
        self.expect("infini_train/nn/a.cc", "// faster on MetaX\nint ncclRank;\n", "'MetaX'", "'ncclRank'")

    def test_cuda_is_named_in_one_place(self):
        self.expect("infini_train/nn/a.cc", "bool is_cuda;\nauto type = DeviceType::kCUDA;\n", "name 'cuda'")

    def test_vendor_header(self):
        for name in (
            "infini_rt/src/runtime.cc",
            "examples/a.cc",
            "backends/simt/kernels/a.simt",
            "backends/runtime/a.cc",
        ):
            self.expect(name, "#include <cuda_runtime.h>\n", "vendor header cuda_runtime.h")

    def test_kernel_that_asks_for_its_provider(self):
        self.expect("backends/simt/kernels/a.simt", "#ifdef USE_MACA\n#endif\n", "may not ask for its provider")

    def test_runtime_stands_alone(self):
        self.expect("infini_rt/src/a.cc", '#include "infini_train/core/tensor.h"\n', "InfiniRT may not know of")

    def test_nothing_uses_the_backends(self):
        self.expect("tools/main.cc", '#include "infini_train_maca/backend.h"\n', "through registries")

    def test_shared_rooms_know_no_provider(self):
        for room, other in ("simt", "runtime"), ("runtime", "simt"):
            self.expect(
                f"backends/{room}/a.cc",
                f'#include "backends/{other}/a.h"\n#include "infini_train_maca/backend.h"\n',
                f"{room} may not know of {other}",
                f"{room} may not know of maca",
            )

    def test_providers_do_not_know_each_other(self):
        self.expect(
            "backends/maca/src/a.cc",
            '#include "backends/sim/src/a.h"\n#include "infini_train_sim/backend.h"\n',
            "maca may not know of sim",
            "maca may not know of sim",
        )

    def test_framework_does_not_use_the_runtime(self):
        self.expect("infini_train/core/a.cc", "#include <infini/rt.h>\n", "with quotes", "through providers only")

    def test_public_header(self):
        self.expect(
            "infini_train/checkpoint/a.h",
            '#pragma once\n#include <fmt/format.h>\n#include "infini_train/checkpoint/format/json.h"\n',
            "may not include fmt/format.h",
            "json.h is not installed",
        )
        self.expect("infini_train/nn/a.h", "int a;\n", "expected #pragma once")

    def test_sizes(self):
        self.expect("infini_train/core/long.cc", "\n" * (check_architecture.MAX_LINES + 1), "lines, expected at most")
        self.assertEqual(
            self.violations(
                {"infini_train/core/long.cc": "// Generated by a script.\n" * (check_architecture.MAX_LINES + 1)}
            ),
            [],
        )
        many = {f"infini_train/optim/s{i}.cc": "" for i in range(check_architecture.MAX_SUBJECTS_IN_FOLDER + 1)}
        found = self.violations(many)
        self.assertEqual(len(found), 1)
        self.assertIn("subjects, expected at most", found[0])

    def test_tests_are_compiled(self):
        files = {"tests/core/a_test.cc": "", "tests/core/CMakeLists.txt": "foreach(name a_b)\n"}
        self.assertIn("no CMakeLists.txt names this test", self.violations(files)[0])
        files["tests/core/CMakeLists.txt"] = "foreach(name a_b a)\n"
        self.assertEqual(self.violations(files), [])

    def test_paths_of_one_machine(self):
        self.expect("scripts/a.sh", "cd /home/me/checkout\n", "path of one machine")
        self.expect("docs/a.md", "See ../../elsewhere/plan.md.\n", "leaves the repository")

    def test_left_behind(self):
        self.expect("infini_train/core/a.cc", "// TODO: finish\n", "left behind")


if __name__ == "__main__":
    unittest.main()
