"""What the programs of a build can do, asked from the programs themselves."""

import re
import subprocess
from pathlib import Path

# "  --name,--alias TYPE=default   what it is", the last part on the next line where the first is long.
FLAG_LINE = re.compile(r"^  (?:-\w,)?(--\w+(?:,--\w+)*)(.*)$")
# How the help says that a flag exists and only its default is accepted.
ONLY = re.compile(r"(?:^|[\s;])(true|false|\d+) only(?: \[\w+\])?$")
DEVICE_LINE = re.compile(r"^device ([\w-]+):\d+:", re.MULTILINE)


class ProgramError(Exception):
    """A program that cannot be asked."""


def ask(command, environment=None):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProgramError(f"{' '.join(map(str, command))}: {error}") from error
    if done.returncode != 0:
        raise ProgramError(f"{' '.join(map(str, command))}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def parse_help(text):
    """Maps each flag of a help text to the only value that it takes, or to None."""
    flags = {}
    names = []
    for line in text.splitlines():
        if match := FLAG_LINE.match(line):
            names = [name[2:] for name in match[1].split(",")]
            flags |= dict.fromkeys(names)
        elif not line.startswith("   "):
            names = []
        if only := ONLY.search(line.rstrip()):
            flags |= dict.fromkeys(names, only[1])
    return flags


def devices(infini_train):
    """How many devices of each kind there are, the CPU apart."""
    counts = {}
    for kind in DEVICE_LINE.findall(ask([infini_train, "info"])):
        counts[kind] = counts.get(kind, 0) + 1
    return counts


class Build:
    """The folder with a build's programs."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.flags_of = {}

    def program(self, name):
        return self.folder / name

    def has(self, name):
        return self.program(name).is_file()

    def flags(self, name):
        if name not in self.flags_of:
            self.flags_of[name] = parse_help(ask([self.program(name), "--help"]))
        return self.flags_of[name]

    def lacks(self, program, arguments):
        """The flags and values that a program does not take."""
        flags = self.flags(program)
        return [
            f"--{flag}={value}"
            for flag, value in arguments.items()
            if flag not in flags or flags[flag] not in (None, value)
        ]
