"""Review: a person looks through a routine before it is stored, and changes it by keys."""

import os
import re
import string
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import click
import msgspec

from em.cli.output import note, only_results_on_stdout, print_table, wants_json
from em.values.canonical import Json, short

Kind = Literal["input", "constant", "check"]
LEAVE = "q"
KEYS = (string.ascii_lowercase + string.ascii_uppercase + string.digits).replace(LEAVE, "")
_ENTER, _END = "\r\n", "\x04"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?")
"""An arrow or another key that a terminal sends as several characters."""
_DOES: dict[Kind, str] = {
    "input": "becomes a constant",
    "constant": "becomes an input",
    "check": "is struck",
}


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a person said: arguments that are inputs, inputs that are constants, struck checks."""

    inputs: Sequence[str] = ()
    constants: Sequence[str] = ()
    struck: Sequence[str] = ()


class Item(msgspec.Struct, frozen=True):
    """One thing that a key changes. name: as `Said` names it. words: what a person reads."""

    kind: Kind
    place: str
    name: str
    words: str


def can_review() -> bool:
    """Return whether there is a person at a terminal who can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not wants_json()


def items_of(document: Json) -> list[Item]:
    """Return what a person can change about a routine, each thing once."""
    from em.compiler.checks import walked
    from em.compiler.outline import outline_of

    outline = outline_of(document)
    tools = {one["id"]: one.get("tool", "") for one in walked(document["steps"])}
    found = [Item("input", one.name, one.name, one.looks) for one in outline.inputs]
    for constant in outline.constants:
        step, argument = constant.place.split(".", 1)
        name = argument.replace("[", ".").split(".")[0]
        if tools.get(step):
            wanted = f"{tools[step]}.{name}"
            found.append(Item("constant", constant.place, wanted, short(constant.value)))
    for check in outline.checks:
        held = f" ({check.held})" if check.held else ""
        found.append(Item("check", check.id, check.id, check.words.replace("`", "") + held))
    return found


def reviewed(document: Json, said: Said) -> Said | None:
    """Show what can be changed and take keys; None if the person leaves.

    A key that is pressed again takes the change back.
    """
    items = items_of(document)
    keyed = dict(zip(KEYS, items, strict=False))
    rows = [(key, one.kind, one.place, one.words) for key, one in keyed.items()]
    click.echo(err=True)
    if rows:
        with only_results_on_stdout():
            print_table(("key", "", "what", ""), rows)
    if len(items) > len(keyed):
        note(f"and {len(items) - len(keyed)} more, without a key")
    with _terminal() as keys:
        note(f"a key changes its line, Enter accepts, {LEAVE} leaves")
        marked = chosen(keyed, keys)
    return None if marked is None else with_marked(document, said, marked)


def chosen(keyed: dict[str, Item], keys: Iterable[str]) -> list[Item] | None:
    """Return what keys mark until Enter; None if they leave."""
    marked: list[Item] = []
    for key in keys:
        if key in _ENTER:
            return marked
        if key in (LEAVE, _END):
            return None
        one = keyed.get(key)
        if one is None:
            continue
        if one in marked:
            marked.remove(one)
            note(f"{one.place} stays as it is")
        else:
            marked.append(one)
            note(f"{one.place} {_DOES[one.kind]}")
    return None


@contextmanager
def _terminal() -> Iterator[Iterator[str]]:
    """Return the keys as they are pressed. What was typed before is dropped: nobody had seen it."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSAFLUSH)
    try:
        yield _keys(terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _keys(terminal: int) -> Iterator[str]:
    while typed := os.read(terminal, 64).decode(errors="ignore"):
        yield from _SEQUENCE.sub("", typed)


def with_marked(document: Json, said: Said, marked: Sequence[Item]) -> Said:
    """Return what a person said before, together with what they marked now."""
    from em.compiler.checks import struck

    for one in marked:
        if one.kind == "check":
            texts = struck({**document, "struck": []}, one.name)["struck"]
            said = msgspec.structs.replace(said, struck=[*said.struck, *texts])
        elif one.kind == "input":
            said = _moved(said, one.name, "inputs", "constants")
        else:
            said = _moved(said, one.name, "constants", "inputs")
    return said


def _moved(said: Said, name: str, source: str, target: str) -> Said:
    """Return what was said with a name moved: what was said to be an input is one no more."""
    bare = name.rpartition(".")[2]
    left = [one for one in getattr(said, source) if one.rpartition(".")[2] != bare]
    if len(left) < len(getattr(said, source)):
        return msgspec.structs.replace(said, **{source: left})
    more = [*dict.fromkeys([*getattr(said, target), name])]
    return msgspec.structs.replace(said, **{target: more})
