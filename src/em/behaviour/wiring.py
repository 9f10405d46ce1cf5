"""Wiring: how the values of a behaviour's calls come about, as the compiler's learner says it.

Every call is one of a tool of its own with an effect, so that each is made again, in its order; the
answer is the argument of one more call. Values that the learner would ask for stay as they were,
if they were the same in all recordings. A value that a write just made comes from there, however
short it is.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from em.behaviour.task import (
    HOLE,
    as_expression,
    escaped,
    followed,
    is_plain,
    literal_text,
    reference,
)
from em.compiler.calls import Names, identifier, words_of
from em.compiler.draft import Recorded
from em.compiler.evidence import is_small
from em.compiler.example import Call
from em.compiler.places import key_of, last_name, lists_in, plain
from em.compiler.steps import read_name
from em.errors import EmError, ExpressionError
from em.runner.expressions.functions import SCOPE
from em.runner.expressions.language import compile_value, whole_expression
from em.values.canonical import Json, identical, same
from em.values.leaves import leaves

ANSWER, OUTPUT = "answer", "output"
"""The last call that the learner sees, and its argument: what the agent returned."""
MOST_VALUES = 100_000
"""Values of results; with more of them nothing is explained."""
FAILURES = (EmError, ExpressionError, ValueError, TypeError, LookupError)
_TEXT = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"


class Wired(NamedTuple):
    """What the learner says of the calls, the answer being the last of them.

    names: what each saves. args: templates. guards: checks before each. asked: values that it would
    ask for, by their call; they stand in the templates as they were.
    """

    names: list[str]
    args: list[Json]
    guards: list[list[str]]
    asked: list[list[Any]]


def learnt(recordings: Sequence[Recorded]) -> Wired | None:
    """Return what the learner says of the calls; None if that can't be replayed.

    Explanations that a person would take for granted count first.
    """
    from em.compiler.evidence import BY_PERSON, CONSTANTS_SHOWN

    values = sum(1 for one in recordings for call in one.calls for _ in leaves(call.result))
    if values > MOST_VALUES:
        return None
    cautions = (BY_PERSON, CONSTANTS_SHOWN) if len(recordings) > 1 else (BY_PERSON,)
    for caution in cautions:
        with suppress(*FAILURES, RecursionError):
            found = _learnt_with(recordings, caution)
            wired = _parsed(found.routine["steps"], found.values, recordings)
            if wired is not None and _is_proved(wired, recordings):
                return wired
    return None


def _learnt_with(recordings: Sequence[Recorded], caution: Any) -> Any:
    """Return what the learner says; what it would ask for may be a part of other values."""
    from em.compiler.learner import learn

    found = learn({"behaviour": [_example(one, {}) for one in recordings]}, caution=caution)
    asked = [ones[-1] for ones in found["behaviour"].values.values()]
    more = {
        f"asked_{number}": one
        for number, one in enumerate(asked)
        if not isinstance(one, dict | list) and not is_small(one)
        if any(isinstance(text, str) and str(one) in text and text != one for text in asked)
    }
    if more:
        found = learn({"behaviour": [_example(one, more) for one in recordings]}, caution=caution)
        values = {**found["behaviour"].values, **{name: [one] for name, one in more.items()}}
        return found["behaviour"]._replace(values=values)
    return found["behaviour"]


def _example(recording: Recorded, more: Json) -> Any:
    from em.compiler.example import Example

    given = {str(number): call.result for number, call in enumerate(recording.calls)}
    known = {key_of(one) for _, one in lists_in({**recording.inputs, "": given})}
    calls = [
        call._replace(
            tool=f"{call.tool.rpartition('.')[2]}_{number}",
            args=_spread(call.args, known),
            effect="write",
        )
        for number, call in enumerate(recording.calls)
    ]
    answer = Call(ANSWER, _spread({OUTPUT: recording.output}, known), effect="write")
    return Example({**recording.inputs, **more}, [*calls, answer])


def _spread(value: Any, known: set[Any]) -> Any:
    """Return a value in which each element of a list that nothing holds is explained by itself."""
    if isinstance(value, dict):
        return {name: _spread(one, known) for name, one in value.items()}
    if not isinstance(value, list) or not value or key_of(value) in known:
        return value
    return {f"item_{number}": _spread(one, known) for number, one in enumerate(value)}


def _gathered(template: Any, value: Any) -> Any:
    """Return the template of a value whose lists were spread."""
    if not isinstance(template, dict):
        return template
    if isinstance(value, list):
        return [_gathered(template[f"item_{n}"], one) for n, one in enumerate(value)]
    return {name: _gathered(template[name], one) for name, one in value.items()}


def _parsed(
    steps: Sequence[Json], values: Mapping[str, Sequence[Any]], recordings: Sequence[Recorded]
) -> Wired | None:
    """Return the steps of a routine by the call that they belong to.

    values: what the inputs were that it would ask for. They stay as they were; they must have been
    the same in all recordings.
    """
    made = Wired([], [], [], [])
    same_ones = {
        name: ones[-1] for name, ones in values.items() if all(same(one, ones[-1]) for one in ones)
    }
    named = {name: literal_text(value) for name, value in same_ones.items()}
    names = names_of(recordings[-1])
    saved = [step["save_as"] for step in steps if step["type"] == "tool.call"]
    if len(saved) != len(names):
        return None
    named |= dict(zip(saved, names, strict=True))
    last = recordings[-1]
    calls = [*last.calls, Call(ANSWER, {OUTPUT: last.output})]
    guards: list[str] = []
    for step in steps:
        if "when" in step or step["type"] not in ("let", "assert", "tool.call", "return"):
            return None
        if step["type"] == "let":
            named[step["save_as"]] = f"({as_expression(_inlined(step['value'], named))})"
        elif step["type"] == "assert":
            guards.append(_inlined_in(step["check"], named))
        elif step["type"] == "tool.call":
            given = _whole_answer(recordings, made.names) if step["tool"] == ANSWER else None
            args = _with_made(given or step["args"], values, recordings, made.names)
            made.names.append(names[len(made.names)])
            if followed(args, [name for name in values if name not in same_ones]):
                return None
            args = _as_recorded(args, same_ones)
            parts = sorted(followed(args, [*same_ones]))
            made.asked.append([same_ones[name] for name in parts])
            made.args.append(_gathered(_inlined(args, named), calls[len(made.args)].args))
            made.guards.append(guards)
            guards = []
    return made if not guards else None


def verbatim(recording: Recorded) -> Wired:
    """Return the calls as they are: every value is a constant."""
    args = [*(call.args for call in recording.calls), {OUTPUT: recording.output}]
    nothing: list[list[Any]] = [[] for _ in args]
    return Wired(names_of(recording), [escaped(one) for one in args], nothing, nothing)


def names_of(recording: Recorded) -> list[str]:
    """Return the name of each result, and of the answer."""
    names = Names()
    for name in recording.inputs:
        names.free(name)
    titles = [(call.tool.rpartition(".")[2], call.effect == "write") for call in recording.calls]
    found = [
        names.free(identifier(f"{title}_result" if is_write else read_name(title)))
        for title, is_write in titles
    ]
    return [*found, names.free(OUTPUT)]


def _whole_answer(recordings: Sequence[Recorded], names: Sequence[str]) -> Json | None:
    """Return the answer if it is a whole result, the newest; None if it is an input."""
    last = recordings[-1]
    if last.output is None or any(identical(one, last.output) for one in last.inputs.values()):
        return None
    for number in range(len(names) - 1, -1, -1):
        if all(identical(one.calls[number].result, one.output) for one in recordings):
            return {OUTPUT: f"{{{{ {names[number]} }}}}"}
    return None


def _with_made(
    args: Json,
    values: Mapping[str, Sequence[Any]],
    recordings: Sequence[Recorded],
    names: Sequence[str],
) -> Json:
    """Return arguments in which values that a write made come from there, however short."""

    def filled(template: Any, key: str) -> Any:
        if isinstance(template, dict):
            return {name: filled(one, str(name)) for name, one in template.items()}
        if isinstance(template, list):
            return [filled(one, key) for one in template]
        whole = whole_expression(template) if isinstance(template, str) else None
        ones = values.get(whole.strip()) if whole is not None else [template] * len(recordings)
        if ones is None or len(ones) != len(recordings):
            return template
        found = [
            reference(names[call], place)
            for call, place in _places_made(recordings[-1], ones[-1], key, len(names))
            if all(
                (call, place) in _places_made(one, value, key, len(names))
                for one, value in zip(recordings, ones, strict=True)
            )
        ]
        return f"{{{{ {found[0]} }}}}" if len(found) == 1 else template

    return {key: filled(template, key) for key, template in args.items()}


def _places_made(
    recording: Recorded, value: Any, key: str, before: int
) -> list[tuple[int, tuple[str, ...]]]:
    """Return where writes returned a value that is called like an argument.

    Where nobody knew the value before, the name of its field is enough: `id` for `order_id`.
    """
    from em.compiler.space import named_alike

    if is_plain(value) or isinstance(value, dict | list):
        return []
    writes = [n for n, call in enumerate(recording.calls[:before]) if call.effect == "write"]
    if not any(same(one, value) for n in writes for _, one in plain(recording.calls[n].result)):
        return []
    found = []
    is_known = any(same(leaf, value) for _, leaf in leaves(recording.inputs))
    for number, call in enumerate(recording.calls[:before]):
        is_known = is_known or any(same(leaf, value) for _, leaf in leaves(call.args))
        for place, one in plain(call.result) if call.effect == "write" else ():
            is_field = not is_known and {*words_of(last_name(place))} <= {*words_of(key)}
            title = call.tool.rpartition(".")[2]
            if same(one, value) and (is_field or named_alike(place, key, title)):
                found.append((number, tuple(map(str, place))))
        is_known = is_known or any(same(leaf, value) for _, leaf in leaves(call.result))
    return found


def _as_recorded(template: Any, asked: Json) -> Any:
    """Return a template in which whole values that would be asked for stand as they were."""
    if isinstance(template, dict):
        return {key: _as_recorded(one, asked) for key, one in template.items()}
    if isinstance(template, list):
        return [_as_recorded(one, asked) for one in template]
    whole = whole_expression(template) if isinstance(template, str) else None
    name = (whole or "").strip()
    return escaped(asked[name]) if name in asked else template


def _inlined(template: Any, named: Mapping[str, str]) -> Any:
    """Return a template in which expressions stand in place of names."""
    if isinstance(template, dict):
        return {key: _inlined(one, named) for key, one in template.items()}
    if isinstance(template, list):
        return [_inlined(one, named) for one in template]
    if not isinstance(template, str) or not named:
        return template
    return HOLE.sub(lambda hole: f"{{{{{_inlined_in(hole[1], named)}}}}}", template)


def _inlined_in(expression: str, named: Mapping[str, str]) -> str:
    if not named:
        return expression
    options = "|".join(map(re.escape, named))
    pattern = rf"{_TEXT}|(?<![\w.])({options})(?!\w|\s*=[^=])"
    return re.sub(pattern, lambda one: named.get(one[1], one[0]), expression)


def scopes(wired: Wired, recording: Recorded) -> Iterator[tuple[Json, Json]]:
    """Yield, call by call, the values that were known before it, and its arguments.

    Raise if a value can't be had.
    """
    scope: Json = {**SCOPE, **recording.inputs}
    calls = [*recording.calls, Call(ANSWER, {OUTPUT: recording.output})]
    for number, call in enumerate(calls):
        yield scope, call.args
        scope[wired.names[number]] = call.result


def _is_proved(wired: Wired, recordings: Sequence[Recorded]) -> bool:
    """Return whether the templates give what was recorded."""
    try:
        return all(
            identical(compile_value(wired.args[number], "")(scope), args)
            for recording in recordings
            for number, (scope, args) in enumerate(scopes(wired, recording))
        )
    except FAILURES:
        return False
