"""Plan of a learnt routine: its effects, where each of their values lives, and what it reads."""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from em.errors import RoutineError
from em.runner.agreement import INPUTS, names_in_expression, names_of_value
from em.runner.run import PendingPrompt
from em.values.canonical import Json, short

if TYPE_CHECKING:
    from em.runner.mentions import Span, Words

EARLIER = "earlier"
"""The input that holds the calls before the request: each with `tool`, `args` and `result`."""

TASKS = "tasks"
"""The input that names several effects with their values, instead of words."""

_VERBS = (
    "modify change update edit adjust alter correct",
    "cancel void revoke rescind annul",
    "return refund",
    "exchange swap replace switch trade",
    "create add open make new",
    "delete remove erase",
    "send mail forward",
    "book reserve",
    "start begin initiate launch activate ignite",
    "buy purchase acquire procure",
    "show display view list see",
)
"""Verbs that ask for the same."""


class Slot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A value of an effect: where it lives, and how words choose it.

    records: the list or mapping that it is chosen from. key: where a record holds the value; empty
    if it is the value itself, `@` for the key of a mapping. many: several are chosen.
    of: the slot for each of whose records this one has a value; that record is called `item`.
    like: the field of a record that equals that of `item`, but for what the words want changed.
    must: by field, what the chosen record may have there, as when it was recorded. fields: those
    that chosen records had. Another one that is a flag, a state or a number may matter.
    among: further lists that must hold the value. values: those that were recorded, if they are
    few. examples: what it looks like. default: what it is if the words don't say.
    whole: words that mean all of the list, or all but the named ones, as `all` and `all except`.

    Of a form also: looks: how it stands in words (a quote, a number). cues: words beside it, as
    `to …` or `… shares`; cued: one must be there. behind: words of which one stood before each
    recorded value, as `to`, and must again where something has an effect, unless the value stands
    directly behind the verb. aliases: by a name in
    the words, the value that it stood for. means: by value as JSON, the words that say it.
    strange: what is a value of something else. secret: recordings don't hold it, so only a word of
    its name beside it tells it.
    earlier: where the last call of a tool before the request held it, as
    `place_order.result.order_id`. when: words that tell that it is not said, but read or known
    from earlier calls. same: the `effect.value` that it always equalled. optional: some tasks did
    without it.
    """

    records: str = ""
    key: str = ""
    many: bool = False
    of: str = ""
    like: str = ""
    must: dict[str, list[Any]] = {}
    fields: Sequence[str] = ()
    among: Sequence[str] = ()
    values: Sequence[Any] = ()
    examples: Sequence[Any] = ()
    default: Sequence[str] = ()
    whole: Sequence[str] = ()
    looks: Sequence[str] = ()
    cues: Sequence[str] = ()
    cued: bool = False
    behind: Sequence[str] = ()
    aliases: dict[str, Any] = {}
    means: dict[str, list[str]] = {}
    strange: Sequence[str] = ()
    secret: bool = False
    earlier: Sequence[str] = ()
    when: Sequence[str] = ()
    same: str = ""
    optional: bool = False


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A read that is made after an effect, because agents looked there whether all went well.

    args: values of the effect by name, or of its `result`, as `{{ order_id }}`.
    shows: what must hold, in expressions over its own `result` and the values of the effect.
    """

    tool: str
    args: Json = {}
    shows: Sequence[str] = ()

    def without(self, missing: Collection[str]) -> "Check":
        """Return what can be checked where an effect is made without some of its values."""
        if not set(names_of_value(self.args)).isdisjoint(missing):
            return msgspec.structs.replace(self, shows=())
        shows = [one for one in self.shows if names_in_expression(one).isdisjoint(missing)]
        return msgspec.structs.replace(self, shows=shows)


class Effect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A call with an effect: its values, and the words that ask for it.

    after: effects that came before this one in every trace that had both.
    expects: what its result must be like, as when it was recorded.
    checks: what is read after it, and must show it.
    reasons: by guard, with which error the call failed where it did not hold.
    reads: it changes nothing, and its result is the answer to the request.
    each: the value of which one sentence may name several, each for a call of its own, as in a
    trace; empty if none did.
    apart: the values that no two calls of a task shared, as the id of what they change.
    thing: the value that says what it changes; empty if none does. beside: the other effects that
    may follow on the same thing: a trace had both, or what it returns has the states they need.
    """

    tool: str
    reads: bool = False
    words: Sequence[str] = ()
    slots: dict[str, Slot] = {}
    guards: Sequence[str] = ()
    after: Sequence[str] = ()
    expects: Sequence[str] = ()
    each: str = ""
    apart: Sequence[str] = ()
    thing: str = ""
    beside: Sequence[str] = ()
    checks: Sequence[Check] = ()
    reasons: dict[str, str] = {}


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A read that is made when something needs it: `order(order_id)`."""

    tool: str
    args: Json = {}
    given: Sequence[str] = ()


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An input of reads, such as who it is about: what it looks like."""

    examples: Sequence[Any] = ()


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Effects that every task of a kind had, so that free words only fill in their values.

    always: the effects, in their order. words: stems that asked for them; one must be there.
    hints: stems that some tasks had, which is enough if the words also say a value.
    harmless: words and names that stood in tasks without changing anything. once: what of these
    only one task had, so that others must not see it.
    """

    always: Sequence[str] = ()
    words: Sequence[str] = ()
    hints: Sequence[str] = ()
    harmless: Sequence[str] = ()
    once: Sequence[str] = ()


class Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How recorded requests were put together, without their values.

    turns: small words, signs and values that stood side by side in what asks for an effect, as
    `to <date>`; `WORD` is any other word. talk: the sentences before it, as `i live in NAME`.
    Of a form with an effect, a turn are all sentences of a request that ask or have a value, as
    `i lost <card> | block it`, and talk are the others.
    once: turns with a word that only one task had, so that others must not see it.
    """

    turns: Sequence[str] = ()
    talk: Sequence[str] = ()
    once: Sequence[str] = ()


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a kind of task does, and what it needs to know.

    reads: by name, the reads; where there are several ways to one result, those that can be made
    must agree. inputs: what reads need that no other read gives. form: how free words are read.
    signs: those that recorded requests had outside of values, beside ordinary punctuation, each
    with what it stood between (see `em.runner.signs`).
    wording: how requests were put together; another one is asked about.
    """

    effects: dict[str, Effect] = {}
    reads: dict[str, list[Read]] = {}
    inputs: dict[str, Known] = {}
    form: Form | None = None
    signs: Sequence[str] = ()
    wording: Wording = Wording()

    def reads_for(self, effect: Effect) -> set[str]:
        """Return the tools that are called before an effect: for its values and its guards."""
        text, names = msgspec.json.encode(effect).decode(), set[str]()
        todo = [text]
        while todo:
            own = todo.pop()
            new = {name for name in self.reads if f"{name}(" in own} - names
            names |= new
            todo += [msgspec.json.encode(self.reads[name]).decode() for name in new]
        return {read.tool for name in names for read in self.reads[name]}

    def slot_names(self) -> set[str]:
        """Return the names of all values of all effects."""
        return {name for effect in self.effects.values() for name in effect.slots}


class Unplanned(RoutineError):
    """The words or the inputs don't say enough, or not one thing only.

    inputs: those that are missing. Otherwise other words may help.
    """

    code = "unplanned"

    def __init__(self, message: str, inputs: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.inputs = tuple(inputs)

    def question(self, request: str) -> PendingPrompt:
        """Return what a person is asked: the missing inputs, or the request in other words."""
        names = list(dict.fromkeys(self.inputs)) or [request]
        labels = [f"{names[0]}: {self.message}", *names[1:]]
        fields = [
            {"name": name, "type": "text", "label": label}
            for name, label in zip(names, labels, strict=True)
        ]
        message = f"Before anything is done: {self.message}."
        return PendingPrompt(step_id=INPUTS, message=message, fields=fields)


class NeedsRead(BaseException):
    """A plan needs the result of a read that was not made yet.

    It passes through everything that looks at errors of expressions.
    """

    def __init__(self, tool: str, args: Json) -> None:
        super().__init__(tool)
        self.tool, self.arguments = tool, args


FAILED_READ = {"em": "failed"}
"""Stands for the result of a read that failed."""


class Results:
    """The results of the reads that a plan has made so far."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, need: NeedsRead, value: Any) -> None:
        """Take the result of a read."""
        self._known[_key(need.tool, need.arguments)] = value

    def of(self, tool: str, args: Json) -> Any:
        """Return the result of a read.

        Raises NeedsRead if it was not made, and EmError if it failed.
        """
        key = _key(tool, args)
        if key not in self._known:
            raise NeedsRead(tool, args)
        value = self._known[key]
        if value == FAILED_READ:
            raise Unplanned(f"{tool} found nothing for {short(args)}")
        return value


def _key(tool: str, args: Json) -> str:
    return f"{tool} {msgspec.json.encode(args, order='sorted').decode()}"


class EffectCall(NamedTuple):
    """One effect to be made."""

    effect: str
    args: Json


def secrets_in(plan: Plan, planned: Sequence[EffectCall]) -> Iterator[tuple[str, Any]]:
    """Yield the values of effects that must not be shown, with their names."""
    for one in planned:
        for name, slot in plan.effects[one.effect].slots.items():
            if slot.secret and name in one.args:
                yield name, one.args[name]


def asks_for(effect: Effect, text: str) -> bool:
    """Return whether a text has a word that asks for an effect."""
    from em.runner.mentions import analysed, stem

    stems = asking_stems(tuple(effect.words))
    return any(stem(word) in stems for _, word in analysed(text).plain())


def asking(effect: Effect) -> Iterator[str]:
    """Yield the words that ask for an effect, with verbs that mean the same."""
    return _alike(effect.words)


def listed(effect: Effect, name: str, words: "Words") -> "list[tuple[Span, str]]":
    """Return the ids that words ask an effect for, one after the other: `cancel #W1 and #W2`.

    name: the value that they are. Only words of the value's name may stand between the verb and
    the first id. Behind the last one no sentence of its own may begin: `cancel #W1 and #W2 is too
    late`. It is empty if there is no such list, or there are two.
    """
    from em.runner.mentions import FUNCTION_WORDS, enumerations, stem

    lists = enumerations(words)
    if len(lists) != 1:
        return []
    start = lists[0][0][0].start
    stems = asking_stems(tuple(effect.words))
    before = [stem(word) for span, word in words.plain() if span.end <= start]
    verb = max((n for n, word in enumerate(before) if word in stems), default=-1)
    own = {stem(word) for word in re.findall(r"[a-z]+", name.lower())}
    is_next = verb >= 0 and {*before[verb + 1 :]} <= own.union(map(stem, _OWNERS))
    end = lists[0][-1][0].end
    after = [word for span, word in words.plain() if span.start >= end]
    behind = next((word for word in after if word not in ("too", "please")), "")
    is_last = behind not in FUNCTION_WORDS or behind in _BEHIND_LISTS
    return lists[0] if is_next and is_last else []


_BEHIND_LISTS = frozenset("because since due for to via using thanks thank".split())
_OWNERS = ("my", "our", "the")


@lru_cache(maxsize=1000)
def asking_stems(words: tuple[str, ...]) -> frozenset[str]:
    """Return the stems of words that ask for an effect, and of verbs that mean the same."""
    from em.runner.mentions import stem

    return frozenset(stem(word) for word in _alike(words))


def _alike(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        yield word
        for verbs in _VERBS:
            alike = verbs.split()
            if word in alike:
                yield from alike
