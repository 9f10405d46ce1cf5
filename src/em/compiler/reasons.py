"""Reasons: why a fix was made, by the states in which it was made and those in which it was not."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from em.errors import RoutineError
from em.runner.remedies import State
from em.runner.symptoms import Plain, field_of

FEWEST = 2
"""Traces that must have made a fix before there is a rule for it."""
MOST_PAIRS = 60
"""Symptoms of which pairs are tried, where no single one explains a fix."""

Fact = tuple[str, Plain]


class Snapshot(NamedTuple):
    """What was known in a trace at a time."""

    trace: int
    time: int
    state: State


class Effects:
    """Which symptoms fixes change, by what was seen before and after them.

    If something changed over several fixes, those did it that are not known to leave it.
    """

    def __init__(self, intervals: Iterable[tuple[frozenset[str], State, State]]) -> None:
        self.moved: dict[str, set[str]] = {}
        self._calm: set[tuple[str, str]] = set()
        self._dynamic: set[str] = set()
        changed: list[tuple[frozenset[str], str]] = []
        for fixes, before, after in intervals:
            for name in before.keys() | after.keys():
                if name in before and name in after and before[name] == after[name]:
                    self._calm |= {(fix, name) for fix in fixes}
                else:
                    self._dynamic.add(name)
                    changed.append((fixes, name))
        for fixes, name in changed:
            movers = {fix for fix in fixes if (fix, name) not in self._calm} or fixes
            for fix in movers:
                self.moved.setdefault(fix, set()).add(name)
        self._seen = {(fix, name) for fix, names in self.moved.items() for name in names}

    def assume_same_names(self, names: Iterable[str]) -> None:
        """Take it that a fix changes a field also where another look shows it: one record."""
        by_field: dict[str, list[str]] = {}
        for name in names:
            by_field.setdefault(field_of(name), []).append(name)
        for fix, moved in list(self.moved.items()):
            self.assume(
                fix, [other for name in moved for other in by_field.get(field_of(name), ())]
            )

    def assume(self, fix: str, names: Iterable[str]) -> None:
        """Take it that a fix changes something, unless it was seen to stay the same."""
        new = {name for name in names if (fix, name) not in self._calm}
        self.moved.setdefault(fix, set()).update(new)
        self._dynamic |= new

    def lost(self, fix: str, names: Iterable[str], *, is_strict: bool) -> set[str]:
        """Return which symptoms may be different after a fix, as far as is known."""
        moved = self.moved.get(fix, set())
        return {
            name
            for name in names
            if (is_strict or name in self._dynamic)
            and (name in moved or (fix, name) not in self._calm)
        }

    def is_others(self, fix: str, name: str) -> bool:
        """Return whether other fixes were seen to change a symptom, and this one was not."""
        movers = self.movers(name)
        return bool(movers) and fix not in movers

    def movers(self, name: str) -> set[str]:
        """Return the fixes after which a symptom was seen to be different."""
        return {fix for fix, other in self._seen if other == name}

    def always_changes(self, fix: str, name: str) -> bool:
        """Return whether a symptom was seen after a fix, and never as it was before."""
        return (fix, name) in self._seen and (fix, name) not in self._calm


class Evidence:
    """In which recorded states a fact held, as bits; and after which states a fix was not made.

    fixes: by trace and time, the fix that begins; empty at other times.
    """

    def __init__(
        self, negatives: Sequence[Snapshot], fixes: Sequence[Sequence[str]], varied: set[str]
    ) -> None:
        self._negatives, self._fixes = negatives, fixes
        self._where: dict[Fact, int] = {}
        self.varied = varied
        """The symptoms that had more than one value; another one tells nothing."""
        for bit, snapshot in enumerate(negatives):
            for fact in snapshot.state.items():
                self._where[fact] = self._where.get(fact, 0) | 1 << bit

    def without(self, fix: str) -> int:
        """Return the states after which a fix was not made in a trace that ended well."""
        last = [
            max((time for time, one in enumerate(fixes) if one == fix), default=-1)
            for fixes in self._fixes
        ]
        return sum(
            1 << bit for bit, one in enumerate(self._negatives) if one.time > last[one.trace]
        )

    def where(self, facts: Iterable[Fact], among: int) -> int:
        """Return in which of some states all of these facts held."""
        for fact in facts:
            among &= self._where.get(fact, 0)
        return among


class Reasons:
    """Why a fix was made: the symptoms that its states had in common, and the others had not."""

    def __init__(
        self,
        fix: str,
        positives: Sequence[Snapshot],
        seen: Mapping[tuple[int, int], State],
        evidence: Evidence,
        effects: Effects,
    ) -> None:
        self._fix, self._positives, self._seen = fix, positives, seen
        self._evidence, self._effects = evidence, effects
        self._without = evidence.without(fix)

    def all(self) -> Iterator[tuple[list[Snapshot], list[dict[str, Plain]], State]]:
        """Yield states in which the fix was made for one reason, with the reason.

        Raises RoutineError if it was not made in a state that was just the same.
        """
        left = list(self._positives)
        while len({one.trace for one in left}) >= FEWEST:
            when, given = self._reason(left)
            chosen = left
            if not when:
                chosen = self._largest(left)
                when, given = self._reason(chosen)
                if not when or len({one.trace for one in chosen}) < FEWEST:
                    break
            yield chosen, when, given
            left = [one for one in left if one not in chosen]
        for one in left:
            if self._evidence.where(self._seen[one.trace, one.time].items(), self._without):
                raise RoutineError(
                    f"the traces contradict each other: {self._fix} was made in one trace, and not"
                    " in another one that looked just the same",
                    place="traces",
                    fix="compile without one of them, or record what the agent looked at",
                )

    def _reason(self, made: Sequence[Snapshot]) -> tuple[list[dict[str, Plain]], State]:
        """Return the smallest sets of symptoms that explain the fix, and all common ones."""
        given = _common(made)
        if self._evidence.where(given.items(), self._without):
            return [], given
        facts = list(given.items())
        singles = [
            (name, value)
            for name, value in facts
            if name in self._evidence.varied
            and not self._evidence.where([(name, value)], self._without)
        ]
        if any(self._effects.always_changes(self._fix, name) for name, _ in singles):
            # What only other fixes change is about their faults.
            singles = [one for one in singles if not self._effects.is_others(self._fix, one[0])]
        if singles:
            return [{name: value} for name, value in singles], given
        # A pair of which one is always so says nothing new.
        some = [one for one in facts if self._is_telling(one)][:MOST_PAIRS]
        cured = {name for name in given if self._effects.always_changes(self._fix, name)}
        pairs = [
            dict(pair)
            for pair in combinations(some, 2)
            if not self._evidence.where(pair, self._without)
            # What the fix does not change would be a reason for it again and again.
            and (not cured or not cured.isdisjoint(dict(pair)))
        ]
        return pairs or [dict(some)], given

    def _is_telling(self, fact: Fact) -> bool:
        return self._evidence.where([fact], self._without) != self._without

    def _largest(self, made: Sequence[Snapshot]) -> list[Snapshot]:
        """Return the states that one symptom explains, most of them."""
        best: list[Snapshot] = []
        for name, value in {fact: None for one in made for fact in one.state.items()}:
            if self._evidence.where([(name, value)], self._without):
                continue
            held = [one for one in made if name in one.state and one.state[name] == value]
            if len(held) > len(best):
                best = held
        return best


def _common(made: Sequence[Snapshot]) -> dict[str, Plain]:
    """Return the symptoms that all states had, as far as they were known in at least half."""
    counts: Counter[str] = Counter(name for one in made for name in one.state)
    found = {}
    for name, count in counts.items():
        values = {one.state[name] for one in made if name in one.state}
        if len(values) == 1 and count * 2 >= len(made):
            found[name] = values.pop()
    return found
