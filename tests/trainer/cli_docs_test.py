"""Checks that docs/cli.md and docs/cli.zh-CN.md list exactly the flags that the program has, with their defaults, and
docs/models.md its presets.

Usage: cli_docs_test.py PROGRAM DOCS_FOLDER
"""

import pathlib
import re
import subprocess
import sys

COMMANDS = ("tokenize", "train", "generate", "evaluate", "export", "info", "conformance")


def flags_of_program(program, command):
    """Maps the flags of a command to their defaults; None where the help says none."""
    text = subprocess.run([program, command, "--help"], check=True, capture_output=True, text=True).stdout
    # A provider's page lists its own.
    text = text.split("\nProvider:\n")[0]
    # A flag begins with its names: "  --tokenizer,--tokenizer_bin TEXT=bytes   help". The default of a boolean ends it.
    found = re.findall(r"^  (?:-h,)?(--\S+)((?:.|\n(?!  -|\n))*)", text, flags=re.MULTILINE)
    flags = {}
    for names, rest in found:
        default = re.match(r" [A-Z]+=(\S+)", rest) or re.search(r"\[(true|false)\]\s*$", rest)
        flags |= dict.fromkeys(re.findall(r"--(\w+)", names), default and default[1])
    flags.pop("help", None)
    return flags


def flags_of_document(path):
    """Maps each command to the flags in the tables below its heading, with their second columns."""
    flags = {command: {} for command in COMMANDS}
    command = None
    for line in path.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"## .*?`infini-train (\w+)`", line):
            command = heading.group(1)
        elif line.startswith("## "):
            command = None
        elif line.startswith("| `--") and command:
            _, names, default, *_ = line.split("|")
            flags[command] |= dict.fromkeys(re.findall(r"`--(\w+)`", names), default.strip())
    return flags


def is_default(cell, default):
    """Whether a table says what the program does: words may stand for a default, but no other value."""
    if default is None or not (shown := re.match(r"`([^`]+)`|$", cell)):
        return True
    try:
        return float(shown[1] or "nan") == float(default)
    except ValueError:
        return shown[1] == default


def presets_of_program(program):
    """The names and second names of the presets: "preset gpt2 (d12): ..."."""
    text = subprocess.run([program, "info"], check=True, capture_output=True, text=True).stdout
    names = re.findall(r"^preset ([^\s:]+)(?: \(([^)]+)\))?:", text, flags=re.MULTILINE)
    return {name for pair in names for name in pair if name}


def presets_of_document(path):
    """What the column Presets of the table of families names."""
    rows = [line.split("|") for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    column = [cell.strip() for cell in rows[0]].index("Presets")
    end = next((i for i, row in enumerate(rows) if len(row) <= column), len(rows))
    return {name for row in rows[1:end] for name in re.findall(r"`([^`]+)`", row[column])}


def main():
    program, docs = sys.argv[1], pathlib.Path(sys.argv[2])
    faults = []
    for name in ("cli.md", "cli.zh-CN.md"):
        documented = flags_of_document(docs / name)
        for command in COMMANDS:
            real = flags_of_program(program, command)
            if command != "info" and len(real) < 4:
                faults.append(f"{command} --help: found only {sorted(real)}")
            for flag in sorted(real.keys() - documented[command].keys()):
                faults.append(f"docs/{name}: --{flag} of {command} is missing")
            for flag in sorted(documented[command].keys() - real.keys()):
                faults.append(f"docs/{name}: {command} has no --{flag}")
            for flag in sorted(documented[command].keys() & real.keys()):
                if not is_default(documented[command][flag], real[flag]):
                    faults.append(f"docs/{name}: --{flag} of {command}: expected the default {real[flag]}")
    presets, documented = presets_of_program(program), presets_of_document(docs / "models.md")
    for name in sorted(presets ^ documented):
        faults.append(f"docs/models.md: {'does not name' if name in presets else 'there is no'} preset {name}")
    print("\n".join(faults) or "The documentation lists every flag and preset.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
