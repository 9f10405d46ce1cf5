"""Needs: what a step asks for, as `tool_output(research)` or `recall({{params.topic}}, 5)`.

A need is parsed before values are filled in: a value can't change what is asked for.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from em.errors import InvalidWorkflow
from em.runner.expressions.language import Evaluate, compile_value

Kind = Literal[
    "user_prompt",
    "step",
    "last_output",
    "parameters",
    "classification",
    "recall",
    "heuristics",
    "state",
    "run",
]
FETCHED = frozenset({"recall", "heuristics", "state", "run"})
"""Needs from outside the run: fetched when the step begins, and stored with its result."""

_BARE: dict[str, Kind] = {
    "user_prompt": "user_prompt",
    "last_output": "last_output",
    "parameters": "parameters",
}
_CALLED: dict[str, tuple[Kind, int, int]] = {
    "tool_output": ("step", 1, 1),
    "step_output": ("step", 1, 1),
    "classification": ("classification", 1, 1),
    "recall": ("recall", 1, 2),
    "heuristics": ("heuristics", 1, 1),
    "state": ("state", 1, 2),
    "run": ("run", 2, 2),
}
WORDS = (*_BARE, *(f"{name}(…)" for name in _CALLED))
EVERYBODY = "*"
"""Stands for all subjects in `recall(query, 5, *)`."""
_NEED = re.compile(
    r"\s*(?P<word>[^\s()!]+)\s*(?:\((?P<inside>.*)\))?\s*(?P<must>!)?\s*(?:as\s+(?P<name>\w+))?\s*",
    re.DOTALL,
)
_PIECE = re.compile(r"\{\{.*?\}\}|'[^']*'|\"[^\"]*\"|,|[^,'\"{]+|.", re.DOTALL)


@lru_cache(maxsize=4096)
def as_variable(name: str) -> str:
    """Return a name as a template can use it."""
    return re.sub(r"\W", "_", name)


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a step needs.

    `target` is a step, a classification, or the workflow of an earlier run; `name` is the name in
    templates, if it is not the usual one; `must`: raise if it is missing.
    """

    text: str
    kind: Kind
    target: str = ""
    asks: Sequence[Evaluate] = ()
    k: int = 5
    name: str = ""
    must: bool = False
    everybody: bool = False
    """Whether `recall` searches all subjects, also in a run about one."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Its names in `memory`."""
        if self.name:
            return (self.name,)
        variable = as_variable(self.target)
        if self.kind == "step":
            bare = "(" not in self.text
            return (f"{variable}_output", variable) if bare else (f"{variable}_output",)
        if self.kind == "classification":
            return (variable,)
        if self.kind == "run":
            return (f"{variable}_output",)
        return (self.kind,)


def parse_need(text: str, place: str) -> Need:
    """Parse a need."""
    match = _NEED.fullmatch(text)
    if match is None:
        raise _no_need(text, place)
    word, inside = match["word"], match["inside"]
    must, name = match["must"] is not None, match["name"] or ""
    if inside is None:
        bare = _BARE.get(word)
        if bare is not None:
            return Need(text=text, kind=bare, must=must, name=name)
        if word in _CALLED:
            raise _no_need(text, place, f"write {word}(…)")
        return Need(text=text, kind="step", target=word, must=must, name=name)
    if word not in _CALLED:
        from em.values.mismatch import closest

        raise _no_need(text, place, closest(word, list(_CALLED)))
    kind, least, most = _CALLED[word]
    arguments = _arguments(inside)
    k, everybody = 5, False
    if kind in ("recall", "heuristics"):
        # After the number comes the subject; commas before it belong to the query.
        about = [arguments.pop()] if len(arguments) > 2 and arguments[-2].isdecimal() else []
        if len(arguments) > 1 and arguments[-1].isdecimal():
            k = int(arguments.pop())
        # Only if it is written here: a parameter can't widen a search to everybody.
        everybody = kind == "recall" and about == [EVERYBODY]
        arguments = [", ".join(arguments), *([] if everybody else about)]
    if not least <= len(arguments) <= most or not all(arguments):
        raise _no_need(text, place)
    need = _called(text, kind, arguments, k, must=must, name=name, place=place)
    return msgspec.structs.replace(need, everybody=True) if everybody else need


def _called(
    text: str, kind: Kind, arguments: list[str], k: int, *, must: bool, name: str, place: str
) -> Need:
    if kind in ("step", "classification"):
        return Need(text=text, kind=kind, target=arguments[0], must=must, name=name)
    if kind == "run":
        return Need(
            text=text,
            kind=kind,
            target=f"{arguments[0]}_{arguments[1]}",
            asks=[_constant(argument) for argument in arguments],
            must=must,
            name=name,
        )
    if kind == "state" and len(arguments) == 1:
        arguments = list(_subject_and_path(arguments[0]))
    asks = [compile_value(argument, f"{place}, {text}") for argument in arguments]
    return Need(text=text, kind=kind, asks=asks, k=k, must=must, name=name)


def _subject_and_path(text: str) -> tuple[str, str]:
    """Split at the first dot outside of expressions."""
    match = re.fullmatch(r"(?P<subject>(?:\{\{.*?\}\}|[^.{])*)\.?(?P<path>.*)", text, re.DOTALL)
    return (text, "") if match is None else (match["subject"], match["path"])


def _constant(value: Any) -> Evaluate:
    return lambda _scope: value


def _arguments(inside: str) -> list[str]:
    """Split at commas outside of quotes and expressions."""
    parts = [""]
    for piece in _PIECE.findall(inside):
        if piece == ",":
            parts.append("")
        elif len(piece) > 1 and piece[0] in "'\"":
            parts[-1] += piece[1:-1]
        else:
            parts[-1] += piece
    return [part.strip() for part in parts]


def _no_need(text: str, place: str, fix: str = "") -> InvalidWorkflow:
    return InvalidWorkflow(
        f"unknown need {text!r}", place=place, fix=fix or f"there are: a step's name, {_told()}"
    )


def _told() -> str:
    return ", ".join(WORDS)
