"""Shows that the stand-in SDK is strict: mistakes in the provider's calls of the SDK are found.

Usage: mutations.py SOURCE_DIR BUILD_DIR WORK_DIR [MUTATION...]

For each mutation, one file of the provider is copied with a wrong enumerator or a wrong order of arguments,
compiled as the build compiles it, and linked with the provider's objects and one of its tests. It must not
compile, or the test must fail. Without its mutation the same test must pass, or it shows nothing. Mutations
whose test is skipped on this machine are skipped as well.
"""

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

GEMM, RUNTIME, MCCL = "src/kernels/mcblas_gemm.cc", "src/runtime/maca_runtime.cc", "../runtime/nccl_style_api.inc"
POLICY, LANES = "src/runtime/device_guard.cc", "../simt/native/lanes.h"
BINDING = "infini/rt/metax/runtime.h"  # that InfiniRT generates, below the build's folder


@dataclass
class Mutation:
    name: str
    file: str  # below the provider's folder, or BINDING
    before: str
    after: str
    test: str  # a filter of the checks below


MUTATIONS = [
    Mutation("gemm_operations_exchanged", GEMM, "MCBLAS_OP_T : MCBLAS_OP_N", "MCBLAS_OP_N : MCBLAS_OP_T", "Gemm.*"),
    Mutation("gemm_type_of_float32", GEMM, ": MACA_R_32F;", ": MACA_R_16F;", "Gemm.Float32"),
    Mutation(
        "gemm_compute_type_of_float64", GEMM, "return MCBLAS_COMPUTE_64F", "return MCBLAS_COMPUTE_32F", "Gemm.Float64"
    ),
    Mutation(
        "gemm_compute_type_by_cudas_number",
        GEMM,
        "return MCBLAS_COMPUTE_32F;\n  switch",
        "return static_cast<mcblasComputeType_t>(68);\n  switch",
        "Gemm.BFloat16",
    ),
    Mutation(
        "gemm_leading_dimensions_exchanged",
        GEMM,
        "TypeOf(a.dtype), to_int(a.leading), b.data",
        "TypeOf(a.dtype), to_int(b.leading), b.data",
        "Gemm.*",
    ),
    Mutation(
        "gemm_rows_and_columns_exchanged",
        GEMM,
        "to_int(c.rows), to_int(c.columns),\n                       to_int(depth), alpha",
        "to_int(c.columns), to_int(c.rows),\n                       to_int(depth), alpha",
        "Gemm.*",
    ),
    Mutation(
        "gemm_factors_of_the_wrong_type",
        GEMM,
        "? static_cast<const void*>(&alpha64) : &alpha32",
        "? static_cast<const void*>(&alpha32) : &alpha64",
        "Gemm.*",
    ),
    Mutation(
        "gemm_algorithm_by_cudas_number",
        GEMM,
        'compute, MCBLAS_GEMM_DEFAULT),\n          "mcblasGemmEx"',
        'compute, static_cast<mcblasGemmAlgo_t>(-1)),\n          "mcblasGemmEx"',
        "Gemm.*",
    ),
    Mutation(
        "copy_with_exchanged_addresses",
        RUNTIME,
        "Base::MemcpyAsync(dst, src, count",
        "Base::MemcpyAsync(const_cast<void*>(src), dst, count",
        "Memory.*",
    ),
    Mutation(
        "pool_attribute_by_cudas_number",
        RUNTIME,
        "rt::kMemPoolAttrUsedMemHigh, &peaks.used",
        "static_cast<rt::MemPoolAttr>(1), &peaks.used",
        "Memory.Pool*",
    ),
    Mutation(
        "stream_flag_by_cudas_number",
        BINDING,
        "native |= INFINI_RT_NATIVE(StreamNonBlocking);",
        "native |= kStreamNonBlocking;",
        "Streams.*",
    ),
    Mutation(
        "policy_after_the_runtime",
        POLICY,
        "MacaDeviceGuard() { GetPolicy(); }",
        "MacaDeviceGuard() { DeviceCount(); GetPolicy(); }",
        "Policy.*",
    ),
    Mutation("reductions_exchanged", MCCL, "return CCL_NATIVE(Min)", "return CCL_NATIVE(Max)", "Ccl.*"),
    Mutation(
        "type_of_bfloat16_in_collectives", MCCL, "return CCL_NATIVE(Bfloat16)", "return CCL_NATIVE(Float16)", "Ccl.*"
    ),
    Mutation(
        "collective_with_exchanged_arguments",
        MCCL,
        "&CCL_NATIVE(Broadcast)",
        "+[](const void* s, void* r, size_t n, mcclDataType_t t, int root, mcclComm_t c, mcStream_t st) "
        "{ return mcclBroadcast(s, r, n, t, 1 - root, c, st); }",
        "Ccl.*",
    ),
    Mutation(
        "masks_of_32_bits",
        LANES,
        "SIMT_DEVICE inline LaneMask GroupMask() {",
        "SIMT_DEVICE inline unsigned GroupMask() {",
        "Kernel.*",
    ),
    Mutation(
        "masks_of_the_first_group", LANES, "kGroupMask<kWidth> << FirstLane<kWidth>()", "kGroupMask<kWidth>", "Kernel.*"
    ),
]

# The file that a mutation of a header is compiled with.
COMPILED = {LANES: "../simt/kernels/softmax/softmax.cc", BINDING: POLICY, MCCL: "src/ccl/mccl.cc"}


SKIPPED = "skipped"


class Bench:
    def __init__(self, source, build, work):
        self.provider = source / "backends/maca"
        self.source, self.build, self.work = source, build, work
        commands = json.loads((build / "compile_commands.json").read_text())
        self.commands = {Path(entry["file"]).resolve(): entry for entry in commands}
        program = "tests/backends/maca/test_maca_checks"
        lines = subprocess.run(
            ["ninja", "-t", "commands", program], cwd=build, check=True, capture_output=True, text=True
        )
        link = lines.stdout.splitlines()[-1].removeprefix(": && ").split(" && ")[0]
        self.link_command = shlex.split(link)

    def command(self, file):
        entry = self.commands[file.resolve()]
        return shlex.split(entry["command"]), entry["directory"]

    def compile(self, file, output, include, compiled_file):
        """Compiles `compiled_file` with the flags of `file`; whether that works."""
        command, directory = self.command(file)
        command = command[:]
        for flag in ("-o", "-MF", "-MT"):
            if flag in command:
                command[command.index(flag) + 1] = str(output if flag == "-o" else output.with_suffix(".d"))
        command[command.index("-c") + 1] = str(compiled_file)
        command[1:1] = [f"-I{include}"]
        command.append("-O0")  # It runs once.
        return subprocess.run(command, cwd=directory, capture_output=True, text=True)

    def link(self, program, object_file):
        """The checks with one object of the provider replaced."""
        name = "backends/maca/libinfini_train_backend_maca.a"
        archive = program.with_suffix(".a")
        archive.write_bytes((self.build / name).read_bytes())
        subprocess.run(["ar", "d", archive, object_file.name], check=True)
        command = [str(archive) if argument == name else argument for argument in self.link_command]
        command[command.index("-o") + 1] = str(program)
        command.insert(command.index("-o"), str(object_file))
        return subprocess.run(command, cwd=self.build, capture_output=True, text=True)

    def run(self, mutation):
        folder = self.work / (mutation.name if mutation.before else f"plain_{mutation.test.split('.')[0]}")
        folder.mkdir(parents=True, exist_ok=True)
        original, root = (self.provider / mutation.file).resolve(), self.source
        if mutation.file == BINDING:
            original = next(self.build.glob(f"**/generated/include/{BINDING}"))
            root = original.parents[BINDING.count("/")]
        text = original.read_text()
        if mutation.before:
            if text.count(mutation.before) != 1:
                return f"{mutation.name}: '{mutation.before}' is in {mutation.file} {text.count(mutation.before)} times"
            text = text.replace(mutation.before, mutation.after)
        compiled = (self.provider / COMPILED.get(mutation.file, mutation.file)).resolve()
        if mutation.file in COMPILED:
            copy = folder / original.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)
            file = compiled
        else:
            file = folder / original.name
            file.write_text(text)
        output = folder / f"{compiled.name}.o"
        result = self.compile(compiled, output, folder, file)
        if result.returncode:
            return "" if mutation.before else f"plain {mutation.file} does not compile:\n{result.stderr}"
        program = folder / "checks"
        linked = self.link(program, output)
        if linked.returncode:
            return f"{mutation.name}: the checks do not link:\n{linked.stderr[-2000:]}"
        test = subprocess.run([program, f"--gtest_filter={mutation.test}"], capture_output=True, text=True, timeout=120)
        if mutation.before and test.returncode == 0:
            return f"{mutation.name}: nothing noticed it ({mutation.test})"
        if not mutation.before and (test.returncode != 0 or "0 tests" in test.stdout):
            return f"plain {mutation.test} fails:\n{test.stdout}{test.stderr}"
        return SKIPPED if "SKIPPED" in test.stdout else ""


def main():
    source, build, work = (Path(argument).resolve() for argument in sys.argv[1:4])
    bench = Bench(source, build, work)
    chosen = [m for m in MUTATIONS if len(sys.argv) == 4 or m.name in sys.argv[4:]]
    plain = {(m.file, m.test.split(".")[0]): Mutation("", m.file, "", "", m.test.split(".")[0] + ".*") for m in chosen}
    faults = []
    with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, 8)) as pool:

        def run_all(mutations):
            """The outcomes; prints them as they come."""
            outcomes = []
            for mutation, outcome in zip(mutations, pool.map(bench.run, mutations), strict=True):
                fine = "found" if mutation.before else "passes"
                print(f"{mutation.name or 'plain ' + mutation.test}: {outcome or fine}", flush=True)
                outcomes.append(outcome)
                faults.extend([outcome] if outcome not in ("", SKIPPED) else [])
            return outcomes

        skipped = {key for key, outcome in zip(plain, run_all(plain.values()), strict=True) if outcome == SKIPPED}
        run_all([m for m in chosen if (m.file, m.test.split(".")[0]) not in skipped])
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
