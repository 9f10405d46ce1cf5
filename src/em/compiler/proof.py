"""Proof: what replays of a routine have shown, and what they have not.

`verification` replays the recording as it is. Here it is replayed with the order of keys and lists
changed, and with each input replaced by a fresh value throughout. The routine may ask or stop then;
it must never act otherwise than its recording does with these values.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from em.compiler.draft import Draft, Recorded
from em.compiler.evidence import ENOUGH, information
from em.compiler.sources import text_key
from em.compiler.verification import NotReproduced, Same, replayed
from em.runner.agreement import names_in_expression, part_at, with_answers
from em.runner.expressions.words import in_words
from em.runner.routine import Asked
from em.runner.run import RunResult, cause_of
from em.runner.tools import Function
from em.values.canonical import Json, identical, short
from em.values.leaves import leaves

MOST_WORK = 4_000
"""Calls that are replayed to vary single inputs; beyond it all inputs are varied at once."""
MOST_SHOWN = 8
"""Inputs that the report names."""
UNEXPLAINED = "is asked for: nothing recorded explains it"
"""What a proof says about an input that has no explanation; the report names them together."""
_DATE = re.compile(r"(\d{4})(-\d{2}-\d{2}.*)", re.DOTALL)


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What was shown: how the routine did in other orders, and with other inputs.

    other_order: empty if it did the same, else why it stopped.
    inputs: by name: empty if the input varies freely, else what the routine asked or refused.
    """

    other_order: str = ""
    inputs: Mapping[str, str] = {}

    def __str__(self) -> str:
        return ". ".join(self.sentences())

    def sentences(self) -> Iterator[str]:
        """Yield what was proved and what was not, one sentence each."""
        yield "same task: proved"
        if self.other_order:
            yield f"another order of lists {self.other_order}"
        parts = [*self._about_inputs()]
        if len(parts) > MOST_SHOWN:
            parts[MOST_SHOWN:] = [f"{len(parts) - MOST_SHOWN} more are asked for or make it stop"]
        yield f"other inputs: {'; '.join(parts)}" if parts else "other inputs: there are none"

    def _about_inputs(self) -> Iterator[str]:
        """Yield what was shown about the inputs; those about which the same was shown together."""
        free = [name for name, problem in self.inputs.items() if not problem]
        if free:
            yield f"{_listed(free)} {'varies' if len(free) == 1 else 'vary'} freely"
        for name, problem in self.inputs.items():
            if problem and problem != UNEXPLAINED:
                yield f"{name} {problem}"
        unknown = [name for name, problem in self.inputs.items() if problem == UNEXPLAINED]
        if len(unknown) > 1:
            yield f"{_listed(unknown)} are asked for: nothing recorded explains them"
        elif unknown:
            yield f"{unknown[0]} {UNEXPLAINED}"


def _listed(names: Sequence[str]) -> str:
    if len(names) > MOST_SHOWN:
        names = [*names[:MOST_SHOWN], f"{len(names) - MOST_SHOWN} more"]
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]


def prove(draft: Draft) -> Proof:
    """Replay a draft in another order and with other inputs; raise if it acts otherwise."""
    turned = [
        msgspec.structs.replace(item, result=reordered(item.result)) for item in draft.recording
    ]
    # A list that is passed on as it is keeps its new order.
    order = _outcome(draft, draft.input, turned, _alike)
    return Proof(other_order=order, inputs=dict(_with_other_inputs(draft)))


def _with_other_inputs(draft: Draft) -> Iterator[tuple[str, str]]:
    """Yield each input with what the routine does when it has a fresh value."""
    asks = draft.routine.asks
    names = [name for name in draft.input if name not in asks or not asks[name].is_unused]
    for name in names:
        asked = asks.get(name)
        if asked is not None:
            yield name, _why_asked(asked)
    free = [name for name in names if name not in asks and _fresh_values(draft.input[name])]
    if len(free) * len(draft.recording) > MOST_WORK:
        fresh = _merged(_fresh_values(draft.input[name]) for name in free)
        problem = _varied(draft, fresh)
        yield from ((name, problem) for name in free)
        return
    for name in free:
        yield name, _varied(draft, _fresh_values(draft.input[name]))


def _why_asked(asked: Asked) -> str:
    if len(asked.candidates) > 1:
        return f"is ambiguous ({len(asked.candidates)} explanations), so it is asked for"
    possible = [text for text in asked.candidates if names_in_expression(text)]
    return f"is asked for: it may be {in_words(possible[0])}" if possible else UNEXPLAINED


def _varied(draft: Draft, fresh: Mapping[str, Any]) -> str:
    """Replay with some values replaced everywhere; return why it stopped, empty if it did not."""
    given = {name: _replaced(value, fresh) for name, value in draft.input.items()}
    recording = [
        msgspec.structs.replace(
            item, args=_other_args(draft, item, fresh), result=_replaced(item.result, fresh)
        )
        for item in draft.recording
    ]
    return _outcome(draft, given, recording)


def _other_args(draft: Draft, item: Recorded, fresh: Mapping[str, Any]) -> Json:
    """Return the arguments of a call with fresh values; what a person confirmed stays."""
    confirmed = {
        place: part_at(item.args, place) for step, place in draft.confirmed if step == item.step
    }
    return with_answers(_replaced(item.args, fresh), confirmed)


def _outcome(
    draft: Draft,
    given: Json,
    recording: Sequence[Recorded],
    same: Same = identical,
) -> str:
    effects = {tool.name: tool.effect for tool in draft.routine.tools}
    replay = _Replay(recording, effects, same, _rounds(draft))
    result = replayed(msgspec.structs.replace(draft, input=given), replay.tool)
    if replay.difference is not None:
        raise replay.difference
    return _why_stopped(result)


def _why_stopped(result: RunResult) -> str:
    if result.pending_prompt is not None:
        return f"makes it ask ({result.pending_prompt.message})"
    if result.reason is not None:
        return f"makes it hand over ({result.reason.message})"
    return "" if result.failure is None else f"makes it stop ({cause_of(result.failure)})"


def _rounds(draft: Draft) -> dict[str, str]:
    """Return the loop of each step that goes through a list which a read returned."""
    given = {f"{{{{ {name} }}}}" for name in draft.input}
    return {
        step.id: step.within or step.id
        for step in draft.routine.steps
        if step.within is not None or (step.for_each is not None and step.for_each not in given)
    }


class _Replay:
    """Answers reads from a recording; an effect must be the next one of the recording.

    The effects of a loop over a list that was read come in the order of that list.
    """

    def __init__(
        self,
        recording: Sequence[Recorded],
        effects: Mapping[str, Any],
        same: Same,
        rounds: Mapping[str, str],
    ) -> None:
        self._same, self._rounds = same, rounds
        self._harmless = {
            item.name for item in recording if item.is_udf or effects.get(item.name) == "read"
        }
        self._writes = [
            item for item in recording if not item.is_udf and effects.get(item.name) != "read"
        ]
        self._reads: dict[bytes, list[Any]] = {}
        for item in recording:
            if item.is_udf or effects.get(item.name) == "read":
                self._reads.setdefault(_key(item.name, item.args), []).append(item.result)
        self.difference: NotReproduced | None = None

    def tool(self, name: str) -> Function:
        """Return a stand-in for a tool or a function."""

        def call(**args: Any) -> Any:
            known = self._reads.get(_key(name, args))
            if known:
                return known.pop(0) if len(known) > 1 else known[0]
            if name in self._harmless:
                raise LookupError(f"{name}({short(args)}) was not recorded")
            expected = self._writes[0] if self._writes else None
            for item in self._next():
                if item.name == name and self._same(item.args, args):
                    self._writes.remove(item)
                    return item.result
            self.difference = self.difference or NotReproduced(
                f"with other values it calls {name}({short(args)})"
                + (f" instead of {expected.name}({short(expected.args)})" if expected else ""),
                place=f"step {expected.step}" if expected else f"tool {name}",
            )
            raise self.difference

        return call

    def _next(self) -> Iterator[Recorded]:
        """Yield the effects that may come next."""
        first = self._rounds.get(self._writes[0].step) if self._writes else None
        for number, item in enumerate(self._writes):
            if number and (first is None or self._rounds.get(item.step) != first):
                return
            yield item


def _alike(one: Any, other: Any) -> bool:
    """Compare two values without regard to the order of lists."""
    return identical(_sorted(one), _sorted(other))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted(map(_sorted, value), key=_encoded)
    return value


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _key(name: str, args: Json) -> bytes:
    return _encoded((name, args))


# --- other values ---------------------------------------------------------------------------------


def reordered(value: Any) -> Any:
    """Return a value whose keys and lists begin with what was second: every position changes."""
    if isinstance(value, dict):
        items = [(key, reordered(item)) for key, item in value.items()]
        return dict([*items[1:], *items[:1]])
    if isinstance(value, list):
        turned = [reordered(item) for item in value]
        return [*turned[1:], *turned[:1]]
    return value


def _fresh_values(value: Any) -> dict[str, Any]:
    """Return a new value for each part of an input that can be told apart; by its text."""
    return {
        text_key(part): fresh for _, part in leaves(value) if (fresh := _fresh(part)) is not None
    }


def _fresh(value: Any) -> Any:
    """Return another value of the same kind: a date for a date, a number for a number."""
    if isinstance(value, bool) or value is None or information(value) < ENOUGH / 2:
        return None
    if isinstance(value, int):
        return value + 1_013
    if isinstance(value, float):
        return value + 1_013.25
    date = _DATE.fullmatch(value)
    if date is not None:
        # The calendar repeats every 400 years.
        return f"{int(date[1]) + 400:04}{date[2]}"
    digits = [number for number, char in enumerate(value) if char.isdigit()]
    if digits:
        # Digits become other digits, so that the new id has the form of the old one.
        return "".join(str((int(c) + 3) % 10) if c.isdecimal() else c for c in value)
    return f"{value}-qx7"


def _merged(several: Iterator[dict[str, Any]]) -> dict[str, Any]:
    return {key: value for one in several for key, value in one.items()}


def _replaced(value: Any, fresh: Mapping[str, Any]) -> Any:
    """Return a value with fresh values, also inside of texts and as keys."""
    texts = [key for key in fresh if information(key) >= ENOUGH]
    pattern = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
    inside = re.compile(rf"(?<![A-Za-z0-9])(?:{pattern})(?![A-Za-z0-9])") if pattern else None
    return _mapped(value, lambda one: _swapped(one, fresh, inside))


def _swapped(value: Any, fresh: Mapping[str, Any], inside: re.Pattern[str] | None) -> Any:
    found = fresh.get(text_key(value))
    if found is not None:
        # A number of a request in words is a text there, and a number in calls.
        return found if isinstance(value, bool) else type(value)(found)
    if isinstance(value, str) and inside is not None:
        return inside.sub(lambda match: str(fresh[match.group()]), value)
    return value


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {str(change(key)): _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    return change(value)
