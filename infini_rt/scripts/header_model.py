"""What an entry of the API table is: backends, functions and their groups."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Backend:
    """A backend: CMake name, enumerator, name for readers."""

    name: str
    enumerator: str
    title: str


@dataclass(frozen=True)
class Param:
    type: str
    name: str
    default: str | None = None


@dataclass(frozen=True)
class Function:
    """One API function; `required` ones must exist in every backend."""

    name: str
    params: tuple[Param, ...]
    doc: str
    since: str = "0.1.0"
    required: bool = True
    returns: str = "Error"

    @property
    def cuda_name(self) -> str:
        return "cuda" + self.name


@dataclass(frozen=True)
class Group:
    """A chapter of the reference and, where its functions are optional, a concept."""

    title: str
    concept: str
    functions: tuple[Function, ...]

    @property
    def optional(self) -> bool:
        return not any(function.required for function in self.functions)

    @property
    def feature(self) -> str:
        """The enumerator by which a program asks for an optional group."""
        return "kFeature" + self.concept.removesuffix("Runtime")


def fn(name: str, params: str, doc: str, **keywords: object) -> Function:
    """A table row; `params` is written as in C++."""
    parsed = []
    for text in filter(None, (part.strip() for part in params.split(","))):
        declaration, _, default = (piece.strip() for piece in text.partition("="))
        match = re.fullmatch(r"(.*?)(\w+)", declaration)
        assert match, text
        parsed.append(Param(match.group(1).strip(), match.group(2), default or None))
    return Function(name, tuple(parsed), doc, **keywords)  # type: ignore[arg-type]


def opt(name: str, params: str, doc: str, **keywords: object) -> Function:
    """A table row that a backend may lack."""
    return fn(name, params, doc, required=False, **keywords)


# Texts come from InfiniRT's own table, so these exist whatever the backend offers.
MESSAGES = {"GetErrorName": "ErrorName", "GetErrorString": "ErrorString"}


class GeneratorError(Exception):
    """A user's mistake: unknown backend, two accelerators, header and table that disagree."""


def signature(function: Function, defaults: bool) -> str:
    params = []
    for param in function.params:
        text = f"{param.type} {param.name}"
        if defaults and param.default is not None:
            text += f" = {param.default}"
        params.append(text)
    return f"{function.returns} {function.name}({', '.join(params)})"


def arguments(function: Function) -> str:
    return ", ".join(param.name for param in function.params)
