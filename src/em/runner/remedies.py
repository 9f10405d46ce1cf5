"""Remedies: rules that put things right, one after the other, until they are as they should be.

A rule says at which symptoms a fix was made when it was recorded. Everything that could explain
the fix is kept: `when` has the smallest sets of symptoms that tell the recorded states in which it
was made from those in which it was not, `given` has all symptoms that these states had in common.
A fix is made if all of them hold, and not made if no set of `when` holds. Otherwise it is
not clear, and the run hands over. The same goes for a symptom that no recorded success had.
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.errors import RoutineError
from em.runner.expressions.functions import every
from em.runner.symptoms import (
    SAID,
    Plain,
    Symptoms,
    field_of,
    held_by,
    of_result,
    of_words,
    source_of,
    state_of,
)
from em.values.canonical import Json, short

MEMBER = "@"
"""The path to the value that a look was made with, where it is made for each of a list."""
MOST_MEMBERS = 25
"""Records that are looked at to find the one that is meant."""

State = Mapping[str, Plain]


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a value comes from: always the same, said in the request, or found by a look.

    always: the one value. said: the name of a value of the request; is_number: it is a number.
    look, path: a place in the result of a look. where, equals, field: of a list at that place, the
    field of the one item that has this value there; with `like`, this value of the request.
    """

    always: Sequence[Any] = ()
    said: str = ""
    is_number: bool = False
    look: str = ""
    path: str = ""
    where: str = ""
    equals: Any = None
    like: str = ""
    field: str = ""

    def __str__(self) -> str:
        """Say where the value comes from."""
        if self.always:
            return f"always {short(self.always[0])}"
        if self.said:
            return f"what the request says as `{self.said.removeprefix(f'{SAID}: ')}`"
        place = self.look if self.path in ("", MEMBER) else f"{self.look}.{self.path}"
        if self.where:
            wanted = f"as in `{self.like}`" if self.like else short(self.equals)
            return f"`{self.field}` of the one in `{place}` with {self.where} {wanted}"
        return f"`{place}`"


class Look(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A read that shows symptoms. All origins of an argument must agree.

    each, by: the read is made for every value of this list, as the argument `by`. joins: by field,
    what the one record that is meant has there.
    """

    tool: str
    args: dict[str, list[Origin]] = {}
    each: Origin | None = None
    by: str = ""
    joins: dict[str, Origin] = {}


class FixCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A call with an effect. All origins of an argument must agree.

    expects: what its result must be like, as when it was recorded.
    """

    tool: str
    args: dict[str, list[Origin]] = {}
    expects: Sequence[str] = ()


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Calls that put something right, and the symptoms at which they were made.

    after: rules that came before this one in every trace that had both. cures: symptoms that are
    different afterwards. most: how often one trace made it. ends: nothing was done after it.
    """

    calls: Sequence[FixCall]
    when: Sequence[dict[str, Plain]] = ()
    given: dict[str, Plain] = {}
    after: Sequence[str] = ()
    cures: Sequence[str] = ()
    most: int = 1
    ends: bool = False

    def is_suggested(self, state: State) -> bool:
        """Return whether something that could be the reason for the fix is so."""
        return any(holds(one, state) for one in self.when)

    @property
    def facts(self) -> list[tuple[str, Plain]]:
        """All symptoms that were there whenever the fix was made."""
        return [*self.given.items(), *(fact for one in self.when for fact in one.items())]


class Remedies(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to look at, which symptoms are known, and the rules, in the order they are tried.

    known: by symptom, its values in traces that ended well; none if its text does not matter.
    lists: the known members of lists. goal: looks that show whether all is well; they are
    made last. healthy: by symptom that a rule cures, its values at the end. moves: by rule, the
    symptoms that were different after it. apart: something that is said and a symptom that no fix
    is made for, which were never seen together.
    """

    looks: dict[str, Look] = {}
    goal: Sequence[str] = ()
    known: dict[str, list[Plain]] = {}
    lists: dict[str, list[Plain]] = {}
    healthy: dict[str, list[Plain]] = {}
    moves: dict[str, list[str]] = {}
    apart: Sequence[dict[str, Plain]] = ()
    rules: dict[str, Rule] = {}

    @property
    def tools(self) -> set[str]:
        """The tools that are called."""
        fixes = {call.tool for rule in self.rules.values() for call in rule.calls}
        return fixes | {look.tool for look in self.looks.values()}


class HandedOver(RoutineError):
    """The state is not fully explained by what was learnt. `done`: the fixes that were made."""

    code = "handed_over"

    def __init__(self, message: str, done: Sequence[str] = ()) -> None:
        made = f"; these fixes were made: {', '.join(done)}" if done else "; nothing was changed"
        super().__init__(f"{message}{made}", fix="go on by hand, and record how it was done")
        self.done = list(done)


class Ask(NamedTuple):
    """A call that a course wants. `rule`: the rule that it is a fix of; empty for a look."""

    name: str
    tool: str
    args: Json
    rule: str = ""
    expects: Sequence[str] = ()


def holds(facts: Mapping[str, Plain], state: State) -> bool:
    """Return whether all symptoms are there and have these values."""
    return all(name in state and same_plain(state[name], value) for name, value in facts.items())


def facts_in_words(facts: Mapping[str, Plain]) -> list[str]:
    """Say what the symptoms must be."""
    return [f"{name} is {short(value)}" for name, value in facts.items()]


def same_plain(one: Plain, other: Plain) -> bool:
    """Return whether two symptoms are the same. True is not a text, and not a number."""
    return type(one) is type(other) and one == other


class Findings:
    """What is known so far: the values of the request, and the newest result of each look."""

    def __init__(self, words: str) -> None:
        self.said, self.values = of_words(words)
        self.results: Json = {}
        self.members: Json = {}

    def add(self, name: str, result: Any, member: Any = None) -> None:
        """Take the result of a look."""
        self.results[name], self.members[name] = result, member

    def shown(self, name: str) -> Symptoms:
        """Return what the newest result of a look shows."""
        return of_result(name, self.results[name])

    def all(self, origin: Origin) -> list[Any]:
        """Return every value that an origin gives; one is what it should be."""
        if origin.always:
            return list(origin.always)
        if origin.said:
            found = [self.values[origin.said]] if origin.said in self.values else []
            numbers = [number_of(one) for one in found] if origin.is_number else found
            return [one for one in numbers if one is not None]
        if origin.look not in self.results:
            return []
        if origin.path == MEMBER:
            return [self.members[origin.look]]
        result = self.results[origin.look]
        found = every(result, origin.path) if origin.path else [result]
        if not origin.where:
            return found
        wanted = plain_text(self.values.get(origin.like) if origin.like else origin.equals)
        items = [one for one in found if plain_text(at(one, origin.where)) == wanted]
        return [at(one, origin.field) for one in items]

    def agreed(self, what: str, origins: Sequence[Origin]) -> Any:
        """Return the one value that all origins give. Raises HandedOver if they don't."""
        values: dict[str, Any] = {}
        for origin in origins:
            found = self.all(origin)
            if len(found) != 1 or found[0] is None:
                raise HandedOver(f"{what}: {origin} is {len(found)} values, not one")
            values.setdefault(plain_text(found[0]), found[0])
        if len(values) != 1:
            ways = " or ".join(map(short, values.values()))
            raise HandedOver(f"{what} may be {ways}: what explained it when recorded disagrees")
        return next(iter(values.values()))

    def arguments(self, of: Look | FixCall) -> Json:
        """Return the arguments of a call."""
        return {
            name: self.agreed(f"{name} of {of.tool}", origins) for name, origins in of.args.items()
        }

    def symptoms(self) -> Symptoms:
        """Return the symptoms of the request and of all results."""
        found = Symptoms()
        for one in (self.said, *map(self.shown, self.results)):
            found.update(one)
        return found


def plain_text(value: Any) -> str:
    """Return a text that equal values share: a number equals the same number as a text."""
    if value is None or isinstance(value, bool):
        return f"\0{value}"
    number = number_of(value)
    return str(value).strip() if number is None else str(float(number))


def number_of(value: Any) -> float | None:
    """Return a number, also of a text; None if it is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def at(value: Any, path: str) -> Any:
    """Return the one value at a path, else None."""
    found = every(value, path)
    return found[0] if len(found) == 1 else None


Course = Generator[Ask, Any, Any]
"""Yields the calls it wants and takes their results."""


class Cure:
    """One run of remedies. It makes no call itself: `course` yields them."""

    def __init__(self, remedies: Remedies, found: Findings) -> None:
        self.remedies, self.found = remedies, found
        self.done: list[str] = []
        self.state: State = {}
        self._first: State = {}
        # A symptom that is new since a fix: no further one is made.
        self._surprise = ""
        self._moved = {name for names in remedies.moves.values() for name in names}
        self._made: Counter[str] = Counter()

    def course(self) -> Course:
        """Look, fix what is certain, look again, until all is well. Returns the fixes made."""
        self._first = state = yield from self._examined()
        self._check_before_acting(state)
        rule = self.following(state)
        while rule:
            yield from self._fix(rule)
            if self.remedies.rules[rule].ends:
                return self.done
            before, state = state, (yield from self._examined())
            self._check_cured(rule, before, state)
            rule = self.following(state)
        self._check_settled(state)
        yield from self._check_goal(state)
        return self.done

    def following(self, state: State) -> str:
        """Return the rule that is made next; empty if there is none."""
        if self._surprise:
            return ""
        rules = self.remedies.rules
        for name, rule in rules.items():
            waits = any(rules[other].is_suggested(state) for other in rule.after if other in rules)
            is_left = self._made[name] < rule.most
            if is_left and not waits and not self._missing(rule, state):
                return name
        return ""

    def suggested(self, state: State) -> list[str]:
        """Return the rules that something speaks for."""
        rules = self.remedies.rules
        return [name for name, rule in rules.items() if rule.is_suggested(state)]

    # --- looking ----------------------------------------------------------------------------------

    def _examined(self) -> Generator[Ask, Any, State]:
        """Make all looks but those of the goal; return the state if every symptom is known."""
        for name, look in self.remedies.looks.items():
            if name not in self.remedies.goal:
                yield from self._looked(name, look)
        self.state = self._checked(self.found.symptoms())
        return self.state

    def _looked(self, name: str, look: Look) -> Course:
        args = self._arguments(look)
        if look.each is None:
            result = yield Ask(name, look.tool, args)
            self.found.add(name, result)
            return
        members = self.found.all(look.each)
        if len(members) > MOST_MEMBERS:
            raise self._over(f"{look.tool} would be called for {len(members)} records")
        records = []
        for member in members:
            result = yield Ask(name, look.tool, {**args, look.by: member})
            records.append((member, result))
        meant = [one for one in records if self.is_meant(look, one[1])]
        if len(meant) != 1:
            raise self._over(f"{len(meant)} results of {look.tool} are the one that is meant")
        self.found.add(name, meant[0][1], meant[0][0])

    def is_meant(self, look: Look, record: Any) -> bool:
        """Return whether a record of many is the one that it is about."""
        return all(
            plain_text(at(record, field)) == plain_text(self.found.agreed(field, [origin]))
            for field, origin in look.joins.items()
        )

    def _checked(self, symptoms: Symptoms) -> State:
        """Return the state. Raises HandedOver at a symptom that no success had."""
        remedies = self.remedies
        for name, members in remedies.lists.items():
            if name in symptoms.lists or name in symptoms.plain:
                for one in sorted(held_by(symptoms, name) - {*members}, key=str):
                    raise self._over(f"{name} has {short(one)}, which is new")
        made = {*self.found.results, SAID}
        expected = [name for name in remedies.known if source_of(name) in made]
        state = state_of(symptoms, remedies.lists, expected)
        for name, value in state.items():
            known = remedies.known.get(name)
            if known is None:
                raise self._over(f"{name} is new ({short(value)})")
            if not known or any(same_plain(value, one) for one in known):
                continue
            problem = f"{name} is {short(value)}, which was never put right"
            if self.done and self._is_known_elsewhere(name, state):
                continue
            if self.done and self._is_consequence(name):
                self._surprise = problem
            elif not (self.done and self._is_changed_unseen(name)):
                raise self._over(problem)
        return state

    def _is_known_elsewhere(self, name: str, state: State) -> bool:
        """Return whether another look shows a field of this name with this value, which is known.

        It is one record, and when it was recorded nobody looked again on both ways.
        """
        field, value = field_of(name), state[name]
        return any(
            other != name and field_of(other) == field and same_plain(shown, value)
            for other, shown in state.items()
            if any(same_plain(shown, one) for one in self.remedies.known.get(other, ()))
        )

    def _is_consequence(self, name: str) -> bool:
        """Return whether a symptom may be new because all is well now; the goal decides then.

        No fix was ever made for it.
        """
        goal = self.remedies.goal
        return bool(goal) and source_of(name) not in (SAID, *goal) and not self._made_for(name)

    def _is_changed_unseen(self, name: str) -> bool:
        """Return whether only fixes that were made are made for a symptom, and nobody looked again.

        Then it is no wonder that its value now was never seen.
        """
        rules = self._made_for(name)
        return bool(self.remedies.goal and rules) and all(
            self._made[other] and name not in rule.cures for other, rule in rules.items()
        )

    def _made_for(self, name: str) -> dict[str, Rule]:
        """Return the rules that have a symptom as a reason."""
        return {
            other: rule
            for other, rule in self.remedies.rules.items()
            if any(name in when for when in rule.when)
        }

    def _arguments(self, of: Look | FixCall) -> Json:
        try:
            return self.found.arguments(of)
        except HandedOver as error:
            raise self._over(error.message.partition(";")[0]) from None

    # --- fixing -----------------------------------------------------------------------------------

    def _fix(self, name: str) -> Course:
        rule = self.remedies.rules[name]
        planned = [(call, self._arguments(call)) for call in rule.calls]
        self._made[name] += 1
        for call, args in planned:
            yield Ask(name, call.tool, args, rule=name, expects=call.expects)
            self.done.append(call.tool)

    def _check_before_acting(self, state: State) -> None:
        """Hand over before anything is done if it is clear that the rules can't settle it."""
        for pair in self.remedies.apart:
            if holds(pair, state):
                both = " and ".join(facts_in_words(pair))
                raise self._over(f"{both}, which were never seen together")
        rules, moves = self.remedies.rules, self.remedies.moves
        suggested = self.suggested(state)
        for name in suggested:
            rule = rules[name]
            if not self._missing(rule, state):
                for call in rule.calls:
                    self._arguments(call)
                continue
            others = {one for other in suggested if other != name for one in moves.get(other, ())}
            for fact, value in self._missing(rule, state):
                if fact not in others:
                    raise self._over(self._unclear(name, fact, value, state))

    def _missing(self, rule: Rule, state: State) -> list[tuple[str, Plain]]:
        """Return what is not as it was whenever a fix was made.

        Where nobody who recorded it looked again after other fixes, the first look counts.
        """
        reasons = {name for one in rule.when for name in one}
        missing = []
        for name, value in rule.facts:
            is_lasting = name not in reasons and name not in self._moved
            fact = {name: value}
            if not holds(fact, state) and not (is_lasting and holds(fact, self._first)):
                missing.append((name, value))
        return missing

    def _unclear(self, name: str, fact: str, value: Plain, state: State) -> str:
        now = short(state[fact]) if fact in state else "not shown"
        return f"it is not clear whether {name} helps: {fact} is {now}, it was {short(value)}"

    def _check_cured(self, name: str, before: State, state: State) -> None:
        for fact in self.remedies.rules[name].cures:
            if fact in before and fact in state and same_plain(before[fact], state[fact]):
                raise self._over(f"{name} did not help: {fact} is still {short(state[fact])}")

    def _check_settled(self, state: State) -> None:
        """Hand over if a fix may be needed that is not certain, or that was made already."""
        for name in self.suggested(state):
            if self._surprise:
                raise self._over(self._surprise)
            rule = self.remedies.rules[name]
            if self._made[name] >= rule.most:
                raise self._over(f"{name} would be needed again")
            missing = self._missing(rule, state)
            if missing:
                raise self._over(self._unclear(name, *missing[0], state))
            raise self._over(f"{name} waits for {', '.join(rule.after)}")

    def _check_goal(self, state: State) -> Generator[Ask, Any, None]:
        for name, values in self.remedies.healthy.items():
            if name in state and not any(same_plain(state[name], one) for one in values):
                raise self._over(f"{name} is {short(state[name])} at the end")
        for name in self.remedies.goal:
            yield from self._looked(name, self.remedies.looks[name])
        self._checked(self.found.symptoms())

    def _over(self, message: str) -> HandedOver:
        return HandedOver(message, self.done)
