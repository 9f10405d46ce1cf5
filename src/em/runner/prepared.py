"""Prepared: a run up to its first write, and what it would write: as values and as text."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from em.runner.run import Item, RunResult, plain
from em.values.canonical import short


class PlannedArgument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One argument of a call that was planned: its value, or the problem why it has none.

    source: where it comes from, in words.
    """

    place: str
    source: str
    value: Any = msgspec.UNSET
    problem: str = ""


class Planned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step that was not done: a call with an effect, a question, or one that must wait.

    needs: what it waits for, such as "the result of refund". expects: what the call must return, in
    words. shows: what the tool would do, such as a command or a diff.
    """

    step: str
    does: Literal["write", "ask", "wait"]
    tool: str = ""
    item: Item = None
    arguments: Sequence[PlannedArgument] = ()
    expects: Sequence[str] = ()
    needs: Sequence[str] = ()
    message: str = ""
    shows: str = ""


class Prepared(RunResult, frozen=True, kw_only=True):
    """A run that made its reads and checks, and no call with an effect.

    The status says how the run would go: `ok` to its end; `needs_input` if it would ask or hand
    over; `failed`. context: what was read, by name. planned: what was left undone.
    token: commits just this, once (`memory.commit`); empty if the run would not reach its end, if
    it asks something on its way, or where there is no memory to keep it.
    """

    planned: Sequence[Planned] = ()
    token: str = ""

    @property
    def is_decided(self) -> bool:
        """Whether nothing is left to be asked or to go wrong before the first write."""
        return self.status == "ok" and not any(one.does == "ask" for one in self.planned)

    @property
    def text(self) -> str:
        """What was read and what would be done, a line for each value."""
        read = [f"`{name}` is {short(plain(value))}" for name, value in self.context.items()]
        return "\n".join([*read, *(line for one in self.planned for line in _lines(one))])


def _lines(planned: Planned) -> Iterator[str]:
    number = "" if planned.item is None else f"[{planned.item}]"
    needs = f" (needs {', '.join(planned.needs)})" if planned.needs else ""
    if planned.does == "ask":
        yield f"{planned.step}: would ask: {planned.message}{needs}"
        return
    if planned.does == "wait":
        yield f"{planned.step}{number}: needs {', '.join(planned.needs)}"
    else:
        yield f"{planned.step}{number}: would call {planned.tool}{needs}"
    yield from (f"  | {line}" for line in planned.shows.splitlines())
    for one in planned.arguments:
        value = "?" if one.value is msgspec.UNSET else short(one.value)
        yield f"  {one.place} = {value}: {one.problem or one.source}"
    yield from (f"  afterwards: {words}" for words in planned.expects)
