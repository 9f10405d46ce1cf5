"""Repairs: what made a failed call succeed, where the recording shows it exactly.

There are two forms. The same tool was called again, and one argument was given in another way. Or
the same call worked after the one write between, which the failed call refers to by a value. Such
a repair is said by the names of tools and arguments and by the form of values: no value of the
session is in it. Everything else, such as what a shell did, is left to somebody who can read.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import TracedCall, words_of
from em.compiler.commands import is_bookkeeping
from em.heuristics.failure import error_text
from em.runner.tools.coding import EDITORS, is_coding_tool
from em.text.terms import stems_of
from em.values.canonical import identical
from em.values.leaves import is_informative, leaves, mentioned_in

LONGEST_FORM = 40
"""Characters of a value whose form can be told."""
LONGEST_STATEMENT = 2_000
MOST_SIGNS = 2
"""Letters that a value may get or lose and still be the same one in another form."""
_INSERT = re.compile(
    r"insert\s+into\s+([\w.]+)\s*(?:\(([^()]*)\)\s*)?values\s*\((.*)\)", re.IGNORECASE | re.DOTALL
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
    values: Mapping[str, Any]
    is_insert: bool = False
    is_read: bool = False


def repairs(calls: Sequence[TracedCall]) -> Iterator[Repair]:
    """Yield the repairs of a trace."""
    for at, call in enumerate(calls):
        if call.failed and _is_readable(call) and not call.destructive:
            found = _repair(calls, at)
            if found is not None:
                yield found


def _is_readable(call: TracedCall) -> bool:
    """Tell whether names say what a call did: not that of a shell, or of a tool for files."""
    is_free = is_coding_tool(call.name) or call.name in EDITORS
    return not (call.is_udf or is_free or is_bookkeeping(call.name))


def _repair(calls: Sequence[TracedCall], at: int) -> Repair | None:
    call = calls[at]
    wrote: list[TracedCall] = []
    for later in calls[at + 1 :]:
        is_same_tool = later.name == call.name and not later.is_udf
        if is_same_tool and identical(later.args, call.args):
            return None if later.failed else _made_first(call, wrote, later)
        made = _made(later)
        if is_same_tool and not made.is_insert and not made.is_read:
            # Of several attempts, the last before the success shows the difference.
            is_known = not later.failed and not wrote
            return _given_otherwise(call, later, calls) if is_known else None
        may_have_written = not later.failed or later.effect_unknown
        if later.effect == "write" and not made.is_read and may_have_written:
            wrote.append(later)
    return None


# --- the write between ----------------------------------------------------------------------------


def _made_first(
    failed: TracedCall, wrote: Sequence[TracedCall], worked: TracedCall
) -> Repair | None:
    """Return the write between, if the failed one refers to what it wrote by a value.

    After a read that failed, the write may only have made what was to be read.
    """
    if failed.effect != "write" or len(wrote) != 1:
        return None
    if wrote[0].destructive or not _is_readable(wrote[0]):
        return None
    (write,) = wrote
    one, other = _made(failed), _made(write)
    if one.label == other.label or (write.name == failed.name and not other.is_insert):
        return None
    linked = {
        name: theirs
        for name, value in other.values.items()
        for theirs, given in one.values.items()
        if _is_link(value, given, theirs, f"{other.label} {name}")
    }
    if not linked or not all(map(_is_name, [*linked.values(), *other.values])):
        return None
    given = [f"{name} (the {theirs} of the failed call)" for name, theirs in linked.items()]
    given += [name for name in other.values if name not in linked]
    action = f"First {other.label} with {names_text(given)}, then make the same call again."
    return Repair(failed, worked, one.label, action, (one.label, other.label))


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
                return _Made(call.name, {}, is_read=True)
            found = _INSERT.fullmatch(text[:LONGEST_STATEMENT].strip().rstrip("; \n"))
            if found is not None:
                return _insert(call, *found.groups())
    values = {
        ".".join(str(part.key) for part in path if not part.in_collection): leaf
        for path, leaf in leaves(call.args)
    }
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
    row = dict(zip(names, values, strict=False)) if len(names) == len(values) else {}
    return _Made(f"{call.name} insert into {table}", row, is_insert=True)


def _is_blank(word: str) -> bool:
    return word[0] in "?%$:@"


def _number(word: str) -> Any:
    try:
        return msgspec.json.decode(word)
    except msgspec.DecodeError:
        return word


# --- another argument -----------------------------------------------------------------------------


def _given_otherwise(
    failed: TracedCall, worked: TracedCall, calls: Sequence[TracedCall]
) -> Repair | None:
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
        changed = _other_value(name, failed, worked, calls)
    if changed is None:
        return None
    said, before, after = changed
    label = f"{failed.name} {name}"
    return Repair(failed, worked, failed.name, said, (f"{label} {before}", f"{label} {after}"))


def _one_more(name: str, failed: TracedCall, *, is_new: bool) -> tuple[str, str, str] | None:
    """Return what to do about an argument that only one call has, and the two ways to call."""
    if not set(stems_of(words_of(name))) <= _said_in(failed):
        return None  # the error does not name it
    if is_new:
        return f"Give {name} too.", "left out", "given"
    return f"Leave out {name}.", "given", "left out"


def _other_value(
    name: str, failed: TracedCall, worked: TracedCall, calls: Sequence[TracedCall]
) -> tuple[str, str, str] | None:
    """Return what to do about a value that was wrong, and the two ways to give it."""
    old, new = failed.args[name], worked.args[name]
    if not _is_about(name, old, failed):
        return None
    forms = _types(old, new) or _forms(old, new)
    if forms is not None:
        return f"Give {name} as {forms[1]}, not as {forms[0]}.", *forms
    source = _source(old, new, worked, calls)
    return (f"Take {name} from what {source} returns.", "made up", source) if source else None


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
    if max(len(old), len(new)) > LONGEST_FORM:
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


def _source(old: Any, new: Any, call: TracedCall, calls: Sequence[TracedCall]) -> str:
    """Return the tools that had returned the values which took the place of made-up ones."""
    wrong, right = (
        {leaf for _, leaf in leaves(one)} - {leaf for _, leaf in leaves(other)}
        for one, other in ((old, new), (new, old))
    )
    if not wrong or not right or not all(map(is_informative, right)):
        return ""
    before = [one for one in calls[: call.index] if not one.failed]
    is_known = any(
        mentioned_in(leaf, call.said) or any(_holds(one.result, leaf) for one in before)
        for leaf in wrong
    )
    found = {one.name for one in before if all(_holds(one.result, leaf) for leaf in right)}
    return "" if is_known else " or ".join(sorted(found))


def _holds(result: Any, wanted: Any) -> bool:
    return mentioned_in(wanted, msgspec.json.encode(result).decode())


def names_text(names: Sequence[str]) -> str:
    """Join names: `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""
