"""Repairs: what made a failed call succeed, where the recording shows it exactly.

There are two forms. The same tool was called again, and one argument was given in another way. Or
the same call worked after the one write between, which the failed call refers to by a value. Such
a repair is said by the names of tools and arguments and by the form of values: no value of the
session is in it. Everything else, such as what a shell did, is left to somebody who can read.
"""

import re
import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import TracedCall, call_key
from em.compiler.commands import is_bookkeeping
from em.heuristics.failure import LONGEST_VALUE, error_text, parts_of
from em.runner.tools.coding import EDITORS, is_coding_tool
from em.text.terms import stems_of, words_of
from em.traces.trace import Approval, Message, Trace
from em.values.canonical import identical
from em.values.leaves import is_informative, leaves, mentioned_in, texts

LONGEST_STATEMENT = 2_000
MOST_SIGNS = 2
"""Letters that a value may get or lose and still be the same one in another form."""
_INSERT = re.compile(
    r"insert\s+into\s+(?:[\w.]+\.)?([^\W\d]+)\s*(?:\(([^()]*)\)\s*)?values\s*\((.*)\)",
    re.IGNORECASE | re.DOTALL,
)
_ITEM = re.compile(r"'((?:[^']|'')*)'|([^\s,']+)")
_READS = ("select",)
_TYPES = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object"}


class Repair(NamedTuple):
    """A failed call, the call that then worked, and what to do, in words.

    leads: from what to what it leads, to find repairs that lead back.
    """

    failed: TracedCall
    worked: TracedCall
    where: str
    action: str
    leads: tuple[str, str]


class _Made(NamedTuple):
    """A call by its name, or its statement by its table, with its values by their names."""

    label: str
    values: Sequence[tuple[str, Any]]
    is_insert: bool = False
    is_read: bool = False

    @property
    def names(self) -> list[str]:
        """The names of its values."""
        return list(dict.fromkeys(name for name, _ in self.values))


def repairs(trace: Trace, calls: Sequence[TracedCall]) -> Iterator[Repair]:
    """Yield the repairs of a trace."""
    session = _Session(trace, calls)
    for call in calls:
        found = session.repair(call) if _is_readable(call) and not call.destructive else None
        if found is not None:
            yield found


def _is_readable(call: TracedCall) -> bool:
    """Tell whether names say what a call did: not that of a shell, or of a tool for files."""
    is_free = is_coding_tool(call.name) or call.name in EDITORS
    return not (call.is_udf or is_free or is_bookkeeping(call.name))


class _Session:
    """The calls of a trace by their places, so that each repair is found without reading them all.

    same: calls that are exactly alike. attempts: those of one tool that may give an argument in
    another way. writes: those that may have written.
    """

    def __init__(self, trace: Trace, calls: Sequence[TracedCall]) -> None:
        self._calls = calls
        self._same: defaultdict[bytes, list[int]] = defaultdict(list)
        self._attempts: defaultdict[str, list[int]] = defaultdict(list)
        self._writes: list[int] = []
        for call in calls:
            self._add(call)
        self._trace = trace

    def _add(self, call: TracedCall) -> None:
        made = _made(call)
        self._same[call_key(call)].append(call.index)
        if not (call.is_udf or made.is_insert or made.is_read):
            self._attempts[call.name].append(call.index)
        may_have_written = not call.failed or call.effect_unknown
        if call.effect == "write" and not made.is_read and may_have_written:
            self._writes.append(call.index)

    @cached_property
    def _seen(self) -> dict[str, dict[str, int]]:
        """The words that the agent had seen (by ""), and values by the tools that returned them.

        Each has the place of the first call that may have used it. Read when first asked for.
        """
        seen: defaultdict[str, dict[str, int]] = defaultdict(dict)
        heard = [(0, "", self._trace.mission.goal)]
        at = 0
        for event in self._trace.events:
            if isinstance(event, Message):
                heard += [(at, "", event.text)] if event.role == "user" else []
            elif not isinstance(event, Approval):
                at += 1
                found = {str(leaf) for _, leaf in leaves(event.result)}
                found.update(texts(event.result, names=True))
                heard += [(at, self._calls[at - 1].name, text) for text in found]
        for at, tool, text in heard:
            seen[text].setdefault(tool, at)
            for word in words_of(text):
                seen[word].setdefault("", at)
        return seen

    def repair(self, call: TracedCall) -> Repair | None:
        """Return what made a call succeed that failed, where the next attempt shows it."""
        again = _next(self._same[call_key(call)], call)
        other = _next(self._attempts[call.name], call)
        place = min(again, other)
        if place >= len(self._calls) or self._calls[place].failed:
            return None
        worked = self._calls[place]
        first, last = bisect_right(self._writes, call.index), bisect_left(self._writes, place)
        if again > other:
            # Of several attempts, the last before the success shows the difference.
            is_known = call.failed and first == last
            return self._given_otherwise(call, worked) if is_known else None
        if last - first != 1:
            return None
        write = self._calls[self._writes[first]]
        failed = _as_failed(call, write, worked)
        return None if failed is None else _made_first(failed, write, worked)

    def _given_otherwise(self, failed: TracedCall, worked: TracedCall) -> Repair | None:
        """Return the one argument that differs, if the error is about it."""
        old, new = failed.args, worked.args
        names = [n for n in {**old, **new} if n not in old or n not in new or old[n] != new[n]]
        if len(names) != 1 or not _is_name(names[0]):
            return None
        (name,) = names
        values = [args[name] for args in (old, new) if name in args]
        if any(isinstance(value, bool) or value is None for value in values):
            return None  # a switch: whether it may be switched, nothing here says
        if len(values) == 1:
            changed = _one_more(name, failed, is_new=name in new)
        else:
            changed = self._other_value(name, failed, worked)
        if changed is None:
            return None
        said, before, after = changed
        label = f"{failed.name} {name}"
        return Repair(failed, worked, failed.name, said, (f"{label} {before}", f"{label} {after}"))

    def _other_value(
        self, name: str, failed: TracedCall, worked: TracedCall
    ) -> tuple[str, str, str] | None:
        """Return what to do about a value that was wrong, and the two ways to give it."""
        old, new = failed.args[name], worked.args[name]
        if not _is_about(name, old, failed):
            return None
        forms = _types(old, new) or _forms(old, new)
        if forms is not None:
            return f"Give {name} as {forms[1]}, not as {forms[0]}.", *forms
        source = self._source(old, new, worked.index)
        return (f"Take {name} from what {source} returns.", "made up", source) if source else None

    def _source(self, old: Any, new: Any, at: int) -> str:
        """Return the tools that had returned the values which took the place of made-up ones."""
        wrong, right = (
            {leaf for _, leaf in leaves(one)} - {leaf for _, leaf in leaves(other)}
            for one, other in ((old, new), (new, old))
        )
        if not wrong or not right or not all(map(is_informative, right)):
            return ""
        words = [words_of(str(leaf)) for leaf in wrong]
        is_known = any(one and all("" in self._seen_by(word, at) for word in one) for one in words)
        found = set.intersection(*(self._seen_by(str(leaf), at) for leaf in right)) - {""}
        return "" if is_known else " or ".join(sorted(found))

    def _seen_by(self, text: str, at: int) -> set[str]:
        return {tool for tool, since in self._seen.get(text, {}).items() if since <= at}


def _next(places: Sequence[int], call: TracedCall) -> int:
    at = bisect_right(places, call.index)
    return places[at] if at < len(places) else sys.maxsize


# --- the write between ----------------------------------------------------------------------------


def _as_failed(call: TracedCall, write: TracedCall, worked: TracedCall) -> TracedCall | None:
    """Return a call that failed: by its error, or by what it printed; None if it did not.

    A failure that nobody marked is told by its result: made again after a write, the call returned
    another one, and the same as that write.
    """
    is_same = call.result is None or identical(call.result, worked.result)
    if call.failed or is_same or not identical(write.result, worked.result):
        return call if call.failed else None
    return msgspec.structs.replace(call, error=call.result, result=None)


def _made_first(failed: TracedCall, write: TracedCall, worked: TracedCall) -> Repair | None:
    """Return the write between, if the failed one refers to what it wrote by a value.

    After a read that failed, the write may only have made what was to be read. A tool may destroy
    something unless it says that it doesn't, or was given a plain insert: then the lesson says what
    must be there, and not to call it.
    """
    if failed.effect != "write" or write.destructive or not _is_readable(write):
        return None
    one, other = _made(failed), _made(write)
    if one.label == other.label or (write.name == failed.name and not other.is_insert):
        return None
    linked = {
        name: theirs
        for name, value in other.values
        for theirs, given in one.values
        if _is_link(value, given, theirs, f"{other.label} {name}")
    }
    if not linked or not all(map(_is_name, [*linked.values(), *other.names])):
        return None
    if other.is_insert or write.destructive is False:
        given = [f"{name} (the {theirs} of the failed call)" for name, theirs in linked.items()]
        given += [name for name in other.names if name not in linked]
        action = f"First {other.label} with {names_text(given)}."
    else:
        (name, theirs), *more = linked.items()
        if more or not _is_made_by(theirs, name, write, failed):
            return None
        action = f"First make sure that the {theirs} exists; {other.label} takes it as {name}."
    return Repair(failed, worked, one.label, action, (one.label, other.label))


def _is_made_by(theirs: str, name: str, write: TracedCall, failed: TracedCall) -> bool:
    """Tell whether `customer_id` is the `id` that `insert_customer` was given, by their names.

    The failed call may not be about a customer itself: what it makes may have had to go first.
    """
    kind = {*stems_of([*parts_of(theirs)])} - {*stems_of([*parts_of(name)])}
    of_write, of_failed = ({*stems_of([*parts_of(one.name)])} for one in (write, failed))
    return bool(kind) and kind <= of_write and kind.isdisjoint(of_failed)


def _is_link(value: Any, given: Any, theirs: str, name: str) -> bool:
    """Tell whether two values are the same one, and not by chance."""
    if isinstance(value, bool) or value is None or not identical(value, given):
        return False
    own = set(stems_of(words_of(theirs)))
    return is_informative(value) or not own.isdisjoint(stems_of(words_of(name)))


def _made(call: TracedCall) -> _Made:
    """Return a call as its statement of SQL if it has one, else as its arguments."""
    for text in call.args.values():
        if isinstance(text, str) and text.split(None, 1)[:1]:
            if text.split(None, 1)[0].lower() in _READS:
                return _Made(call.name, (), is_read=True)
            found = _INSERT.fullmatch(text[:LONGEST_STATEMENT].strip().rstrip("; \n"))
            if found is not None:
                return _insert(call, *found.groups())
    # The keys within an argument may be data: its values go by the name of the argument.
    values = [(name, leaf) for name, value in call.args.items() for _, leaf in leaves(value)]
    return _Made(call.name, values)


def _insert(call: TracedCall, table: str, columns: str | None, items: str) -> _Made:
    """Return a statement that inserts a row. Values that are given apart stand in for `?`."""
    apart = iter([leaf for value in call.args.values() if not isinstance(value, str)
                  for _, leaf in leaves(value)])  # fmt: skip
    values = [
        _number(word) if word and not _is_blank(word) else next(apart, None) if word else quoted
        for quoted, word in _ITEM.findall(items)
    ]
    names = [name.strip(' "`\n') for name in columns.split(",")] if columns else []
    names = names or [f"value {number + 1}" for number in range(len(values))]
    row = [*zip(names, values, strict=True)] if len(names) == len(values) else []
    return _Made(f"{call.name} insert into {table}", row, is_insert=True)


def _is_blank(word: str) -> bool:
    return word[0] in "?%$:@"


def _number(word: str) -> Any:
    try:
        return msgspec.json.decode(word)
    except msgspec.DecodeError:
        return word


# --- another argument -----------------------------------------------------------------------------


def _one_more(name: str, failed: TracedCall, *, is_new: bool) -> tuple[str, str, str] | None:
    """Return what to do about an argument that only one call has, and the two ways to call."""
    if not set(stems_of(words_of(name))) <= _said_in(failed):
        return None  # the error does not name it
    if is_new:
        return f"Give {name} too.", "left out", "given"
    return f"Leave out {name}.", "given", "left out"


def _is_name(name: str) -> bool:
    """Tell whether a name is one that tools give arguments, and not a key with a value in it."""
    return bool(re.fullmatch(r"[A-Za-z_][\w.\- ]*", name)) and "@" not in name


def _said_in(failed: TracedCall) -> set[str]:
    return set(stems_of(words_of(error_text(failed.error))))


def _is_about(name: str, old: Any, failed: TracedCall) -> bool:
    """Tell whether an error names an argument, with a word of it, or its value."""
    words = [word for word in words_of(name) if len(word) > 2]
    is_said = not _said_in(failed).isdisjoint(stems_of(words))
    return is_said or (isinstance(old, str) and mentioned_in(old, error_text(failed.error)))


def _types(old: Any, new: Any) -> tuple[str, str] | None:
    """Return the types of two values with the same content: text, number, list, object."""
    types = [_TYPES.get(type(value), "") for value in (old, new)]
    if types[0] == types[1] or _content(old) != _content(new):
        return None
    return types[0], types[1]


def _content(value: Any) -> list[str]:
    if isinstance(value, str):
        read = _number(value)
        return _content(read) if not isinstance(read, str) else [value]
    return sorted(f"{leaf:g}" if isinstance(leaf, int | float) else str(leaf)
                  for _, leaf in leaves(value))  # fmt: skip


def _forms(old: Any, new: Any) -> tuple[str, str] | None:
    """Return how the same value was written in two ways: `99,99` and `99.99`."""
    if not isinstance(old, str) or not isinstance(new, str):
        return None
    if max(len(old), len(new)) > LONGEST_VALUE:
        return None
    one, other = (Counter(filter(str.isalnum, text.casefold())) for text in (old, new))
    signs = [*(one - other).elements(), *(other - one).elements()]
    if not one & other or len(signs) > MOST_SIGNS or any(map(str.isdigit, signs)):
        return None
    if signs and all(any(map(str.isalpha, text)) for text in (old, new)):
        return None  # another word
    forms = _form(old, signs), _form(new, signs)
    return None if forms[0] == forms[1] else (f'"{forms[0]}"', f'"{forms[1]}"')


def _form(text: str, signs: Sequence[str]) -> str:
    """Write a value with 9 for each digit and x for each letter, except letters that are signs."""
    return "".join(
        "9" if char.isdigit()
        else char if not char.isalpha() or char.casefold() in signs
        else "X" if char.isupper() else "x"
        for char in text
    )  # fmt: skip


def names_text(names: Sequence[str]) -> str:
    """Join names: `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""
