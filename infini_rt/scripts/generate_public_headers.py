#!/usr/bin/env python3
"""Emits InfiniRT's public API, its dispatch and its documentation from one table.

The table `API` below is the only place where the list of runtime functions stands. What a backend
supports is read from its header `src/native/<backend>/runtime_.h`, together with the parts that it
shares with others by including `native/*/*.inc`: every function of the struct
`Runtime<Device::Type::kX>` must be in the table with the same parameters.

    generate_public_headers.py --backends cpu nvidia --output-dir build/generated
    generate_public_headers.py --docs-dir docs [--check]

The first form writes what a build needs (at most one accelerator beside the CPU). The second writes,
or with --check compares, the reference pages over all backends. Output depends on nothing but the
table and the headers.
"""

# ruff: noqa: E501 - a sentence of the table is one line

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import header_emitters as emit
from header_model import Backend, GeneratorError, Group, fn, opt

ROOT = Path(__file__).resolve().parent.parent
BACKENDS = (
    Backend("cpu", "kCpu", "CPU"),
    Backend("nvidia", "kNvidia", "NVIDIA"),
    Backend("metax", "kMetax", "MetaX"),
    Backend("iluvatar", "kIluvatar", "Iluvatar"),
    Backend("moore", "kMoore", "Moore"),
    Backend("cambricon", "kCambricon", "Cambricon"),
    Backend("ascend", "kAscend", "Ascend"),
)

# Functions that a backend has beyond CUDA's names; they are reached through its Runtime<> only.
MAPPED_MEMORY = {"MemAddressFree", "MemAddressReserve", "MemGetAllocationGranularity", "MemMap", "MemUnmap"}
EXTENSIONS = {"cpu": {"LaunchKernel"} | MAPPED_MEMORY, "nvidia": {"IsInUse"} | MAPPED_MEMORY}

API = (
    Group(
        "Devices",
        "DeviceRuntime",
        (
            fn(
                "SetDevice",
                "int device",
                "Makes a device current for the calling thread; no synchronisation.",
            ),
            fn(
                "GetDevice",
                "int* device",
                "The calling thread's current device; 0 in a new thread.",
            ),
            fn("GetDeviceCount", "int* count", "The number of devices."),
            fn(
                "DeviceSynchronize",
                "",
                "Waits for all work of the current device and returns its failure, if any.",
            ),
        ),
    ),
    Group(
        "Device properties",
        "DevicePropertyRuntime",
        (
            opt(
                "GetDeviceProperties",
                "DeviceProp* prop, int device",
                "Name, memory, compute units and lanes of a device.",
            ),
            opt(
                "DeviceGetStreamPriorityRange",
                "int* least_priority, int* greatest_priority",
                "The range of stream priorities; a smaller number is more urgent. Either pointer may be null.",
            ),
        ),
    ),
    Group(
        "Memory",
        "MemoryRuntime",
        (
            fn(
                "Malloc",
                "void** ptr, std::size_t size",
                "Device memory of the current device; size 0 gives null.",
            ),
            fn(
                "Free",
                "void* ptr",
                "Returns memory of `Malloc` or `MallocAsync`; null is fine, any other pointer is an error.",
            ),
            fn(
                "MallocHost",
                "void** ptr, std::size_t size",
                "Page-locked host memory; size 0 gives null.",
            ),
            fn("FreeHost", "void* ptr", "Returns memory of `MallocHost`; null is fine."),
            fn(
                "MemGetInfo",
                "std::size_t* free, std::size_t* total",
                "Free and total bytes of the current device. Either pointer may be null.",
            ),
            fn(
                "Memcpy",
                "void* dst, const void* src, std::size_t count, MemcpyKind kind",
                "Copies in the legacy default stream and, unless both sides are device memory, waits.",
            ),
            fn(
                "MemcpyAsync",
                "void* dst, const void* src, std::size_t count, MemcpyKind kind, Stream stream = nullptr",
                "Copies in stream order; with pageable host memory the call may block.",
            ),
            fn(
                "Memset",
                "void* ptr, int value, std::size_t count",
                "Fills with the low byte of `value` in the legacy default stream; may return early.",
            ),
            fn(
                "MemsetAsync",
                "void* ptr, int value, std::size_t count, Stream stream = nullptr",
                "Fills with the low byte of `value` in stream order.",
            ),
        ),
    ),
    Group(
        "Peer copies",
        "PeerRuntime",
        (
            opt(
                "MemcpyPeer",
                "void* dst, int dst_device, const void* src, int src_device, std::size_t count",
                "Copies between two devices, after and before other work of both legacy default streams.",
            ),
            opt(
                "MemcpyPeerAsync",
                "void* dst, int dst_device, const void* src, int src_device, std::size_t count, Stream stream = nullptr",
                "Copies between two devices in stream order.",
            ),
        ),
    ),
    Group(
        "Stream-ordered memory",
        "AsyncMemoryRuntime",
        (
            opt(
                "MallocAsync",
                "void** ptr, std::size_t size, Stream stream",
                "Memory from the device's pool, usable after this point of the stream.",
            ),
            opt(
                "FreeAsync",
                "void* ptr, Stream stream",
                "Returns memory to the pool at this point of the stream.",
            ),
        ),
    ),
    Group(
        "Memory pools",
        "MemoryPoolRuntime",
        (
            opt(
                "DeviceGetDefaultMemPool",
                "MemPool* pool, int device",
                "The pool behind a device's `MallocAsync`.",
            ),
            opt(
                "MemPoolGetAttribute",
                "MemPool pool, MemPoolAttr attr, void* value",
                "Reads an attribute: release threshold, used and reserved memory, their peaks, reuse switches.",
            ),
            opt(
                "MemPoolSetAttribute",
                "MemPool pool, MemPoolAttr attr, void* value",
                "Sets the release threshold or a reuse switch, or restarts a peak with 0.",
            ),
        ),
    ),
    Group(
        "Memory pool trimming",
        "MemoryPoolTrimRuntime",
        (
            opt(
                "MemPoolTrimTo",
                "MemPool pool, std::size_t min_bytes_to_keep",
                "Gives unused pool memory back to the system down to a size.",
            ),
        ),
    ),
    Group(
        "Streams",
        "StreamRuntime",
        (
            fn(
                "StreamCreate",
                "Stream* stream",
                "A stream of the current device that obeys the legacy default stream.",
            ),
            fn(
                "StreamDestroy",
                "Stream stream",
                "Returns at once; work already in the stream completes.",
            ),
            fn(
                "StreamSynchronize",
                "Stream stream",
                "Waits for the stream's work; for the default stream, for that of all blocking streams too.",
            ),
            fn(
                "StreamWaitEvent",
                "Stream stream, Event event, unsigned int flags = 0",
                "Later work of the stream waits for the event's latest record as of this call.",
            ),
        ),
    ),
    Group(
        "Stream flags and priorities",
        "StreamFlagRuntime",
        (
            opt(
                "StreamCreateWithFlags",
                "Stream* stream, unsigned int flags",
                "A stream that with `kStreamNonBlocking` ignores the legacy default stream.",
            ),
            opt(
                "StreamCreateWithPriority",
                "Stream* stream, unsigned int flags, int priority",
                "A stream with a priority, which is clamped to the range.",
            ),
        ),
    ),
    Group(
        "Stream queries",
        "StreamQueryRuntime",
        (
            opt(
                "StreamQuery",
                "Stream stream",
                "`kSuccess` if the stream's work is done, else `kErrorNotReady`.",
            ),
        ),
    ),
    Group(
        "Host functions",
        "HostFunctionRuntime",
        (
            opt(
                "LaunchHostFunc",
                "Stream stream, HostFn fn, void* user_data",
                "Calls a function on the host in stream order; it must not call the runtime.",
            ),
        ),
    ),
    Group(
        "Events",
        "EventRuntime",
        (
            fn("EventCreate", "Event* event", "An event with timing on the current device."),
            fn(
                "EventCreateWithFlags",
                "Event* event, unsigned int flags",
                "An event; flags are `kEventBlockingSync`, `kEventDisableTiming`, `kEventInterprocess`.",
            ),
            fn(
                "EventRecord",
                "Event event, Stream stream = nullptr",
                "Makes the event stand for the work in the stream so far; the stream must be of its device.",
            ),
            fn(
                "EventQuery",
                "Event event",
                "`kSuccess` if that work is done or none was recorded, else `kErrorNotReady`.",
            ),
            fn("EventSynchronize", "Event event", "Waits for the latest record."),
            fn("EventDestroy", "Event event", "Returns at once, also while a record is pending."),
            fn(
                "EventElapsedTime",
                "float* ms, Event start, Event end",
                "Milliseconds between two completed records, with sub-microsecond resolution.",
            ),
        ),
    ),
    Group(
        "Graphs",
        "GraphRuntime",
        (
            opt(
                "StreamBeginCapture",
                "Stream stream, StreamCaptureMode mode",
                "From here on the stream's operations are recorded into a graph instead of executed.",
            ),
            opt(
                "StreamEndCapture",
                "Stream stream, Graph* graph",
                "Ends the capture and hands out the graph.",
            ),
            opt(
                "GraphInstantiate",
                "GraphExec* graph_exec, Graph graph, unsigned long long flags = 0",
                "An executable form, independent of the graph's life.",
            ),
            opt(
                "GraphLaunch",
                "GraphExec graph_exec, Stream stream",
                "Replays the graph in stream order; launches of one executable never overlap.",
            ),
            opt(
                "GraphExecDestroy",
                "GraphExec graph_exec",
                "Destroys the executable; launched replays complete.",
            ),
            opt("GraphDestroy", "Graph graph", "Destroys the graph; its executables live on."),
        ),
    ),
    Group(
        "Capture status",
        "CaptureStatusRuntime",
        (
            opt(
                "StreamIsCapturing",
                "Stream stream, StreamCaptureStatus* status",
                "Whether the stream captures, and whether its capture is still valid.",
            ),
        ),
    ),
    Group(
        "Errors",
        "ErrorRuntime",
        (
            fn(
                "GetLastError",
                "",
                "The calling thread's last error, which is then reset unless it is sticky.",
            ),
            fn("PeekAtLastError", "", "The calling thread's last error, left in place."),
            opt(
                "GetErrorName",
                "Error error",
                "The enumerator's name; never null.",
                returns="const char*",
            ),
            opt(
                "GetErrorString",
                "Error error",
                "A sentence about the error; never null.",
                returns="const char*",
            ),
        ),
    ),
)

FUNCTIONS = tuple(emit.functions_of(API))


def squeeze(text: str) -> str:
    """One spelling for one C++ type."""
    return re.sub(r"\s*([*&])\s*", r"\1", " ".join(text.split()))


def strip_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", " ", text)


def struct_body(text: str, backend: Backend, path: Path) -> str:
    """The text between the braces of `struct Runtime<Device::Type::kX>`."""
    pattern = rf"struct\s+Runtime<\s*Device::Type::{backend.enumerator}\s*>[^;{{]*\{{"
    match = re.search(pattern, text)
    if not match:
        raise GeneratorError(f"{path}: no struct Runtime<Device::Type::{backend.enumerator}>")
    depth, start = 1, match.end()
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    raise GeneratorError(f"{path}: unbalanced braces")


def top_level(body: str) -> str:
    """The body without nested braces, so that only the struct's own members remain."""
    depth, kept = 0, []
    for char in body:
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            kept.append(";")
        elif depth == 0:
            kept.append(char)
    return "".join(kept)


def native_header(backend: Backend, root: Path) -> Path:
    return root / "src" / "native" / backend.name / "runtime_.h"


def native_text(backend: Backend, root: Path) -> str:
    """The backend's header with the parts that backends share put in where it includes them."""

    def shared(match: re.Match[str]) -> str:
        path = root / "src" / match.group(1)
        if not path.exists():
            raise GeneratorError(f"{native_header(backend, root)}: there is no {path}")
        return path.read_text()

    text = native_header(backend, root).read_text()
    return re.sub(r'^#include "(native/[\w/]+\.inc)"\n', shared, text, flags=re.MULTILINE)


def supported(backend: Backend, root: Path) -> frozenset[str]:
    """Names of the table's functions that the backend's header declares, checked against the table."""
    path = native_header(backend, root)
    members = top_level(struct_body(strip_comments(native_text(backend, root)), backend, path))
    public = re.split(r"\bprivate\s*:", members)[0]
    table = {function.name: function for function in FUNCTIONS}
    found = set()
    for match in re.finditer(r"\bstatic\s+([\w:\s]+?[\s*&])\s*(\w+)\s*\(([^()]*)\)", public):
        returns, name, params = squeeze(match.group(1)), match.group(2), match.group(3)
        if name in EXTENSIONS.get(backend.name, ()):
            continue
        function = table.get(name)
        if function is None:
            raise GeneratorError(f"{path}: {name} is not in the API table")
        types = [squeeze(re.sub(r"\b\w+\s*$", "", p)) for p in params.split(",") if p.strip()]
        expected = [squeeze(param.type) for param in function.params]
        if types != expected or returns != squeeze(function.returns):
            raise GeneratorError(
                f"{path}: {name} is {returns}({', '.join(types)}), "
                f"the API table says {squeeze(function.returns)}({', '.join(expected)})"
            )
        found.add(name)
    missing = [function.name for function in FUNCTIONS if function.required and function.name not in found]
    if missing:
        raise GeneratorError(f"{path}: required functions are missing: {', '.join(missing)}")
    return frozenset(found)


def choose(names: list[str]) -> list[Backend]:
    """The backends in table order, with at most one accelerator."""
    known = {backend.name: backend for backend in BACKENDS}
    for name in names:
        if name not in known:
            raise GeneratorError(f"unknown backend '{name}'; known: {', '.join(known)}")
    chosen = [backend for backend in BACKENDS if backend.name in names]
    accelerators = [backend.name for backend in chosen if backend.name != "cpu"]
    if len(accelerators) > 1:
        raise GeneratorError(f"one build takes at most one accelerator, got {' and '.join(accelerators)}")
    if not chosen:
        raise GeneratorError("no backend was chosen")
    return chosen


def backend_header(backend: Backend, root: Path) -> str:
    return emit.BANNER + native_text(backend, root)


def write(path: Path, text: str) -> None:
    """Writes only what changed, so that nothing is rebuilt without need."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def generate(names: list[str], output: Path, root: Path = ROOT) -> None:
    """Writes include/, src/ and docs/ for one build, and removes headers of other backends."""
    support = {backend: supported(backend, root) for backend in choose(names)}
    include = output / "include" / "infini" / "rt"
    for backend in BACKENDS:
        header = include / backend.name / "runtime.h"
        if backend in support:
            write(header, backend_header(backend, root))
        else:
            header.unlink(missing_ok=True)
    write(include / "generated.h", emit.public_header(API, support))
    write(include / "concepts.h", emit.concepts_header(API))
    write(output / "src" / "dispatch.cc", emit.dispatch_source(API, support))
    write(output / "docs" / "api_reference.md", emit.reference_page(API, support))
    write(output / "docs" / "backend_support.md", emit.support_page(API, support))


def pages(root: Path = ROOT) -> dict[str, str]:
    """The reference pages over all backends."""
    support = {backend: supported(backend, root) for backend in BACKENDS if native_header(backend, root).exists()}
    return {
        "api_reference.md": emit.reference_page(API, support),
        "backend_support.md": emit.support_page(API, support),
    }


def main(arguments_list: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", metavar="NAME", help="backends of the build")
    parser.add_argument("--output-dir", type=Path, help="where to write include/, src/ and docs/")
    parser.add_argument("--docs-dir", type=Path, help="where the pages over all backends are")
    parser.add_argument("--check", action="store_true", help="compare the pages instead of writing them")
    options = parser.parse_args(arguments_list)
    if bool(options.backends) != bool(options.output_dir) or not (options.backends or options.docs_dir):
        parser.error("give --backends with --output-dir, or --docs-dir")
    try:
        if options.backends:
            generate(options.backends, options.output_dir)
        stale = []
        for name, text in pages().items() if options.docs_dir else ():
            path = options.docs_dir / name
            if not options.check:
                write(path, text)
            elif not path.exists() or path.read_text() != text:
                stale.append(str(path))
        if stale:
            raise GeneratorError(f"out of date, run with --docs-dir: {', '.join(stale)}")
    except GeneratorError as error:
        print(f"generate_public_headers.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
