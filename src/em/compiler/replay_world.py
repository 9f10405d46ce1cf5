"""The world of a recording: it answers the calls of a routine as the recorded ones were answered.

A read is answered with what the same call returned at that point of the recording. A write has no
effect: it is noted, and answered if it is the next recorded one; any other write ends the run as
wrong. A read that was not recorded ends it too, and says nothing against the routine.

Proofs and shadow mode run routines here.

A policy changes a recording before it is replayed, in a way that a right routine does not notice.
One renames the words of inputs, wherever they stand: a routine that has a recorded value written
into it keeps the old word, and that shows. Words keep their case and their place in the order of
all words, so that `Ana Silva`, `ana@shop.example` and `dear-ana` still belong together.
"""

import inspect
import itertools
import re
import string
import threading
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import product
from typing import Any, Literal, NamedTuple, Self

import msgspec

from em.compiler.example import APPROVAL, Call, Example
from em.compiler.places import is_scalar
from em.errors import RoutineError
from em.runner.drivers import Effects, Wait, drive
from em.runner.machine import Machine
from em.runner.package import read_routine
from em.runner.routine import Program
from em.runner.run import PendingPrompt, Reason, RunResult
from em.runner.secrets import Secrets
from em.runner.tools import Function, Tool
from em.runner.tools.coding import FILE_CHANGES, FILE_TEXT
from em.text.slug import has_humps
from em.values.call import Effect
from em.values.canonical import Json, short
from em.values.json_schema import misfit, properties_of
from em.values.leaves import is_by_id, scalars
from em.values.times import is_date

Verdict = Literal["right", "handed over", "wrong"]


class Recording(NamedTuple):
    """What is replayed: the inputs of a task, and the calls that were made for it."""

    inputs: Json
    calls: Sequence[Call]

    @classmethod
    def of(cls, example: Example, routine: Json, asked: Json | None = None) -> Self:
        """Return an example with the inputs that a caller of this routine gives.

        asked: what inputs were that nothing explains, where that is known.

        He leaves out what it does not take. What it asks for, because nothing explains it, he
        says as it was recorded: it goes as it is into a write.
        """
        return cls.given(example.inputs, example.calls, routine, asked)

    @classmethod
    def given(
        cls, inputs: Json, calls: Sequence[Call], routine: Json, asked: Json | None = None
    ) -> Self:
        """Return the same, of inputs and calls."""
        schema = routine.get("input_schema") or {}
        is_open = schema.get("additionalProperties") is not False
        taken = properties_of(schema)
        given = {name: one for name, one in inputs.items() if is_open or name in taken}
        given |= asked or {}
        for name in schema.get("required", ()):
            if name in given:
                continue
            found = [*_written(name, routine["steps"], calls), *_named(name, calls)]
            if found:
                given[name] = found[0]
        return cls(given, calls)


def _written(name: str, steps: Sequence[Json], calls: Sequence[Call]) -> Iterator[Any]:
    """Yield what was written where a routine writes an input as it is."""
    for step in steps:
        yield from _written(name, step.get("steps", ()), calls)
        for argument, value in step.get("args", {}).items():
            if value == f"{{{{ {name} }}}}":
                yield from (
                    call.args[argument]
                    for call in calls
                    if call.tool == step.get("tool") and call.error is None
                    if argument in call.args
                )


def _named(name: str, calls: Sequence[Call]) -> Iterator[Any]:
    """Yield the arguments of writes that an input is named after."""
    for call in calls:
        for argument, value in call.args.items():
            if call.effect == "write" and name in (argument, f"{call.tool}_{argument}"):
                yield value


class Outcome(NamedTuple):
    """How a run compares with the recording.

    is_unrecorded: it needed a read that the recording does not have.
    """

    verdict: Verdict
    reason: str = ""
    is_unrecorded: bool = False


def program_of(routine: Json) -> Program:
    """Return a learnt document as a program that runs."""
    return Program(read_routine(routine, str(routine.get("name", "routine"))))


class Ended(RoutineError):
    """A run in a recorded world is over."""

    code = "recording_ended"


class NotReproduced(RoutineError):
    """A replay differs from what was recorded."""

    code = "not_reproduced"


class World:
    """The world of one recording, for one run.

    in_any_order: writes may come in any. key: by which the arguments of two writes are compared.
    made: the calls of the run and the questions that it asked, in their order. acted: the ids of
    the steps that wrote.
    """

    def __init__(
        self,
        inputs: Json,
        calls: Sequence[Call],
        *,
        in_any_order: bool = False,
        key: Callable[[Json], bytes] | None = None,
    ) -> None:
        self.inputs, self.calls = inputs, calls
        self._key = key or _key
        self._in_any_order = in_any_order
        self._asked = [call.result for call in calls if call.tool == APPROVAL]
        acts = [call.effect == "write" and call.error is None for call in calls]
        self._left = [
            call
            for call, is_act in zip(calls, acts, strict=True)
            if is_act and call.tool != APPROVAL
        ]
        self._made = 0
        # By tool and arguments: the reads, and how many writes had been made before each.
        self._reads: dict[tuple[str, bytes], list[tuple[Call, int]]] = defaultdict(list)
        for call, moment in zip(calls, [0, *itertools.accumulate(acts)], strict=False):
            if call.effect == "read":
                self._reads[call.tool, _key(call.args)].append((call, moment))
        self._end: Outcome | None = None
        self._lock = threading.Lock()
        self.made: list[Call] = []
        self.acted: set[str] = set()
        self._step = ""
        # What the last run returned and saved by name, and the check that it handed over at.
        self.output: Any = None
        self.saved: Json = {}
        self.reason: Reason | None = None

    def run(
        self,
        program: Program,
        functions: Mapping[str, Function] | None = None,
        *,
        writes: Collection[str] | None = None,
        secrets: Secrets | None = None,
    ) -> Outcome:
        """Run a routine here, and compare what it did with the recording.

        functions: computed where the recording does not have the same call. writes: the tools and
        functions with an effect, if it is known better than the routine and the recording say.
        """
        acting = {call.tool for call in self.calls if call.effect == "write"}
        acting |= {step.target for step in program.steps if step.is_write and step.target}
        acting = acting if writes is None else {*writes}
        names = program.tool_names | {call.tool for call in self.calls}
        stand_ins = {name: self._stand_in(name, is_write=name in acting) for name in names}
        own = {**dict.fromkeys(program.udf_names), **(functions or {})}
        machine = Machine(
            program,
            run_id="proof",
            tools={name: Tool(name, function) for name, function in stand_ins.items()},
            udfs={
                name: self._function(name, real, is_write=name in acting)
                for name, real in own.items()
            },
            ask=self._answer,
            on_start=self._start,
            secrets=secrets,
        )
        result = drive(_without_pauses(machine.run(self.inputs)))
        self.output, self.saved, self.reason = result.output, result.context, result.reason
        return self.outcome("" if result.status == "ok" else _why_stopped(result))

    def close(self) -> None:
        """Let go of what a world holds outside of this process."""

    def _start(self, step_id: str) -> None:
        self._step = step_id

    def _answer(self, pending: PendingPrompt) -> Json | None:
        """Answer a question as the person did; None if nobody was asked."""
        fields = [field["name"] for field in pending.fields]
        is_question = bool(self._asked) and fields == [*self._asked[0]]
        answer: Json | None = self._asked.pop(0) if is_question else None
        self.made.append(Call(APPROVAL, {"message": pending.message}, answer, effect="write"))
        return answer

    def _stand_in(self, name: str, *, is_write: bool) -> Function:
        def call(**args: Any) -> Any:
            found = self.take(name, args, is_write=is_write)
            if found.error is not None:
                raise RuntimeError(str(found.error))
            return found.result

        return call

    def _function(self, name: str, real: Function | None, *, is_write: bool) -> Function:
        """Return a function of the routine: what was recorded counts, the rest is computed.

        One with an effect is never called.
        """
        recorded = self._stand_in(name, is_write=is_write)

        def call(*positional: Any, **args: Any) -> Any:
            # Only an expression calls a function with positional arguments.
            is_new = bool(positional) or self.find(name, args, is_write=is_write) is None
            if real is None or is_write or not is_new:
                return recorded(**args)
            found = real(*positional, **args)
            if not inspect.iscoroutine(found):
                return found
            import asyncio

            return asyncio.run(found)

        return call

    def find(self, name: str, args: Json, *, is_write: bool) -> Call | None:
        """Return the recorded call that is the same as this one; None if there is none.

        Of several reads, the one that was made after as many writes counts, or the nearest to that.
        One that failed and was made again counts only where no other was made.
        """
        if not is_write:
            found = self._reads.get((name, _key(args)), [])
            best = min(found, key=self._rank, default=None)
            return None if best is None else best[0]
        key = self._key(args)
        following = self._left if self._in_any_order else self._next()
        # One that failed was refused, and had no effect.
        failed = (call for call in self.calls if call.error is not None)
        same = (
            call
            for call in itertools.chain(following, failed)
            if call.tool == name and self._key(call.args) == key
        )
        return next(same, None)

    def take(self, name: str, args: Json, *, is_write: bool) -> Call:
        """Return the same, and note that it was made. Raise Ended if there is none."""
        with self._lock:
            if self._end is not None:
                raise Ended(self._end.reason)
            self.made.append(Call(name, args, effect="write" if is_write else "read"))
            found = self.find(name, args, is_write=is_write)
            if found is None and is_write:
                raise self._over(Outcome("wrong", self._difference(name, args)))
            if found is None:
                raise self._over(Outcome("handed over", self._unknown(name, args), True))
            if is_write and found.error is None:
                self._left.remove(found)
                self._made += 1
                self.acted.add(self._step)
            self.made[-1] = self.made[-1]._replace(result=found.result, error=found.error)
            return found

    def _rank(self, read: tuple[Call, int]) -> tuple[int, int, bool]:
        """Rank a read by when it was made: now, else before, else later."""
        call, moment = read
        side = 0 if moment == self._made else 1 if moment < self._made else 2
        return side, abs(moment - self._made), call.error is not None

    def _next(self) -> list[Call]:
        """Return the writes that may come next: changes of files in a row have no order."""
        files = [*itertools.takewhile(lambda call: call.tool in FILE_CHANGES, self._left)]
        return files or self._left[:1]

    def _over(self, outcome: Outcome) -> Ended:
        self._end = outcome
        return Ended(outcome.reason)

    def _unknown(self, name: str, args: Json) -> str:
        """Say which read was not made."""
        return f"{name}({short(args)}) was not recorded"

    def _difference(self, name: str, args: Json) -> str:
        """Say how a write differs from the recorded ones."""
        same = [call for call in self._left if call.tool == name]
        if not same:
            return f"it would have called {name} with {short(args)}; that was not recorded"
        recorded = same[0].args
        names = [one for one in {**recorded, **args} if recorded.get(one) != args.get(one)]
        if not names:
            return f"it would have called {name} before {self._left[0].tool}"
        now = {one: args.get(one) for one in names}
        then = {one: recorded.get(one) for one in names}
        return f"it would have called {name} with {short(now)}; recorded is {short(then)}"

    def outcome(self, stopped: str, *, goes_on: bool = False) -> Outcome:
        """Return how the run compares with the recording.

        stopped: why the run stopped before its end, "" if it did not. goes_on: somebody goes on
        where it stopped, so nothing stays half done.
        """
        if self._end is not None:
            return self._end
        left = ", ".join(call.tool for call in self._left)
        if not stopped:
            return (
                Outcome("wrong", f"it would not have called {left}") if left else Outcome("right")
            )
        if self._made and left and not goes_on:
            return Outcome("wrong", f"it would have stopped before {left}: {stopped}")
        return Outcome("handed over", stopped)


class InTurn(World):
    """The world of another run: calls are answered one after the other, whatever they ask."""

    def __init__(self, inputs: Json, log: Sequence[Call]) -> None:
        super().__init__(inputs, [call for call in log if call.tool == APPROVAL])
        self._log = [call for call in log if call.tool != APPROVAL]

    def take(self, name: str, args: Json, *, is_write: bool) -> Call:
        """Return the next call of the other run, if it was of the same tool."""
        if not self._log or self._log[0].tool != name:
            raise self._over(Outcome("handed over", f"it calls {name} out of turn"))
        found = self._log.pop(0)
        effect: Effect = "write" if is_write else "read"
        self.made.append(found._replace(args=args, effect=effect))
        return found


def _why_stopped(result: RunResult) -> str:
    for why in (result.reason, result.pending_prompt, result.failure):
        if why is not None:
            asks = "it would have asked: " if why is result.pending_prompt else ""
            return f"{why.step_id}: {asks}{why.message}" if why.step_id else f"{asks}{why.message}"
    return result.status


def _without_pauses(running: Effects[RunResult]) -> Effects[RunResult]:
    """Run without the pauses between attempts."""
    try:
        effect = next(running)
        while True:
            if isinstance(effect, Wait):
                effect = running.send(None)
                continue
            try:
                outcome = yield effect
            except Exception as error:  # noqa: BLE001 - the machine decides what a failure means
                effect = running.throw(error)
            else:
                effect = running.send(outcome)
    except StopIteration as end:
        result: RunResult = end.value
        return result


# ---- comparison


_KEY = "idempotency_key"


def _key(value: Any) -> bytes:
    """Return a value as bytes that are equal for equal values: 1 is 1.0, keys have no order."""
    if isinstance(value, Mapping) and _KEY in value:  # it is another one each time
        value = {name: one for name, one in value.items() if name != _KEY}
    return msgspec.json.encode(_plain(value), order="sorted")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def unordered_key(args: Json, *, words: bool = False) -> bytes:
    """Return the same for arguments in which lists may have any order; with `words`, texts too.

    Lists of equal length that stand side by side stay pairs.
    """
    lists = {name: value for name, value in args.items() if isinstance(value, list)}
    rest: Json = {name: value for name, value in args.items() if name not in (*lists, _KEY)}
    if len(lists) > 1 and len({len(value) for value in lists.values()}) == 1:
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        lists = {"": rows}
    return _key(_unordered({**rest, **lists}, words))


def _unordered(value: Any, words: bool) -> Any:
    if isinstance(value, Mapping):
        return {name: _unordered(one, words) for name, one in value.items()}
    if isinstance(value, list):
        return sorted((_unordered(one, words) for one in value), key=_key)
    return sorted(re.findall(r"\w+", value)) if words and isinstance(value, str) else value


# ---- policies


Policy = Callable[[Recording, Json], World]
"""Makes the world of a recording for a routine with this input schema."""


def as_recorded(recording: Recording, _schema: Json) -> World:
    """Return the world of a recording as it is."""
    return World(recording.inputs, recording.calls)


def other_order(recording: Recording, _schema: Json) -> World:
    """Return a world whose reads return keys and lists of records in another order."""
    calls = [
        call._replace(result=_turned(call.result))
        if call.effect == "read" and call.tool != FILE_TEXT
        else call
        for call in recording.calls
    ]
    # Texts may be made of lists, too.
    key = partial(unordered_key, words=True)
    return World(recording.inputs, calls, in_any_order=True, key=key)


def fresh_inputs(recording: Recording, schema: Json) -> World:
    """Return a world in which the values of inputs are others, wherever they stand.

    Values that the routine lists one by one, or whose words it knows, stay: it takes no others.
    """
    values = [*_free_values(recording.inputs, schema)]
    beside = [recording.inputs, [[call.args, call.result] for call in recording.calls]]
    new = Renaming(values, beside)
    calls = [
        call._replace(args=new.of(call.args), result=new.of(call.result))
        for call in recording.calls
    ]
    return World(new.of(recording.inputs), calls)


POLICIES: Mapping[str, Policy] = {
    "as recorded": as_recorded,
    "other order": other_order,
    "fresh inputs": fresh_inputs,
}


def _turned(value: Any) -> Any:
    """Return a value with its keys and lists of records turned: every position changes."""
    if isinstance(value, Mapping):
        items = [(name, _turned(one)) for name, one in value.items()]
        return dict([*items[1:], *items[:1]])
    if isinstance(value, list):
        turned = [_turned(one) for one in value]
        return turned if any(map(is_scalar, value)) else [*turned[1:], *turned[:1]]
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            found = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value
        return msgspec.json.encode(_turned(found)).decode()
    return value


def _free_values(inputs: Any, schema: Any) -> Any:
    """Yield the scalars of inputs that may be others by their schema."""
    schema = schema if isinstance(schema, Mapping) else {}
    if isinstance(inputs, Mapping):
        for name, one in inputs.items():
            yield from _free_values(one, properties_of(schema).get(name))
    elif isinstance(inputs, list):
        for one in inputs:
            yield from _free_values(one, schema.get("items"))
    elif misfit(dict(schema), Renaming([inputs]).of(inputs)) is None:
        yield inputs


FEWEST_LETTERS = 3
FEWEST_DIGITS = 4
"""Signs of a word that is renamed: shorter ones stand everywhere by chance."""
TRIES = 5
"""Words that are tried before one more sign of the old word stays."""
MOST_TURNS = 64
"""Words that are tried for another one of the same form."""
_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]+|[^\W_]+")
"""Matches the words of a name in camel case."""


class Renaming:
    """New words for the words of some values.

    others: values that stand beside them; no new word is one of theirs.
    """

    def __init__(self, values: Iterable[Any], others: Any = None) -> None:
        taken = sorted({word.lower() for word in _words_in([others])})
        self._new: dict[str, str] = {}
        for value in values:
            for whole in _own_words(value):
                parts = [part.lower() for part in _parts(whole)]
                for word in parts:
                    if word not in self._new and len(word) >= FEWEST_LETTERS:
                        self._new[word] = _fresh(word, taken)
                        insort(taken, self._new[word])
                if len(parts) > 1:
                    self._new.setdefault(whole.lower(), "".join(map(self._text, parts)))

    def __bool__(self) -> bool:
        return bool(self._new)

    def of(self, value: Any) -> Any:
        """Return a value with the new words, in texts, in numbers of many digits and in ids."""
        if isinstance(value, dict):
            by_id = is_by_id(value)
            return {self._text(key) if by_id else key: self.of(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.of(one) for one in value]
        if isinstance(value, str):
            return value if is_date(value) else self._text(value)
        if isinstance(value, int) and str(value) in self._new:
            return int(self._new[str(value)])
        return value

    def _text(self, text: str) -> str:
        return _WORD.sub(lambda match: "".join(map(self._word, _parts(match[0]))), text)

    def _word(self, word: str) -> str:
        new = self._new.get(word.lower())
        return word if new is None else _cased(new, word)


def _parts(word: str) -> list[str]:
    """Return the words of a name in camel case; of all else the word itself."""
    return _PART.findall(word) if has_humps(word) and word.isalpha() else [word]


def _own_words(value: Any) -> list[str]:
    """Return the words of a value that tell it from others."""
    if isinstance(value, bool) or not isinstance(value, int | str) or is_date(value):
        return []
    # The host of an address is shared by many.
    own, at, _ = str(value).partition("@")
    words = _WORD.findall(own)
    numbers = [word for word in words if _digits(word) >= FEWEST_DIGITS]
    if numbers and not at:
        return numbers  # an id: what stands before its number says what it is an id of
    return [word for word in words if len(word) >= FEWEST_LETTERS and not word.isdigit()]


def _digits(word: str) -> int:
    return sum(map(str.isdigit, word))


def _words_in(values: Iterable[Any]) -> Iterable[str]:
    for value in values:
        for _, scalar in scalars(value):
            yield from _WORD.findall(str(scalar))
        yield from _keys_in(value)


def _keys_in(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _WORD.findall(str(key))
            yield from _keys_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from _keys_in(one)


def _fresh(word: str, taken: Sequence[str]) -> str:
    """Return another word of the same form; the same one each time.

    taken: words in their order. The new one stands between the same two, if one of its form does.
    Where all with the same zeros are taken, as in a list of `00001` to `00009`, zeros change too.
    Where hardly any word of the form is left, it stays as it is.
    """
    before, after = bisect_left(taken, word), bisect_right(taken, word)
    others: list[str] = []
    for kept, turn in product(range(len(word)), range(TRIES)):
        if not kept:
            others.append(_other(word, turn))
        made = word[:kept] + others[turn][kept:]
        place = bisect_left(taken, made)
        is_new = made != word and made not in taken[place : place + 1]
        if is_new and place in (before, after):
            return made
    for turn in range(TRIES, MOST_TURNS):
        made = _other(word, turn)
        place = bisect_left(taken, made)
        if made != word and made not in taken[place : place + 1]:
            return made
    return word


def _other(word: str, turn: int) -> str:
    """Return a word of the same form, another one each turn."""
    zeros = turn >= MOST_TURNS // 2
    signs = sha256(f"{turn} {word}".encode()).digest() * (len(word) // 32 + 1)
    letters = _digits(word) < FEWEST_DIGITS
    return "".join(
        _sign(*pair, letters=letters, zeros=zeros) for pair in zip(word, signs, strict=False)
    )


def _sign(old: str, chance: int, *, letters: bool, zeros: bool) -> str:
    """Return another sign. The letters of a number stay: they say what it is a number of."""
    if old.isdigit():
        return str(chance % 9 + 1) if zeros or old != "0" else "0"
    return string.ascii_lowercase[chance % 26] if letters and old.isalpha() else old


def _cased(new: str, old: str) -> str:
    if old.isupper():
        return new.upper()
    rest: Callable[[str], str] = str.lower if old[1:].islower() else str
    return new[:1].upper() + rest(new[1:]) if old[:1].isupper() else new
