"""Prompt: the values that the prompts of sessions say and their effects use, as typed inputs.

Sessions have only prompts. A value that stands in each prompt and, at the same place, in what each
session did for it is an input, whatever the words around it are. It is named after what it feeds.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from em.compiler.alignment import Column, Span, cut, explained, pieces_of, places_of
from em.compiler.calls import identifier
from em.compiler.file_changes import EDIT
from em.compiler.sessions import Sessions, gone
from em.compiler.term import unused
from em.runner.expressions.functions import kind_of, part_of
from em.text.terms import STOP_WORDS
from em.values.leaves import texts

PLAIN = ("name", "note")
"""Names that say no more than what a value looks like."""
LONGEST = 500
"""Characters of a value that a prompt says."""
_KEY = re.compile(r"([A-Za-z][A-Za-z_]*?)_*[\"'`]?[ \t]*[:=][ \t]*[\"'`]?\Z")
"""Matches the key that stands before a value: `__version__ = "`."""
_BEFORE = re.compile(r"\s([a-z]+):?\s+[\"'`]?\Z", re.IGNORECASE)
"""Matches the word before a value, not the first one: that is what to do."""
_WORD = re.compile(r"[\w.+/@:#~-]*\w")
"""A word of a prompt; an address of mail is one."""
_VERSION = re.compile(r"v?\d+(?:\.\d+)+\S*")
_FILE = re.compile(r"\S*/\S*|\S+\.[a-z]\w{0,4}")


def inputs_of(found: Sessions, *, are_whole: bool) -> dict[str, tuple[str, ...]]:
    """Return the inputs that prompts say, by name, with their values in each session.

    are_whole: each with all that stands around it in one word of every prompt: `PROJ-117`, though
    only the number differs.
    """
    columns: dict[tuple[str, ...], None] = {}
    for number, effect in enumerate(found.effects[0]):
        for arg in effect.args:
            values = [own[number].args.get(arg) for own in found.effects]
            if all(isinstance(one, str) for one in values) and len({*values}) > 1:
                for column in _said([str(one) for one in values], found.prompts):
                    columns[_whole(column, found.prompts) if are_whole else column] = None
    longest = sorted(columns, key=lambda column: _rank(column, found.prompts))
    left = [*longest]
    for one in longest:
        if _is_made(one, left):
            left.remove(one)
    taken: list[list[Span]] = [[] for _ in found.prompts]
    return _named([one for one in left if _is_apart(one, found.prompts, taken)], found)


def _rank(column: tuple[str, ...], prompts: Sequence[str]) -> tuple[int, int]:
    """Return the order of values: the longest first, then those that are said to the letter."""
    pairs = zip(column, prompts, strict=True)
    return -sum(map(len, column)), -sum(bool(places_of(prompt, one)) for one, prompt in pairs)


def _is_apart(column: tuple[str, ...], prompts: Sequence[str], taken: Sequence[list[Span]]) -> bool:
    """Return whether values stand in the prompts beside longer ones, and take their places."""
    rows = zip(column, prompts, taken, strict=True)
    spans = [said_at(value, prompt, own) for value, prompt, own in rows]
    if not all(spans):
        return False
    for own, more in zip(taken, spans, strict=True):
        own.extend(more)
    return True


def _said(values: Sequence[str], prompts: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the columns of texts that stand in the prompts."""
    seen: dict[tuple[str, ...], None] = {}

    def explain(column: Column) -> Column | None:
        pairs = zip(column.values, prompts, strict=True)
        if len({*column.values}) > 1 and all(is_said(one, prompt) for one, prompt in pairs):
            seen[column.values] = None
            return column
        return None

    # What is not said does not matter here.
    explained(pieces_of(values), explain, _are_words, lambda column: column)
    yield from seen


def _whole(column: tuple[str, ...], prompts: Sequence[str]) -> tuple[str, ...]:
    """Return values with what stands around them in their word, if it is the same everywhere."""
    sides = set()
    for value, prompt in zip(column, prompts, strict=True):
        start, stop = said_at(value, prompt)[0]
        words = [one.span() for one in _WORD.finditer(prompt)]
        first = max((one for one, _ in words if one <= start), default=start)
        last = min((one for _, one in words if one >= stop), default=stop)
        sides.add((prompt[first:start], prompt[stop:last]))
    before, after = sides.pop()
    return column if sides else tuple(f"{before}{value}{after}" for value in column)


def _are_words(text: str) -> bool:
    """Return whether a text that all share may be inside a value that people say."""
    return "\n" not in text and all(sign.isalnum() or sign.isspace() for sign in text)


def is_said(value: str, prompt: str) -> bool:
    """Return whether a value stands in a prompt as words of its own.

    A sentence begins with a capital, wherever its words stood in the prompt.
    """
    if not value.strip() or value != value.strip() or "\n" in value or len(value) > LONGEST:
        return False
    return bool(said_at(value, prompt))


def said_at(value: str, prompt: str, taken: Sequence[Span] = ()) -> list[Span]:
    """Return where a prompt says a value, beside what is taken."""
    for one in (value, value[0].lower() + value[1:], value[0].upper() + value[1:]):
        found = places_of(prompt, one, taken)
        if found:
            return found
    return []


def _is_made(column: tuple[str, ...], columns: Sequence[tuple[str, ...]]) -> bool:
    """Return whether a column is made of others, with the same signs around and between.

    Inputs that always moved together are one.
    """
    others = [one for one in columns if one != column]
    rows = []
    for number, value in enumerate(column):
        known = {one[number]: str(at) for at, one in enumerate(others) if one[number]}
        rows.append([f"\0{known[one]}" if is_it else one for one, is_it in cut(value, known)])
    return all(row == rows[0] for row in rows) and any(part.startswith("\0") for part in rows[0])


# --- names ----------------------------------------------------------------------------------------


def _named(columns: Sequence[tuple[str, ...]], found: Sessions) -> dict[str, tuple[str, ...]]:
    wanted = {column: name_of(column, found) for column in columns}
    for column, name in [*wanted.items()]:
        if column in found.names:
            continue
        old = _replaced_by(column, found)
        if name in PLAIN and old in wanted:
            wanted[column] = f"new_{wanted[old]}"
        elif name in PLAIN:
            wanted[column] = _mostly_before(column, found, 1) or name
    counts = Counter(wanted.values())
    named: dict[str, tuple[str, ...]] = {}
    for column, plain in wanted.items():
        is_known = counts[plain] == 1 or column in found.names
        name = plain if is_known else _told_apart(plain, column, found)
        named[unused(name, named)] = column
    return named


def _told_apart(name: str, column: tuple[str, ...], found: Sessions) -> str:
    """Return a name that others don't have: by what becomes of the value, or where it goes."""
    if _is_replaced(column, found):
        return f"old_{name}"
    files = {
        part_of(str(call.args["file_path"]), "stem")
        for value, own in zip(column, found.effects, strict=True)
        for call in own
        if "file_path" in call.args and any(value in text for text in texts(call.args))
    }
    return f"{name}_{identifier(files.pop())}" if len(files) == 1 else f"new_{name}"


def _replaced_by(column: tuple[str, ...], found: Sessions) -> tuple[str, ...]:
    """Return the values that an edit replaced by these; none if no edit did."""
    for number, effect in enumerate(found.effects[0]):
        if effect.name == EDIT:
            edits = [own[number].args for own in found.effects]
            texts = [(one["old_string"], one["new_string"]) for one in edits]
            if tuple(gone(new, old) for old, new in texts) == column:
                return tuple(gone(old, new) for old, new in texts)
    return ()


def _is_replaced(column: tuple[str, ...], found: Sessions) -> bool:
    """Return whether the values stood in what was replaced."""
    return any(
        all(
            value in str(own[number].args.get("old_string", ""))
            for value, own in zip(column, found.effects, strict=True)
        )
        for number in range(len(found.effects[0]))
    )


def name_of(column: tuple[str, ...], found: Sessions) -> str:
    """Name an input after the key that its value is written behind, after its looks, or after the
    word that stands before it in most prompts.
    """
    written = [[text for call in own for text in texts(call.args)] for own in found.effects]
    keys = _words_before(column, written, _KEY).most_common()
    return (
        found.names.get(column, "")
        or next((name for name, count in keys if count == len(column)), "")
        or _look(column)
        or _mostly_before(column, found, min(2, len(column)))
        or ("note" if any(" " in value for value in column) else "name")
    )


def _mostly_before(column: tuple[str, ...], found: Sessions, least: int) -> str:
    """Return the word that more prompts than any other have before the value; "" if none does."""
    said = [[one] for one in found.prompts]
    (name, count), (_, other) = (
        *_words_before(column, said, _BEFORE).most_common(2), ("", 0), ("", 0),
    )[:2]  # fmt: skip
    return name if count >= least and count > other else ""


def _words_before(
    column: tuple[str, ...], shown: Sequence[Sequence[str]], pattern: re.Pattern[str]
) -> Counter[str]:
    """Count the words that stand before the value of a session, by sessions."""
    names: Counter[str] = Counter()
    for value, own in zip(column, shown, strict=True):
        found = {
            match[1].lower().strip("_")
            for text in own
            for at, _ in places_of(text, value)
            if (match := pattern.search(text[:at].rpartition("\n")[2]))
        }
        names.update(found - STOP_WORDS)
    return names


def _look(values: Sequence[str]) -> str:
    if all(map(_VERSION.fullmatch, values)):
        return "version"
    if all(map(_FILE.fullmatch, values)):
        return "file"
    kinds = {kind_of(value) for value in values}
    return kinds.pop() if len(kinds) == 1 and not kinds & {"text", "word", "code"} else ""
