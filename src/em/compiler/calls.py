"""The calls of a trace: their effects, which ones a routine needs, and names for their results."""

import bisect
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from em.compiler.commands import Commands, Taken, is_bookkeeping
from em.runner.expressions.functions import SCOPE
from em.runner.tools.coding import effect_of_tool
from em.traces.trace import Approval, Message, ToolCall, Trace, UdfCall
from em.values.call import Effect
from em.values.canonical import Json

if TYPE_CHECKING:
    from em.runner.routine import ToolSpec

READING = ("get", "list", "find", "search", "read", "fetch")
"""A call whose effect nobody declared is a write, unless its name begins with one of these."""
_UNKNOWN_EFFECT = re.compile(r"time[d]?[ -]?out|connection|broken pipe|\b5\d\d\b", re.IGNORECASE)


class TracedCall(msgspec.Struct):
    """One call."""

    index: int
    name: str
    is_udf: bool
    args: Json
    result: Any
    error: Any
    effect: Effect
    effect_inferred: bool
    shell: str = ""
    """The form of a shell command, whose values are the arguments."""
    via: str = ""
    """The tool that ran the shell command."""
    fixed: Json = {}
    """The values of a shell command that can't be others."""
    creates: tuple[str, ...] = ()
    """The files that a shell command wrote with `>`, if nothing shows that they were there."""
    exit_code: int = 0
    """How a shell command ended whose result is what it printed all the same."""
    destructive: bool | None = None
    """Whether its tool declares that it may destroy something; None if it declares nothing."""

    @property
    def title(self) -> str:
        """The name of the tool; for a shell command its programs."""
        return self.name.rpartition("_")[0] if self.shell else self.name

    @property
    def shown(self) -> Any:
        """What it returned; of a command, which some clients record with a line break at its end,
        as em's own tools return it.
        """
        is_output = bool(self.shell) and isinstance(self.result, str)
        return self.result.rstrip("\n") if is_output else self.result

    @property
    def failed(self) -> bool:
        """Whether the call ended in an error."""
        return self.error is not None

    @property
    def effect_unknown(self) -> bool:
        """Whether this is a write that failed in a way that leaves its effect unknown."""
        return (
            self.failed and self.effect == "write" and bool(_UNKNOWN_EFFECT.search(str(self.error)))
        )


class TracedApproval(msgspec.Struct):
    """A question to a person, asked before the call with this index."""

    index: int
    prompt: str
    answer: Any


def calls_of(
    trace: Trace, declared: Mapping[str, Effect | None], *, as_made: bool = False
) -> tuple[list[TracedCall], list[TracedApproval]]:
    """Return the calls and approvals of a trace, in their order.

    Shell commands are calls of their forms; with `as_made` all calls are as the agent made them.
    """
    commands = Commands(trace)
    calls: list[TracedCall] = []
    approvals: list[TracedApproval] = []
    for event in trace.events:
        if isinstance(event, Approval):
            approvals.append(TracedApproval(len(calls), event.prompt, event.answer))
        elif not isinstance(event, Message):
            call = _call(event, len(calls), declared)
            taken = commands.taken(event) if isinstance(event, ToolCall) else None
            calls.append(call if taken is None else _taken_apart(call, taken, as_made=as_made))
    return calls, approvals


def _taken_apart(call: TracedCall, taken: Taken, *, as_made: bool) -> TracedCall:
    inferred = "read" if is_bookkeeping(taken.name) else infer_effect(taken.name)
    known: Json = {"effect": taken.effect or inferred}
    if taken.effect is not None:
        known["effect_inferred"] = False
    if as_made:
        return msgspec.structs.replace(call, **known)
    return msgspec.structs.replace(
        call,
        name=taken.name,
        args=taken.args,
        shell=taken.shell,
        via=taken.via,
        fixed=taken.fixed,
        creates=taken.creates,
        **known,
    )


def specs_of(calls: Iterable[TracedCall]) -> "dict[str, ToolSpec]":
    """Return the declaration of each tool that was called, by its name."""
    from em.runner.routine import ToolSpec

    made = [call for call in calls if not call.is_udf]
    overwriting = {call.name for call in made if not call.creates}
    return {
        call.name: ToolSpec(
            name=call.name,
            effect=call.effect,
            effect_inferred=call.effect_inferred,
            shell=call.shell or None,
            via=call.via,
            exit_codes=(call.exit_code,) if call.exit_code else (),
            args_schema={"properties": {name: {"const": text} for name, text in call.fixed.items()}}
            if call.fixed
            else None,
            only_new=call.name not in overwriting,
        )
        for call in made
    }


def _call(
    event: ToolCall | UdfCall, index: int, declared: Mapping[str, Effect | None]
) -> TracedCall:
    is_udf = isinstance(event, UdfCall)
    name = event.function if isinstance(event, UdfCall) else event.tool
    known = declared.get(name) or (event.effect if isinstance(event, ToolCall) else "read")
    if known is None and not is_udf:
        known = "read" if is_bookkeeping(name) else effect_of_tool(name)
    return TracedCall(
        index=index,
        name=name,
        is_udf=is_udf,
        args=event.args,
        result=event.result,
        error=event.error,
        effect=known or infer_effect(name),
        effect_inferred=known is None,
        destructive=event.destructive if isinstance(event, ToolCall) else None,
    )


def infer_effect(name: str) -> Effect:
    """Infer a tool's effect from the beginning of its name; in doubt it is a write."""
    return "read" if words_of(name)[:1] and words_of(name)[0] in READING else "write"


_RESERVED = frozenset({*SCOPE, "sum", "str", "int", "float", "nth", "true", "false", "none"})
"""Functions of compiled expressions, and words that Jinja reads as values."""


def words_of(name: str) -> list[str]:
    """Split a name into lower-case words, whatever its style."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)]


def identifier(text: str) -> str:
    """Turn a text into a name that expressions can use."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower() or "value"
    if name[0].isdigit() or keyword.iskeyword(name) or name in _RESERVED:
        name = f"the_{name}"
    return name


def plain_name(text: str) -> str:
    """Return a name as it is if expressions can use it, else one that they can."""
    is_usable = text.isidentifier() and text.isascii() and not keyword.iskeyword(text)
    return text if is_usable and text not in _RESERVED else identifier(text)


class Names:
    """Gives each name once: `order`, `order_2`, …"""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def free(self, name: str) -> str:
        """Return the name, or the first numbered one that is free."""
        free, number = name, self._taken.get(name, 1)
        while free in self._taken:
            number += 1
            free = f"{name}_{number}"
        self._taken.setdefault(free, 1)
        self._taken[name] = number
        return free


def tried_in_vain(calls: Sequence[TracedCall]) -> TracedCall | None:
    """Return the last write of a trace, if every one failed: it did nothing of what it tried."""
    writes = [call for call in calls if call.effect == "write" and not is_bookkeeping(call.name)]
    in_vain = all(call.failed and not call.effect_unknown for call in writes)
    return writes[-1] if writes and in_vain else None


class Later:
    """The calls that succeeded, by what they did, to find the one that repeated a failed one."""

    def __init__(self, calls: Sequence[TracedCall]) -> None:
        self._same: dict[bytes, list[int]] = {}
        for call in calls:
            if not call.failed:
                self._same.setdefault(call_key(call), []).append(call.index)

    def same(self, call: TracedCall) -> int | None:
        """Return the next call that did exactly the same."""
        indexes = self._same.get(call_key(call), [])
        at = bisect.bisect_right(indexes, call.index)
        return indexes[at] if at < len(indexes) else None


def call_key(call: TracedCall) -> bytes:
    """Return what calls have alike that did exactly the same."""
    return msgspec.json.encode((call.is_udf, call.name, call.args), order="sorted")
