"""Patches as Codex writes them: files that are added, deleted, changed and moved.

*** Begin Patch
*** Update File: src/app.py
@@ def main():
-    old
+    new
*** End Patch
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from em.errors import RoutineError

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ADD, _DELETE, _UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
_MOVE, _END_OF_FILE = "*** Move to: ", "*** End of File"


class BadPatch(RoutineError):
    """A patch that can't be read, or does not fit the files."""

    code = "bad_patch"


class Change(NamedTuple):
    """A file before and after: None if it is not there. `moved_to` is its new path."""

    path: str
    before: str | None
    after: str | None
    moved_to: str = ""


class _Hunk(NamedTuple):
    """Lines that are replaced. `context`: a line that stands somewhere before them."""

    context: str
    old: list[str]
    new: list[str]
    is_at_end: bool = False


def changes_of(patch: str, read: Callable[[str], str | None]) -> list[Change]:
    """Return what a patch does to the files that `read` returns. Raises BadPatch."""
    lines = patch.strip("\n").split("\n")
    if lines[0].strip() != _BEGIN or lines[-1].strip() != _END:
        raise BadPatch(f"a patch begins with {_BEGIN!r} and ends with {_END!r}")
    return [_change(head, body, read) for head, body in _files(lines[1:-1])]


def _files(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the line that names each file, with the lines below it."""
    head, body = "", list[str]()
    for line in lines:
        if line.startswith((_ADD, _DELETE, _UPDATE)):
            if head:
                yield head, body
            head, body = line, []
        elif head:
            body.append(line)
        elif line.strip():
            raise BadPatch(f"a patch must name a file before the line {line[:80]!r}")
    if head:
        yield head, body


def _change(head: str, body: list[str], read: Callable[[str], str | None]) -> Change:
    if head.startswith(_ADD):
        path = head.removeprefix(_ADD).strip()
        if any(line and not line.startswith("+") for line in body):
            raise BadPatch("each line of a new file begins with +", place=path)
        text = "".join(f"{line[1:]}\n" for line in body)
        return Change(path, read(path), text)
    path = head.removeprefix(_DELETE).removeprefix(_UPDATE).strip()
    before = read(path)
    if before is None:
        raise BadPatch("there is no such file", place=path)
    if head.startswith(_DELETE):
        return Change(path, before, None)
    moved = ""
    if body and body[0].startswith(_MOVE):
        moved = body.pop(0).removeprefix(_MOVE).strip()
    return Change(path, before, _patched(before, list(_hunks(body, path)), path), moved)


def _hunks(lines: Sequence[str], path: str) -> Iterator[_Hunk]:
    context, old, new = "", list[str](), list[str]()
    for line in lines:
        if line.startswith("@@"):
            if old or new:
                yield _Hunk(context, old, new)
            context, old, new = line[2:].strip(), [], []
        elif line == _END_OF_FILE:
            yield _Hunk(context, old, new, True)
            context, old, new = "", [], []
        elif line.startswith("-"):
            old.append(line[1:])
        elif line.startswith("+"):
            new.append(line[1:])
        elif line.startswith(" ") or not line:
            old.append(line[1:])
            new.append(line[1:])
        else:
            raise BadPatch(f"a line must begin with +, - or a space: {line[:80]!r}", place=path)
    if old or new:
        yield _Hunk(context, old, new)


def _patched(text: str, hunks: Sequence[_Hunk], path: str) -> str:
    ends_with_break = text.endswith("\n") or not text
    lines = text.split("\n")
    if ends_with_break:
        lines.pop()
    at = 0
    for hunk in hunks:
        if hunk.context:
            at = _found(lines, [hunk.context], at, path, is_exact=False) + 1
        if not hunk.old:
            at = len(lines)
            lines[at:at] = hunk.new
        elif hunk.is_at_end:
            at = _found(lines, hunk.old, len(lines) - len(hunk.old), path)
            lines[at : at + len(hunk.old)] = hunk.new
        else:
            at = _found(lines, hunk.old, at, path)
            lines[at : at + len(hunk.old)] = hunk.new
        at += len(hunk.new)
    return "\n".join(lines) + "\n"


def _found(
    lines: Sequence[str], wanted: Sequence[str], start: int, path: str, *, is_exact: bool = True
) -> int:
    """Return where lines stand; they must stand there once, unless a context line led to them."""

    def same(one: str, other: str) -> bool:
        return one == other if is_exact else one.strip() == other.strip()

    places = [
        at
        for at in range(max(start, 0), len(lines) - len(wanted) + 1)
        if all(same(lines[at + n], line) for n, line in enumerate(wanted))
    ]
    if not places:
        raise BadPatch("the lines to change are not in the file", place=path, lines=wanted[:3])
    if len(places) > 1 and start == 0:
        raise BadPatch("the lines to change stand there more than once", place=path)
    return places[0]
