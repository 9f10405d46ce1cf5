"""Whether the prompt of a coding session finds the routine that was learnt from its like.

Three sets of ten or twenty kinds, each with prompts about the same things that ask for another
task. `<name=value>` marks a value; each kind is compiled from its six recorded prompts. The kinds
have neutral names, so that only what was asked for says what they do.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bench.figure import Figure
from em import Memory
from em.clients.advice import MOST_ROUTINES
from em.compiler.match import LEAST_LIKENESS, Matcher

_VALUE = re.compile(r"<(\w+)=(>?[^>]*)>")
RECORDED = 6


class Kind(NamedTuple):
    """Prompts that ask for one chore: those of its sessions, and others."""

    recorded: Sequence[str]
    unseen: Sequence[str]


class Prompts(NamedTuple):
    """Kinds of chores by the names of their routines, and prompts that ask for none of them."""

    kinds: Mapping[str, Kind]
    others: Sequence[str]


def every() -> Iterator[Prompts]:
    """Read the sets of prompts."""
    for path in sorted((Path(__file__).parent / "coding").glob("*.yaml")):
        read = yaml.safe_load(path.read_text())
        kinds = {
            f"kind_{number:02}": Kind(**one) for number, one in enumerate(read["kinds"].values())
        }
        yield Prompts(kinds, read["others"])


def said(prompt: str) -> str:
    """Return a prompt as a person wrote it."""
    return _VALUE.sub(lambda found: found[2], prompt)


def matcher(memory: Memory, kinds: Mapping[str, Kind], left_out: int = RECORDED) -> Matcher:
    """Compile kinds, without the session of this number, and return what finds them."""
    for name, kind in kinds.items():
        prompts = [one for number, one in enumerate(kind.recorded) if number != left_out]
        memory.compile([memory.add_trace(_session(name, one)) for one in prompts], name=name)
    return memory.matcher


def _session(name: str, prompt: str) -> dict[str, Any]:
    text, values = said(prompt), dict(_VALUE.findall(prompt))
    call = {"type": "tool_call", "seq": 0, "tool": f"do_{name}", "args": values, "result": "",
            "effect": "write"}  # fmt: skip
    events = [{"type": "message", "role": "user", "text": text}, call]
    mission = {"goal": text}
    return {"version": "1", "app": {"name": "coder"}, "mission": mission, "events": events,
            "outcome": "success"}  # fmt: skip


class Counts(NamedTuple):
    """How often a routine was ranked first, or offered, of how many prompts."""

    found: int
    of: int

    def __add__(self, other: Any) -> "Counts":
        return Counts(self.found + other.found, self.of + other.of)


def first(found: Matcher, prompts: Sequence[tuple[str, str]]) -> Counts:
    """Count the prompts for which their kind is ranked first."""
    ranked = ((name, found.ranked(said(prompt))) for name, prompt in prompts)
    return Counts(sum(best[0].routine.name == name for name, best in ranked if best), len(prompts))


def _offers(found: Matcher, prompt: str) -> list[str]:
    """Return the routines that an agent is told of at a prompt."""
    likely = found.ranked(said(prompt), at_least=LEAST_LIKENESS)
    return [one.routine.name for one in likely[:MOST_ROUTINES]]


def told(found: Matcher, prompts: Sequence[tuple[str, str]]) -> Counts:
    """Count the prompts at which their kind is offered."""
    return Counts(sum(name in _offers(found, one) for name, one in prompts), len(prompts))


def offered(found: Matcher, prompts: Sequence[str]) -> Counts:
    """Count the prompts at which any routine is offered."""
    return Counts(sum(bool(_offers(found, one)) for one in prompts), len(prompts))


def figures() -> Iterator[Figure]:
    """All sets together: other words for a kind, a session left out, and prompts of none."""
    recorded = unseen = told_of = left_out = missing = near = Counts(0, 0)
    for kinds, others in every():
        with Memory(":memory:") as memory:
            found = matcher(memory, kinds)
            own = [(name, one) for name, kind in kinds.items() for one in kind.recorded]
            recorded += first(found, own)
            new = [(name, one) for name, kind in kinds.items() for one in kind.unseen]
            unseen += first(found, new)
            told_of += told(found, new)
            near += offered(found, others)
            for name, kind in kinds.items():
                memory.retire(f"{name}@1")
                missing += offered(found, [*kind.recorded, *kind.unseen])
                memory.restore(f"{name}@1")
        for number in range(RECORDED):
            with Memory(":memory:") as memory:
                found = matcher(memory, kinds, number)
                own = [(name, kind.recorded[number]) for name, kind in kinds.items()]
                left_out += first(found, own)
    for what, counts, bar, is_lower in (
        ("recorded coding prompts, their routine first", recorded, 0.9, True),
        ("other wordings of coding prompts, their routine first", unseen, 0.9, True),
        ("other wordings of coding prompts, their routine offered", told_of, 0.9, True),
        ("coding prompts of a session left out, their routine first", left_out, None, True),
        ("coding prompts without a routine at which one is offered", missing, 0.05, False),
        ("coding prompts about the same things at which one is offered", near, 0.05, False),
    ):
        share = counts.found / counts.of
        yield Figure(what, counts.found, "prompts", counts.of, "", share, bar, is_lower)
