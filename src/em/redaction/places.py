"""Secrets that stand behind a name: `password = …`, `--token …`, a column of a table.

A name ends with a word such as "password". What joins it with the value is a sign, a bracket, a
word or a blank (`JOINTS`); how the value begins tells where it ends.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from em import deadline
from em.redaction.linear import compiled, is_all
from em.redaction.patterns import (
    LONGEST_VALUE,
    NAME_WORDS,
    end_of_value,
    first_of,
    is_path,
    is_placeholder,
    is_plausible,
    is_plausible_in_words,
    is_secret_name,
)
from em.redaction.plain import Plain
from em.redaction.randomness import is_random

LONGEST_NAME = 40
_SHORT_WORDS = frozenset({"pass", "pw", "psk"})
_SHORTEST, _LONG = 3, 10
_OF_A_NAME = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_ALPHANUMERIC = _OF_A_NAME - frozenset(b"_.-")
_LETTERS = _ALPHANUMERIC - frozenset(b"0123456789")


class Found(NamedTuple):
    """Where a secret stands in the plain text, and what it is called."""

    start: int
    end: int
    name: str


class Name(NamedTuple):
    """A name that a secret may stand behind."""

    start: int
    end: int
    text: str


class Joint(NamedTuple):
    """How a name and its value are joined.

    sign: matches behind the name, up to the value.
    left: if given, it matches up to where the name begins.
    value: "quoted", "line" (all signs up to the end of the line), "bare", "element" (XML).
    rule: how a value must look: "quoted", "unquoted", "clear" (random, or letters with digits),
    "words" (the same, and a number behind "password"), "random" (as chance makes it: what joins
    it with the name is not known).
    """

    sign: str
    value: str
    rule: str
    left: str = ""
    shortest: int = 3


_QUOTE = r"(?:[rbfuRBFU@$]{0,2})(?P<quote>\\{0,3}[\"'])"
_CLOSE = r"\\{0,3}[\"'\])*_`]{0,3}"
_STRESS = r"[*_`]{0,3}"
_SPACE = r"(?:\s|\\[tnr]){0,8}"
_ASSIGN = rf"{_SPACE}(?:=>|:=|[:=]{{1,2}}|%3[AaDd]){_SPACE}"
_TYPE = r"(?:\s{0,4}:\s{0,4}|[ \t]{1,4})[A-Za-z&][\w<>\[\].?&]{0,30}[ \t]{0,4}=[ \t]{0,4}"
JOINTS = (
    # A line of an environment, with all signs up to its end.
    Joint("=", "line", "quoted", r"(?m:^)[ \t>+-]{0,8}(?:(?:export|set|ENV)[ \t]{1,4})?", 6),
    Joint(
        "[ \t]{1,4}",
        "line",
        "quoted",
        r"(?m:^)[ \t]{0,8}(?:ENV|set(?:[ \t]{1,4}-\w{1,8}){1,4})[ \t]{1,4}",
        6,
    ),
    Joint(_CLOSE + _ASSIGN + _QUOTE, "quoted", "quoted"),
    Joint(_TYPE + _QUOTE, "quoted", "quoted"),
    Joint(r"[ \t]{0,4}=[ \t]{0,4}(?P<quote>\"\"\"|''')", "quoted", "quoted"),
    Joint(r"[ \t]{0,8}:[ \t]{1,8}[|>][+-]?\d?[ \t]*\r?\n", "block", "quoted"),
    Joint(
        _STRESS + r"[ \t]{0,8}(?:[:=]|%3[AaDd])" + _STRESS + r"[ \t]{0,8}`?",
        "bare",
        "unquoted",
        shortest=6,
    ),
    Joint(r"\(\s{0,4}" + _QUOTE, "quoted", "clear"),
    Joint(r"\\{0,3}[\"']\s{0,4},\s{0,4}" + _QUOTE, "quoted", "clear"),
    Joint(r"[ =]\s{0,4}" + _QUOTE, "quoted", "quoted", r"(?:^|\s)--"),
    Joint(r"[ =]\s{0,4}", "bare", "quoted", r"(?:^|\s)--", 6),
    Joint(r"[\"']?>\s{0,8}", "element", "quoted", r"[<\"']"),
    Joint(r"</\w{1,20}>\s{0,40}<\w{1,20}>", "element", "quoted", ">"),
    Joint(_STRESS + r"[ \t]{0,40}\|[ \t]{0,8}`?", "bare", "clear", shortest=6),
    Joint(
        r"\\{0,3}[\"']?\s{0,4}(?:,|[:=]\s{0,4}\{)?\s{0,40}\\{0,3}[\"']?(?i:value)\\{0,3}[\"']?\s{0,4}[:=]\s{0,4}"
        r"\\{0,3}[\"']?",
        "bare",
        "quoted",
        r"(?i:\b(?:(?:name|key)[\"']?\s{0,4}[:=]|type=)\s{0,4}\\{0,3}[\"']?)|[{,]\s{0,40}[\"']",
        4,
    ),
    Joint(
        r"(?i)s?(?:[ \t]{1,4}for[ \t]{1,4}\S{1,60})?[ \t]{1,4}(?:is|was|to|are):?[ \t]{1,4}"
        r"(?:now[ \t]{1,4}|still[ \t]{1,4})?[\"'`]?",
        "bare",
        "words",
        shortest=6,
    ),
    Joint(
        r":?[ \t]{1,4}[\"'`]?",
        "bare",
        "words",
        r"(?i)\b(?:with|using|and|by)[ \t]{1,4}(?:the[ \t]{1,4}|this[ \t]{1,4})?",
        8,
    ),
    Joint(
        "[ \t]{1,4}",
        "bare",
        "quoted",
        r"(?i)\b(?:setx|(?:config|configure|secret|secrets)[ :]set|config-set)[ \t]{1,4}"
        r"(?:\S{0,80}[:/._-])?",
        6,
    ),
    Joint(r"\s{1,8}", "bare", "quoted", r"(?i)\blogin\s{1,8}\S{1,80}\s{1,8}", 4),
)
_NEAR = tuple(
    Joint(
        r"[^\w\n/\\]{1,8}\s{0,8}[^\w\n/\\]{0,8}" + r"(?:[A-Za-z\xff]{1,14}[^\w\n/\\]{1,6})" * words,
        "any",
        "random",
    )
    for words in range(3)
)
"""Other words, signs and languages between a name and a value."""
_FIRST = frozenset(b"\"'=:\\])<>( \t\r\n\f\v*_`,|sS;%.!?/-{\xc2\xff\xe2")
"""What may stand behind a name."""
_LEFT = 160


def names_in(plain: Plain) -> Iterator[Name]:
    """Yield the names that a secret may stand behind, each up to its last word."""
    data = plain.data
    words, at = compiled(f"(?i){NAME_WORDS}"), 0
    while found := words.search(data, at):
        deadline.check()
        word, end = found.span()
        at = word + 1
        if found.group().lower().decode() in _SHORT_WORDS and word and data[word - 1] in _LETTERS:
            continue
        if end < len(data) and data[end] not in _FIRST:
            continue
        start = word
        while start and word - start < LONGEST_NAME and data[start - 1] in _OF_A_NAME:
            start -= 1
        while start < word and start and data[start - 1] in _ALPHANUMERIC:
            start += 1
        if start and data[start - 1] in _ALPHANUMERIC:
            continue
        while start < word and data[start] in b"-.":
            start += 1
        if data[start - 1 : start] == b"\\" and data[start] in b"nrt" and start < word:
            start += 1  # in JSON, a new line is written so
        yield Name(start, end, plain.original(start, end))


def named_secrets(plain: Plain) -> Iterator[Found]:
    """Yield the secrets that stand behind a name."""
    done = 0
    for name in names_in(plain):
        if name.start < done:
            continue
        for joint in (*JOINTS, *_NEAR):
            found = _behind(plain, name, joint)
            if found is not None:
                done = found.end
                yield found
                break


def _behind(plain: Plain, name: Name, joint: Joint) -> Found | None:
    """Return the secret that is joined with a name in one way."""
    sign = compiled(joint.sign).match(plain.data, name.end)
    if sign is None:
        return None
    if joint.left:
        before = plain.data[max(0, name.start - _LEFT) : name.start]
        if compiled(f"(?:{joint.left})\\z").search(before) is None:
            return None
    if joint.value == "line" and not name.text.isupper():
        return None
    start, end = _VALUES[joint.value](plain.data, sign)
    if end - start < joint.shortest:
        return None
    if joint.value == "bare":
        in_a_url = plain.data[name.start - 1 : name.start] in (b"?", b"&")
        text = plain.original(start, end)[:LONGEST_VALUE]
        end = start + end_of_value(text, in_a_url)
        text = first_of(plain.original(start, end)) if end > start else ""
    else:
        text = plain.original(start, end)
    return Found(start, end, name.text) if _is_secret(joint.rule, name.text, text) else None


def _is_made(name: str, value: str) -> bool:
    """Return whether chance made a value that stands near a name of a secret."""
    word = compiled(f"(?i)(?:{NAME_WORDS})\\z").search(name.encode("ascii", "replace"))
    start = word.start() if word else 0
    if name[start:].lower() in _SHORT_WORDS:
        return False  # "all tests pass: build 7f3a9c…"
    # "jsonwebtoken" is a word of its own, "storePassword" and "db_token" are names of secrets.
    if start and name[start - 1].isalpha() and not name[start].isupper():
        return False
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return has_both and len(value) >= _LONG and is_random(value) and not is_path(value)


def _is_secret(rule: str, name: str, value: str) -> bool:
    if (
        len(value) < _SHORTEST
        or is_between(value)
        or is_placeholder(name, value)
        or not is_secret_name(name)
    ):
        return False
    if name.lower().endswith("token") and value.isalpha() and not is_random(value):
        return False  # type_token == "string" is code
    if rule == "random":
        return _is_made(name, value)
    if rule == "clear":
        is_name = is_secret_name(value)  # Ed25519PrivateKey
        return " " not in value and not is_name and is_plausible_in_words("", value)
    if rule == "words":
        return is_plausible_in_words(name, value)
    return is_plausible(name, value, quoted=rule == "quoted")


_BETWEEN_TEXTS = (
    r"\s*:(?:[\s\[\]{},:\d.+-]|[eE][\d+-]|null|true|false)*[,\[\]{}]\s*|\[redacted:[^\[\]]*\]"
)
"""What stands between two texts of JSON, as in `{"password:": null, "b": …}`; a marker."""


def is_between(value: str) -> bool:
    """Return whether a value is what stands between two texts, or a marker."""
    return is_all(_BETWEEN_TEXTS, value)


def _quoted(data: bytes, sign: Any) -> tuple[int, int]:
    """Return what stands between quotes, or up to the end of the line."""
    quote, start = sign.group(b"quote").decode(), sign.end()
    if len(quote) == len("'''"):
        end = data.find(quote.encode(), start)
        return start, end if end >= 0 else len(data)
    if quote[0] == "\\":
        end = compiled(f"[^\n{quote[-1]}]*").match(data, start).end()
        return start, start + len(data[start:end].rstrip(b"\\"))
    return start, compiled(rf"(?:\\.|[^\\\n{quote}])*").match(data, start).end()


def _line(data: bytes, sign: Any) -> tuple[int, int]:
    """Return all up to the end of the line, if no white space stands in it."""
    start = sign.end()
    found = compiled(r"([^\s\"'$\[]\S*)\r?(?m:$)").match(data, start)
    return (start, found.end(1)) if found else (start, start)


def _bare(data: bytes, sign: Any) -> tuple[int, int]:
    """Return all up to white space or a quote."""
    start = sign.end()
    found = compiled(r"[^\s\"'`\\]+").match(data, start)
    return (start, found.end()) if found else (start, start)


def _element(data: bytes, sign: Any) -> tuple[int, int]:
    """Return the text of an element of XML."""
    start = sign.end()
    found = compiled(r"([^<>\s][^<>]*)</").match(data, start)
    return (start, found.end(1)) if found else (start, start)


def _block(data: bytes, sign: Any) -> tuple[int, int]:
    """Return the lines of a block of YAML: those that are indented more than its name."""
    line = data[max(0, data.rfind(b"\n", 0, sign.start()) + 1, sign.start() - _LEFT) :]
    indent = len(line) - len(line.lstrip(b" \t"))
    at = end = start = sign.end()
    while at < min(len(data), start + _LONGEST_BLOCK):
        following = data.find(b"\n", at, at + LONGEST_VALUE)
        following = len(data) if following < 0 else following
        row = data[at:following]
        if row.strip() and len(row) - len(row.lstrip(b" \t")) <= indent:
            break
        if row.strip():
            end = at + len(row.rstrip())
        at = following + 1
    start += len(data[start:end]) - len(data[start:end].lstrip())
    return start, end


def _any(data: bytes, sign: Any) -> tuple[int, int]:
    """Return the next signs that a made value may have."""
    start = sign.end()
    found = compiled(r"[A-Za-z0-9][A-Za-z0-9+/=_.!@#$%^&*~-]*").match(data, start)
    return (start, start + len(found.group().rstrip(b".,!"))) if found else (start, start)


_LONGEST_BLOCK = 20_000
_VALUES: dict[str, Callable[[bytes, Any], tuple[int, int]]] = {
    "quoted": _quoted,
    "line": _line,
    "bare": _bare,
    "element": _element,
    "any": _any,
    "block": _block,
}
_TITLE = r"[ \t\"'*`]*[A-Za-z_][\w .#/()-]{0,40}[ \t\"'*`\r]*"
_RULER = r"[ \t|:+-]*-[ \t|:+\r-]*"
_DRESS = b" \t\"'*`\r"
SEPARATORS = (b"|", b"\t", b",", b";")


def column_secrets(plain: Plain) -> Iterator[Found]:
    """Yield the secrets in the columns of tables whose heading is a secret's name."""
    lines = plain.data.split(b"\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    number = 0
    while number < len(lines) - 1:
        deadline.check()
        title, number = number, number + 1
        for separator in SEPARATORS:
            columns = _columns(lines, title, separator)
            if not columns:
                continue
            count = lines[title].count(separator)
            while number < len(lines) and lines[number].count(separator) == count:
                at = starts[number]
                for column, cell in enumerate(lines[number].split(separator)):
                    value = cell.strip(_DRESS)
                    start = at + cell.find(value)
                    end, name = start + len(value), columns.get(column, "")
                    is_word = bool(name and value) and not compiled(r"\s").search(value)
                    if is_word and _is_secret("quoted", name, plain.original(start, end)):
                        yield Found(start, end, name)
                    at += len(cell) + 1
                number += 1
            break


def _columns(lines: list[bytes], title: int, separator: bytes) -> dict[int, str]:
    """Return the columns with secrets of a table that begins in a line, by their number."""
    line = lines[title]
    count = line.count(separator)
    if not count or len(line) > LONGEST_VALUE or lines[title + 1].count(separator) != count:
        return {}
    if title and lines[title - 1].count(separator) == count:
        return {}
    if separator == b"|" and not is_all(_RULER, lines[title + 1].decode("latin-1")):
        return {}
    names = [cell.decode("latin-1") for cell in line.split(separator)]
    edge = separator == b"|"
    if not all(is_all(_TITLE, name) or (edge and not name.strip()) for name in names):
        return {}
    titles = {number: name.strip(_DRESS.decode()) for number, name in enumerate(names)}
    return {number: name for number, name in titles.items() if is_secret_name(name)}
