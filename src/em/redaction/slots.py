"""Places for secrets: what stands in a slot that is named like a secret is one.

A slot is a name with anything that joins it with a value, a member beside a member with the name,
a column under a heading, the arguments of a login, the next line. How closely a slot is bound to
its name says how much a value must look like a secret by itself: see `strength`.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import re2

from em import deadline
from em.redaction.linear import compiled, is_all, made_once, options
from em.redaction.names import Name, is_secret_name, kind_of, names_in
from em.redaction.strength import (
    CHOSEN,
    is_near_enough,
    is_placeholder,
    is_plausible,
    is_random,
    is_symbolic,
    strength,
)
from em.redaction.view import QUOTES, View

LONGEST_VALUE = 4096
_SHORTEST = 6
_LEFT, _NEAR, _MOST_STEPS, _SENTENCE = 160, 200, 16, 5
_LONGEST_BLOCK = 20_000
_LONGEST_SIGN = 500


class Found(NamedTuple):
    """Where a secret stands in a text, and what it is called."""

    start: int
    end: int
    name: str


class Slot(NamedTuple):
    """How a name and its value are joined.

    sign: matches behind the name, up to the value.
    value: how far the value goes: see `_VALUES`.
    rule: how a value must look: "quoted", "unquoted", or "clear" (letters with digits, or random).
    left: if given, it matches up to where the name begins.
    """

    sign: str
    value: str
    rule: str
    left: str = ""
    shortest: int = 3


_Q = f"[{QUOTES}]"
_VALUE_WORD = r"(?i:value|val|default|content|data|string|text|example|plaintext)"
_QUOTE = rf"(?:[rbfuRBFU@$]{{1,2}}|[&!][\w!]{{1,20}}[ \t]{{1,4}})?(?P<quote>{_Q})"
_CLOSE = rf"[{QUOTES}\]}}*_]{{0,4}}"
_SIGN = r"(?:=>|[:?]=|:-|->|\+=|[:=]{1,2}|\x1a)\*{0,2}"
_TYPE = (
    r"(?:\s{0,4}:\s{0,4}|[ \t]{1,4})[A-Za-z&][\w<>\[\].?&]{0,30}(?: \w{1,20})?[ \t]{0,4}=[ \t]{0,4}"
)
_TRIPLE = r"[ \t]{0,4}=[ \t]{0,4}[rbfu]?(?P<quote>\"\"\"|''')"
_MEMBER = rf"(?:\{{\s{{0,40}}{_Q}?{_VALUE_WORD}{_Q}?\s{{0,3}}[:=]\s{{0,8}})?"
_DUMPED = r"(?:string\(\d{1,4}\)\s{1,4})?"
_TAG = r"[&!][\w!]{1,20}[ \t]{1,4}"
SLOTS = (
    # a line of an environment, with all signs up to its end
    Slot("=", "line", "quoted", r"(?m:^)[ \t>+-]{0,8}(?:(?:export|set|ENV)[ \t]{1,4})?", _SHORTEST),
    Slot(
        "[ \t]{1,4}",
        "line",
        "quoted",
        r"(?m:^)[ \t]{0,8}(?:ENV|set(?:[ \t]{1,4}-\w{1,8}){1,4})[ \t]{1,4}",
        _SHORTEST,
    ),
    Slot(_TRIPLE, "quoted", "quoted"),
    Slot(rf"{_CLOSE}\s{{0,8}}{_SIGN}\s{{0,8}}{_MEMBER}{_DUMPED}{_QUOTE}", "quoted", "quoted"),
    Slot(rf"{_TYPE}{_QUOTE}", "quoted", "quoted"),
    Slot(rf"{_CLOSE}\)?\s{{1,8}}(?:\|\||\?\?|or)\s{{1,8}}{_QUOTE}", "quoted", "quoted"),
    Slot(rf"{_Q}?[ \t]{{0,8}}:[ \t]{{1,8}}(?:{_TAG})?[|>][+-]?\d?[ \t]*\r?\n", "block", "quoted"),
    Slot(
        rf"{_CLOSE}[ \t]{{0,8}}{_SIGN}[ \t]{{0,8}}(?:{_TAG})?{_MEMBER}",
        "bare",
        "unquoted",
        "",
        _SHORTEST,
    ),
    Slot(
        rf"{_Q}\s{{0,3}}\{{[^{{}}]{{0,300}}?\bdefault\s{{0,20}}=\s{{0,4}}{_QUOTE}",
        "quoted",
        "quoted",
    ),
    Slot(rf"[({{]\s{{0,4}}{_QUOTE}", "quoted", "clear"),
    Slot(rf"{_Q},\s{{0,4}}{_QUOTE}", "quoted", "quoted", rf"{_Q}--"),
    Slot(rf"{_Q}\s{{0,4}},(?:\s{{0,4}}|[ \t]{{0,24}}){_QUOTE}", "quoted", "near"),
    Slot(rf"[ =]\s{{0,4}}{_QUOTE}", "quoted", "quoted", r"(?:^|\s)--"),
    Slot(r"[ =]\s{0,4}", "bare", "quoted", r"(?:^|\s)--", _SHORTEST),
    Slot(rf"{_Q}?>\s{{0,8}}", "element", "quoted", rf"[<\"']|[{QUOTES}]"),
    Slot(r">\s{0,40}<[\w:]{1,20}>\s{0,8}", "element", "clear", r"[<\"':]"),
    Slot(r"</\w{1,20}>\s{0,40}<[^<>]{1,40}>", "element", "clear", ">"),
    Slot(
        "[ \t]{1,4}",
        "bare",
        "quoted",
        r"(?i)\b(?:setx|(?:config|configure|secret|secrets)[ :]set|config-set)[ \t]{1,4}"
        r"(?:\S{0,80}[:/._-])?",
        _SHORTEST,
    ),
    Slot(r"\s{1,8}", "bare", "quoted", r"(?i)\blogin\s{1,8}\S{1,80}\s{1,8}", 4),
)
_STEP = (
    rf"(?P<member>[A-Za-z_][\w.-]{{0,40}}{_Q}?(?:[ \t]{{0,3}}=|:=?)(?:[^=]|\z))"
    r"|(?P<word>(?:[A-Za-z\x80-\xff]{2,}|[ac-eg-qstv-z])'[A-Za-z\x80-\xff]+)"
    rf"|{_Q}(?P<quoted>[^{QUOTES}\n]{{{_SHORTEST},200}}){_Q}"
    rf"|(?P<bare>[^\s{QUOTES}<>(){{}}\[\],;|:=.*/\\\x80-\xff-][^\s{QUOTES}<>(){{}},;|\x80-\xff]*)"
)
"""What stands behind a name, one after the other."""
_KINDS, _STEPS = ("member", "word", "quoted", "bare"), (1, 2, 3, 4)
_NEXT_LINE = (
    rf"[^\n]{{0,80}}\n(?:[ \t>]*\r?\n){{0,2}}[ \t>*-]{{0,8}}"
    rf"(?:[\w.@ ]{{1,20}}: |\w{{1,12}} {_Q})?{_Q}?"
    rf"(?P<value>[^\s{QUOTES}]{{{_SHORTEST},200}}?)[.]?\r?{_Q}?[ \t\r]*(?:\n|\z)"
)
_IS_MEMBER = (
    rf"(?i)\b(?:name|key|id|field|type){_Q}?\s{{0,4}}[:=]\s{{0,4}}{_Q}\z"
    r"|\b(?:name|key):[ \t]{1,4}\z"
)
"""What stands before a name that is a value itself, as in `{"name": "DB_PASSWORD", …}`."""
_VALUE_BEHIND = (
    rf"\b{_VALUE_WORD}{_Q}?\s{{0,3}}[:=]\s{{0,3}}{_Q}?(?P<value>[^\s{QUOTES}{{}}]{{4,200}})"
)
_VALUE_BEFORE = (
    rf"{_VALUE_BEHIND}{_Q}?\s{{0,3}},?\s{{0,40}}-?\s?"
    rf"{_Q}?(?i:name|key){_Q}?\s{{0,3}}[:=]\s{{0,3}}{_Q}?\z"
)
_PAIR = (
    rf"(?:{_Q}[^{QUOTES}\n]{{1,80}}{_Q}\s{{0,3}},\s{{0,40}}[rbu]?{_Q}"
    rf"(?P<quoted>[^{QUOTES}\n]{{6,100}}){_Q}"
    rf"|[\w.@-]{{1,60}}(?::|[ \t]?/[ \t]?)(?P<bare>[^\s{QUOTES},;()/]{{6,100}}))"
)
"""A user and a password."""


def named_secrets(view: View) -> Iterator[Found]:
    """Yield the secrets that stand in a slot with a secret's name."""
    done = table_end = looked = 0
    for name in names_in(view):
        if name.start >= table_end and name.kind != "login":
            cells, table_end = _table(view, name)
            yield from cells
        if name.start < done:
            continue
        if name.kind == "login":
            # Where logins stand close together, what the last one looked at is not looked at again.
            found, looked = _pair(view, name, max(name.end, looked))
        elif (found := _behind(view, name)) is not None:
            done = found.end
        if found is not None:
            yield found


def _behind(view: View, name: Name) -> Found | None:
    """Return the secret that stands behind a name, or beside it."""
    joined = made_once("slots", _signs).Match(view.data[name.end : name.end + _LONGEST_SIGN])
    for number in sorted(joined or ()):
        found = _in_slot(view, name, SLOTS[number])
        if found is not None:
            return found
    return _beside(view, name) or _near(view, name) or _below(view, name)


def _signs() -> Any:
    """Return the set of the signs of all slots: most names stand before none of them."""
    signs = re2.Set.MatchSet(options(dot_nl=True))
    for slot in SLOTS:
        signs.Add(slot.sign.encode("latin-1"))
    signs.Compile()
    return signs


def _in_slot(view: View, name: Name, slot: Slot) -> Found | None:
    """Return the secret that is joined with a name in one way."""
    sign = compiled(slot.sign).match(view.data, name.end)
    if sign is None:
        return None
    if slot.left:
        before = view.data[max(0, name.start - _LEFT) : name.start]
        if compiled(f"(?:{slot.left})\\z").search(before) is None:
            return None
    around = view.data[name.start - 1 : name.start]
    # The quote may end what began before the name: `secret=`.
    is_end = slot.value == "quoted" and (
        sign.group(b"quote") == around != view.data[name.end : name.end + 1]
    )
    start, end = _VALUES[slot.value](view.data, sign)
    is_no_setting = slot.value == "line" and not name.text.isupper()
    if is_no_setting or is_end or end - start < slot.shortest:
        return None
    if slot.value == "bare":
        in_a_url = view.data[name.start - 1 : name.start] in (b"?", b"&")
        end = start + end_of_value(view.data[start : min(end, start + LONGEST_VALUE)], in_a_url)
        text = first_of(view.original(start, end)) if end > start else ""
    else:
        text = view.original(start, end)
    is_code = b"==" in sign.group() and strength(text) < CHOSEN  # user_pass == "git"
    is_secret = not is_code and _fits(slot.rule, name, text)
    return Found(start, end, name.text) if is_secret else None


def _fits(rule: str, name: Name, value: str) -> bool:
    """Return whether a value can be the secret of a name."""
    if len(value) < 3 or is_between(value) or is_placeholder(name.text, value):
        return False
    # type_token == "string" is code, tokens=1000 is a count
    is_count = name.text.lower().endswith("token") and (
        value.replace("_", "").isdigit() or (value.isalpha() and not is_random(value))
    )
    if is_count or (value[0].isspace() and " " in value.strip()):
        return False  # or the quote ended another text
    is_word = " " in value or is_secret_name(value)  # Ed25519PrivateKey
    if rule == "clear":
        fits = not is_word and (strength(value) >= CHOSEN or is_symbolic(value))
    elif rule == "near":
        fits = not is_word and (is_near_enough(name.text, value, 0) or is_symbolic(value))
    else:
        fits = is_plausible(name.text, value, quoted=rule == "quoted")
    return fits


def _near(view: View, name: Name) -> Found | None:
    """Return the first text behind a name that looks like a secret, on its line."""
    data, words, at = view.data, 0, name.end
    if data[at : at + 1] in (b"/", b"\\", b"-") or compiled(r"\.[^\s.]").match(data, at):
        return None  # a part of a path, or of a dotted name
    line = data.find(b"\n", at, at + _NEAR)
    limit = min(len(data), at + _NEAR) if line < 0 else line
    for _ in range(_MOST_STEPS):
        step = compiled(_STEP).search(data, at, limit + _NEAR)
        if step is None or step.start() >= limit:
            break
        kind, (start, end) = next(
            (kind, span)
            for kind, span in zip(_KINDS, map(step.span, _STEPS), strict=True)
            if span[1] >= 0
        )
        is_bare, passed_over = kind == "bare", 0
        if kind == "member":
            end, passed_over = _member(view, name, step)
            if not end:
                break
        if passed_over:
            at, words = end, words + passed_over - 1
            continue
        at = max(end, step.end())
        end = start + len(data[start:end].rstrip(b".:" if is_bare else b""))
        value = view.original(start, end)
        # What stands behind another name is looked at with that; // begins the rest of an address.
        if (is_bare and is_secret_name(value)) or value.startswith("//"):
            break
        is_call = is_bare and data[at : at + 1] in (b"(", b"[")
        if not is_call and is_near_enough(name.text, value, words) and not is_between(value):
            return Found(start, end, name.text)
        words += 1 if data[at - 1 : at] != b"." or kind == "quoted" else _SENTENCE
    return None


def _member(view: View, name: Name, step: Any) -> tuple[int, int]:
    """Return where a member behind a name ends, and 1 or 2 if it is passed over; 0 to stop.

    `value=` is passed over, and so is a word: "the password of the server: …".
    """
    start = step.start()
    member = step.group().rstrip(b":= \t\r\n" + QUOTES.encode())
    if is_all(_VALUE_WORD, member.decode("latin-1")):
        return start + len(member), 1
    if member.startswith((b"http:", b"https:")):
        return 0, 0
    is_noun = name.kind == "password" and view.data[name.end : name.end + 1] in (b" ", b"\t")
    if b":" in step.group() and is_noun:
        return start + len(member), 2
    end: int = compiled(rf"[^\s{QUOTES},;]*").match(view.data, start).end()
    is_value = b":" not in step.group() and is_random(view.original(start, end))
    return (end if is_value else 0), 0


def _below(view: View, name: Name) -> Found | None:
    """Return the secret that is all of the next line."""
    found = compiled(_NEXT_LINE).match(view.data, name.end)
    if found is None:
        return None
    start, end = found.span(1)
    value = view.original(start, end)
    if is_all(r"[A-Za-z_][\w.-]*[=:][^=].*", value) or not is_near_enough(name.text, value, 1):
        return None
    return Found(start, end, name.text)


def _beside(view: View, name: Name) -> Found | None:
    """Return the value in `{"name": "DB_PASSWORD", "value": …}`, or with `value` first."""
    data, first = view.data, max(0, name.start - _NEAR)
    before = data[first : name.start]
    is_block = compiled(rf"{_Q}?:[ \t]*\r?\n[ \t]").match(data, name.end) is not None
    if not is_block and compiled(_IS_MEMBER).search(before) is None:
        return None
    behind = data[name.end : name.end + _NEAR].partition(b"}")[0].partition(b"{")[0]
    for text, place, pattern in (
        (behind, name.end, _VALUE_BEHIND),
        (before, first, _VALUE_BEFORE),
    ):
        found = compiled(pattern).search(text)
        if found is not None:
            start = place + found.start(1)
            end = start + end_of_value(found.group(1), in_a_url=False)
            if _fits("clear" if is_block else "quoted", name, view.original(start, end)):
                return Found(start, end, name.text)
    return None


def _pair(view: View, name: Name, at: int) -> tuple[Found | None, int]:
    """Return the password behind a user, as a login has them, and up to where it was looked for."""
    data = view.data
    line = data.find(b"\n", name.end, name.end + _NEAR)
    limit = min(len(data), name.end + _NEAR) if line < 0 else line
    for _ in range(_MOST_STEPS):
        pair = compiled(_PAIR).search(data, at, limit + _NEAR) if at < limit else None
        if pair is None or pair.start() >= limit:
            return None, max(at, limit)
        start, end = pair.span(pair.lastindex)
        value = view.original(start, end)
        is_path = data[pair.start() - 1 : pair.start()] == b"/" or b"redacted:" in pair.group()
        is_chosen = strength(value) >= CHOSEN or (
            pair.group(b"quoted") is not None and is_symbolic(value)
        )
        is_path = is_path or is_all(r".*#\d+.?", value)  # owner/name#12
        if is_chosen and not is_placeholder("", value) and not is_path:
            return Found(start, end, name.text), end
        at = start - 1 if pair.lastgroup == b"quoted" else start
    return None, at


_BETWEEN_TEXTS = (
    r"\s*:(?:[\s\[\]{},:\d.+-]|[eE][\d+-]|null|true|false)*[,\[\]{}]\s*|\[redacted:[^\[\]]*\]"
)
"""What stands between two texts of JSON, as in `{"password:": null, "b": …}`; a marker."""


def is_between(value: str) -> bool:
    """Return whether a value is what stands between two texts, or a marker."""
    return is_all(_BETWEEN_TEXTS, value)


def end_of_value(value: bytes, in_a_url: bool) -> int:
    """Return where a value without quotes ends: at white space, a quote, or the next setting."""
    value = compiled(rf"[^\s{QUOTES}]*").match(value).group()
    ends = r"[&#<]" if in_a_url else r"[;&,|][\w.-]+[=:]|</"
    following = compiled(ends).search(value)
    if following:
        value = value[: following.start()]
    return len(value.rstrip(b".,;:)]}>|"))


def first_of(value: str) -> str:
    """Return the part of a value that tells whether it is a secret.

    That is what stands before a sign that separates. What stands before a bracket is a function or
    a list, so that nothing is left; of a mixture of signs, all is.
    """
    delimiter = compiled(r"[;,<>()\[\]{}|\\]").search(value.encode("ascii", "replace"))
    if delimiter is None:
        return value
    first = value[: delimiter.start()]
    if len(first) >= _SHORTEST and delimiter.group() not in b"([{":
        return first
    is_call = is_all(r"[A-Za-z_.]*", first)
    return value if not is_call and is_random(value) else ""


def _quoted(data: bytes, sign: Any) -> tuple[int, int]:
    """Return what stands between quotes, or up to the end of the line."""
    quote, start = sign.group(b"quote"), sign.end()
    end = data.find(quote, start)
    line = data.find(b"\n", start, end if end >= 0 else len(data))
    if line >= 0 and len(quote) == 1:
        end = line
    return start, end if end >= 0 else len(data)


def _line(data: bytes, sign: Any) -> tuple[int, int]:
    """Return all up to the end of the line, if no white space stands in it."""
    start = sign.end()
    found = compiled(rf"([^\s{QUOTES}$\[]\S*?)(?:{_Q}[\]}})>,;]*)?\r?(?m:$)").match(data, start)
    return (start, found.end(1)) if found else (start, start)


def _bare(data: bytes, sign: Any) -> tuple[int, int]:
    """Return all up to white space or a quote."""
    start = sign.end()
    found = compiled(rf"[^\s{QUOTES}]+").match(data, start)
    return (start, found.end()) if found else (start, start)


def _element(data: bytes, sign: Any) -> tuple[int, int]:
    """Return the text of an element of XML."""
    start = sign.end()
    found = compiled(r"([^<>\s][^<>]*)</").match(data, start)
    return (start, found.end(1)) if found else (start, start)


def _block(data: bytes, sign: Any) -> tuple[int, int]:
    """Return the lines of a block of YAML: those that are indented more than its name."""
    line = data[max(0, data.rfind(b"\n", 0, sign.start()) + 1, sign.start() - _LEFT) :][:_LEFT]
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


_VALUES: dict[str, Callable[[bytes, Any], tuple[int, int]]] = {
    "quoted": _quoted,
    "line": _line,
    "bare": _bare,
    "element": _element,
    "block": _block,
}
_TITLE = r"[A-Za-z_#\xf0\xf1][\w .#/()\xf0\xf1\xff-]{0,40}"
_RULER = r"[ \t|:+=-]*[-=][ \t|:+=\r-]*"
_DRESS = b" \t\"'*`\r"
_SEPARATORS = (b"|", b"\t", b",", b";", b"")
"""What stands between the cells of a row; blanks do if nothing else does."""


class Cell(NamedTuple):
    """Where a cell of a table stands in its line."""

    start: int
    end: int


def _table(view: View, name: Name) -> tuple[list[Found], int]:
    """Return the secrets in the table whose heading is the line of a name, and where it ends."""
    data = view.data
    start, end = data.rfind(b"\n", 0, name.start) + 1, data.find(b"\n", name.end)
    if end < 0 or end - start > LONGEST_VALUE:
        return [], end if end >= 0 else len(data)
    for separator in _SEPARATORS:
        columns = _headings(data, start, end, separator)
        if columns:
            return _rows(view, start, end, separator, columns)
    return [], end


def _headings(data: bytes, start: int, end: int, separator: bytes) -> dict[int, str]:
    """Return the columns with secrets of a table that begins in a line, by their number."""
    line, last, following = (
        data[start:end],
        _line_at(data, data.rfind(b"\n", 0, max(0, start - 1)) + 1),
        _line_at(data, end + 1),
    )
    ruled = is_all(_RULER, following.decode("latin-1"))
    if separator and (
        separator not in line
        or (start and last.count(separator) == line.count(separator))
        or (following.count(separator) != line.count(separator) and not ruled)
        or (separator == b"|" and not ruled)
    ):
        return {}
    if not separator and not (ruled or b"  " in line.strip() or line.isupper()):
        return {}
    cells = _cells(line, separator)
    if len(cells) < 2:
        cells = _cells(line, separator, words=True)
    names = [line[cell.start : cell.end].decode("latin-1") for cell in cells]
    edge = separator == b"|"
    if len(cells) < 2 or not all(is_all(_TITLE, text) or (edge and not text) for text in names):
        return {}
    return {number: text for number, text in enumerate(names) if is_secret_name(text)}


def _line_at(data: bytes, start: int) -> bytes:
    end = data.find(b"\n", start, start + LONGEST_VALUE)
    return data[start : end if end >= 0 else start + LONGEST_VALUE]


def _cells(line: bytes, separator: bytes, *, words: bool = False) -> list[Cell]:
    """Return the cells of a row, without quotes and blanks around them."""
    if not separator:
        found = compiled(r"\S+" if words else r"\S+(?: \S+)*").finditer(line)
        return [Cell(*match.span()) for match in found]
    cells, at = [], 0
    for part in line.split(separator):
        text = part.strip(_DRESS)
        start = at + part.find(text)
        cells.append(Cell(start, start + len(text)))
        at += len(part) + 1
    return cells


def _rows(
    view: View, start: int, end: int, separator: bytes, columns: dict[int, str]
) -> tuple[list[Found], int]:
    """Return the secrets in the rows under a heading, and where they end."""
    data, heading = view.data, view.data[start:end]
    titles, count = _cells(heading, separator), heading.count(separator)
    if len(titles) < 2:
        titles = _cells(heading, separator, words=True)
    found, at = [], end + 1
    while at < len(data):
        deadline.check()
        line = _line_at(data, at)
        is_ruler = is_all(_RULER, line.decode("latin-1"))
        if not is_ruler and (not line.strip() or (separator and line.count(separator) != count)):
            break
        for number, title in () if is_ruler else columns.items():
            cell = _cell_under(heading, titles, number, line, separator)
            if cell is None:
                continue
            name = Name(start, start, title, kind_of(title))
            value = view.original(at + cell.start, at + cell.end)
            if " " not in value and _fits("quoted" if separator else "clear", name, value):
                found.append(Found(at + cell.start, at + cell.end, title))
        at += len(line) + 1
    return found, at


def _cell_under(
    heading: bytes, titles: list[Cell], number: int, line: bytes, separator: bytes
) -> Cell | None:
    """Return the cell of a row in a column: by its number, else by its place below the heading."""
    words = not any(b" " in heading[title.start : title.end] for title in titles)
    cells = _cells(line, separator, words=words)
    if separator or len(cells) == len(titles):
        return cells[number] if number < len(cells) else None
    if len(cells) == len(titles) + 1:  # the rows have numbers
        return cells[number + 1]
    title = titles[number]
    right = titles[number + 1].start if number + 1 < len(titles) else len(line)
    below = (cell for cell in cells if cell.start < right and cell.end > title.start)
    return next(below, None)
