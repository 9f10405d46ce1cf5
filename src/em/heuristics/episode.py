"""An episode: one session met a failure, did something, and made the same call again.

All episodes of one failure are settled together. What sessions have in common is the recovery, what
differs between them becomes a gap, and a value that the error names becomes a letter: `pip install
X`. A lesson needs two sessions, or an error that names the recovery itself. It is doubted if other
things helped too, or if the same steps did not help elsewhere.
"""

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

import msgspec

from em.heuristics.failure import GAP, cut, plain

Kind = Literal["run", "call", "edit", "read", "change", "instead", "unsafe"]

LEAST_SESSIONS = 2
LEAST_SHARE = 2 / 3
"""In which share of the sessions that met a failure the same recovery must have helped."""
LEAST_ALIKE = 0.5
LONGEST_STEP = 200
SPELLED = ", spelled"
"""How the label of a change ends that only writes the same value in another way."""
UNKNOWN = "It is not known what helps."
_LETTERS = "XYZ"
_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|\w+|\s+|[^\w\s]")
_LINKED = re.compile(r"\x00(\d)")


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was done.

    kind: `run` a program, `call` a tool, `edit` a file, `read` what had to be read first, `change`
    a value of the call, use another tool `instead`; of an `unsafe` step nothing else is kept.
    parts: the words of a command, or the arguments as names and texts.
    """

    kind: Kind
    label: str = ""
    parts: Sequence[tuple[str, str]] = ()


class Episode(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one session did about a failure.

    values: what stood in the gaps of the error. steps: none if the same call worked by itself.
    is_named: the error itself names what helped. came_back: it failed in the same way afterwards.
    is_exact: the failure is this one with its values, not all with such words.
    """

    session: str
    values: Sequence[str] = ()
    steps: Sequence[Step] = ()
    is_named: bool = False
    came_back: bool = False
    is_exact: bool = False


class Settled(NamedTuple):
    """What the episodes of one failure teach. `doubt` says why it is not told; "" if it is.

    times: how often it helped, copies of a recording included.
    letters: for the gaps of the error that the action names, by their number.
    """

    action: str
    analysis: str
    times: int
    doubt: str
    letters: Mapping[int, str]


def settle(episodes: Sequence[Episode]) -> Settled:
    """Return what the episodes of one failure teach together."""
    met = {one.session for one in episodes}
    label, chosen = _most_shared(episodes)
    common = [
        key
        for key in dict.fromkeys(map(_key, chosen[0].steps) if chosen else ())
        if all(key in map(_key, one.steps) for one in chosen)
    ]
    made = [_general([_step(one, key) for one in chosen], chosen) for key in common]
    steps = [step for step in made if step is not None]
    against = met - {one.session for one in chosen}
    against |= {one.session for one in episodes if one.came_back and label in map(_key, one.steps)}
    letters = {
        int(number): _LETTERS[at]
        for at, number in enumerate(
            dict.fromkeys(
                n for step in steps for _, text in step.parts for n in _LINKED.findall(text)
            )
        )
        if at < len(_LETTERS)
    }
    doubt = _doubt(chosen, len(against), len(made) > len(steps), is_linked=bool(letters))
    helped, n = len(chosen), len(met)
    analysis = (
        f"It helped in {helped} of {n} sessions."
        if n > 1
        else ("The error names it." if chosen and chosen[0].is_named else "Seen in one session.")
    )
    times = sum(not one.came_back and label in map(_key, one.steps) for one in episodes)
    return Settled(_action(steps, letters), analysis, times, doubt, letters)


def _most_shared(episodes: Sequence[Episode]) -> tuple[str, list[Episode]]:
    """Return the step that helped in most sessions, and one episode of each of these."""
    by_key: defaultdict[str, dict[str, Episode]] = defaultdict(dict)
    for one in episodes:
        if not one.came_back:
            for key in map(_key, one.steps):
                by_key[key].setdefault(one.session, one)
    if not by_key:
        return "", []
    best = max(by_key, key=lambda key: (len(by_key[key]), not key.startswith(("edit", "unsafe"))))
    return best, list(by_key[best].values())


def _doubt(chosen: Sequence[Episode], against: int, lacks: bool, *, is_linked: bool) -> str:
    n = len(chosen)
    doubts = {
        "it worked again by itself, or nothing helped": not n,
        "seen in one session": n < LEAST_SESSIONS and not any(one.is_named for one in chosen),
        f"in {against} other sessions it did not help, or something else did": (
            n < LEAST_SHARE * (n + against)
        ),
        "it is not known which of the things that were done helped": lacks,
        "seen for one error only": not is_linked and _has_one_error(chosen),
    }
    return next((why for why, holds in doubts.items() if holds), "")


def _has_one_error(chosen: Sequence[Episode]) -> bool:
    """Tell whether only errors with the same values were seen, so that others may differ."""
    if not chosen or chosen[0].is_exact or not any(chosen[0].values):
        return False
    kinds = {step.kind for one in chosen for step in one.steps}
    return len({tuple(one.values) for one in chosen}) == 1 and not (
        kinds <= {"read", "instead"} or is_rewording(chosen[0])
    )


def is_rewording(one: Episode) -> bool:
    """Tell whether a value was only written in another way."""
    return bool(one.steps) and all(
        step.kind == "change" and step.label.endswith(SPELLED) for step in one.steps
    )


def is_linked(one: Episode) -> bool:
    """Tell whether a step uses a value that the error names."""
    return any(_LINKED.search(text) for step in one.steps for _, text in _linked(step, one).parts)


def _key(step: Step) -> str:
    """Return what makes two steps comparable: all edits are, whatever made them."""
    return step.kind if step.kind in ("edit", "unsafe") else f"{step.kind} {step.label}"


def _step(one: Episode, key: str) -> Step:
    return next(step for step in one.steps if _key(step) == key)


# --- what sessions have in common -----------------------------------------------------------------


def _general(steps: Sequence[Step], of: Sequence[Episode]) -> Step | None:
    """Return the step that several sessions made, with gaps; None if nothing of it is left."""
    first = steps[0]
    if first.kind == "unsafe":
        return None
    if first.kind in ("read", "instead") or first.label.endswith(SPELLED):
        return first  # the values of a spelling are an example of it
    linked = [_linked(step, one) for step, one in zip(steps, of, strict=True)]
    if first.kind == "run":
        return _general_command(linked)
    if len({step.label for step in steps}) > 1:
        return None
    common = _common_arguments(linked)
    texts = [text for _, text in common]
    has_content = first.kind == "call" or (first.kind == "change" and " from " in first.label)
    is_left = any(texts) and GAP not in texts  # another value each time: which, nobody knows
    return Step(first.kind, first.label, common) if has_content or is_left else None


def _general_command(steps: Sequence[Step]) -> Step | None:
    words = _common_words([[text for _, text in step.parts] for step in steps])
    label = steps[0].label.split()
    values = [w for w in words if w not in label and w != GAP and not w.startswith("-")]
    if not values and len(label) == 1:
        return None
    return Step("run", steps[0].label, [("", word) for word in words])


def _linked(step: Step, one: Episode) -> Step:
    """Replace the values of the error in a step by marks. The label is never one of them."""
    if one.is_exact or step.kind in ("change", "read", "instead"):
        return step
    marks = {value: f"\0{at}" for at, value in enumerate(one.values) if len(value) > 1 and at < 10}
    fixed = step.label.split() if step.kind == "run" else []
    parts = []
    for name, text in step.parts:
        if step.kind == "run" and text in fixed:
            parts.append((name, text))
        elif text in marks:
            parts.append((name, marks[text]))
        else:
            parts.append((name, "".join(_marked_tokens(text, marks))))
    return Step(step.kind, step.label, parts)


def _marked_tokens(text: str, marks: Mapping[str, str]) -> Iterator[str]:
    for token in re.split(r"([\w.\-@/]+)", text):
        yield marks.get(token, token)


def _common_words(lists: Sequence[Sequence[str]]) -> list[str]:
    common = list(lists[0])
    for other in lists[1:]:
        matcher = SequenceMatcher(None, common, list(other), autojunk=False)
        merged: list[str] = []
        for op, a, b, c, d in matcher.get_opcodes():
            if op == "equal":
                merged += common[a:b]
            elif all(word.startswith("-") for word in (*common[a:b], *other[c:d])):
                continue  # an option that not all had
            elif b - a == d - c == 1:
                merged.append(_common_text(common[a], other[c]))
            elif not merged or merged[-1] != GAP:
                merged.append(GAP)
        common = merged
    return common


def _common_arguments(steps: Sequence[Step]) -> list[tuple[str, str]]:
    common = dict(steps[0].parts)
    for step in steps[1:]:
        other = dict(step.parts)
        common = {n: _common_text(text, other[n]) for n, text in common.items() if n in other}
    return list(common.items())


def _common_text(one: str, other: str) -> str:
    """Return what two texts have in common, with gaps; only a gap if that is little."""
    if one == other:
        return one
    tokens = _TOKEN.findall(one), _TOKEN.findall(other)
    matcher = SequenceMatcher(None, *tokens, autojunk=False)
    blocks = matcher.get_opcodes()
    kept = sum(len("".join(tokens[0][a:b])) for op, a, b, _, _ in blocks if op == "equal")
    begins = bool(blocks) and blocks[0][0] == "equal"
    if not begins or kept < LEAST_ALIKE * max(len(one), len(other)):
        return GAP
    return "".join("".join(tokens[0][a:b]) if op == "equal" else GAP for op, a, b, _, _ in blocks)


# --- words ----------------------------------------------------------------------------------------


def _action(steps: Sequence[Step], letters: Mapping[int, str]) -> str:
    if not steps:
        return UNKNOWN
    first = steps[0]
    if first.kind == "change":
        return " ".join(_change_text(step) for step in steps)
    if first.kind == "instead":
        given = names_text([name for name, _ in first.parts])
        return f"Use {first.label} instead{f', with {given}' if given else ''}."
    if first.kind == "read":
        return f"Read the same file with {first.label} first, then make the same call again."
    done = ", then ".join(_step_text(step, letters) for step in steps)
    return f"First {done}, then make the same call again."


def _step_text(step: Step, letters: Mapping[int, str]) -> str:
    if step.kind == "run":
        words = [_shown(text, letters) for _, text in step.parts]
        known = [word if re.search(rf"[{GAP}]", word) else shlex.quote(word) for word in words]
        return f"run {quoted(' '.join(known))}"
    given = ", ".join(
        f"{name}={text if text == GAP else quoted(text)}"
        for name, text in ((name, _shown(text, letters)) for name, text in step.parts)
    )
    return f"{step.label}({cut(given, LONGEST_STEP)})"


def _change_text(step: Step) -> str:
    values = dict(step.parts)
    old, new = values.get("old", ""), values.get("new", "")
    what, _, source = step.label.removesuffix(SPELLED).partition("|")[0].partition(" from ")
    is_word = what in ("word", "program")
    origin = f" as {source} gives it" if source else ""
    if what.startswith("variable "):
        return f"Set the {what} for it."
    if not new:
        return f"Call it again without {quoted(old) if is_word else what}."
    if not old:
        return f"Call it again with {quoted(new) if is_word else what} as well{origin}."
    if is_word:
        return f"Call it again with {quoted(new)} instead of {quoted(old)}."
    both = "" if GAP in (new, old) else f": {quoted(new)} worked, {quoted(old)} did not"
    return f"Call it again with another {what}{origin}{both}."


def _shown(text: str, letters: Mapping[int, str]) -> str:
    return _LINKED.sub(lambda found: letters.get(int(found[1]), GAP), text)


def quoted(text: str, size: int = LONGEST_STEP) -> str:
    """Return a text of a session in quotes: one line, bounded, without personal data."""
    safe = plain(text).replace('"', "'").replace("\\", "/")
    return f'"{cut(safe, size)}"'


def names_text(names: Sequence[str]) -> str:
    """Join names: `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""
