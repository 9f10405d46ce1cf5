"""Diagnosis: rules that traces of repairs teach. Which fix was made at which symptoms, and why.

A trace is a line of looks and fixes. A fix is one call or several that always come together. The
states in which it was made are compared with those after which it was never made, in traces that
ended well. What a look showed counts until a fix is made that may have changed it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import msgspec

from em.compiler.calls import TracedCall
from em.compiler.expectations import expectations
from em.compiler.homes import Example
from em.compiler.looks import Looks, Occurrence, is_enough, origins_of
from em.compiler.reasons import FEWEST, Effects, Evidence, Fact, Reasons, Snapshot
from em.compiler.sources import quoted
from em.runner.remedies import FixCall, Remedies, Rule, State
from em.runner.symptoms import (
    MISSING,
    SAID,
    Plain,
    Symptoms,
    of_result,
    of_words,
    source_of,
    state_of,
)


class Moment(NamedTuple):
    """A time in a trace: the look that was made, or the fix that begins."""

    look: str = ""
    symptoms: Symptoms | None = None
    fix: str = ""


class Diagnosis:
    """What traces of repairs have in common."""

    def __init__(self, examples: Sequence[Example], shown: "Shown | None" = None) -> None:
        self._examples = examples
        self._shown = Shown() if shown is None else shown
        self._looks = Looks(examples)
        self._fixes = _Fixes(self._looks)
        self.lines = [self._line(number) for number in range(len(examples))]

    def _line(self, number: int) -> list[Moment]:
        """Return the looks and fixes of a trace in their order."""
        line: list[Moment] = []
        for seen in self._looks.calls(number):
            fix = self._fixes.begun.get((number, seen.call.index), "")
            if seen.look:
                line.append(Moment(seen.look, self._shown.by(seen.look, seen.call)))
            elif fix:
                line.append(Moment(fix=fix))
        return line

    # --- what the traces are like -----------------------------------------------------------------

    @cached_property
    def goal(self) -> list[str]:
        """The looks that were made only when nothing was left to fix, and after all others."""
        early = {
            one.look
            for line in self.lines
            for number, one in enumerate(line)
            if one.look and any(later.fix for later in line[number:])
        }
        late: Counter[str] = Counter()
        for line in self.lines:
            if any(one.fix for one in line):
                late.update({one.look for one in line if one.look} - early)
        last = {line[-1].look for line in self.lines if line}
        return [name for name in self._looks.looks if late[name] >= FEWEST and name in last]

    @cached_property
    def is_whole(self) -> list[bool]:
        """By trace: whether it ended well, with a look at the goal, and all of its fixes are known.

        A trace that just stops after a fix, such as a call for a person, did not put things right.
        """
        counts = Counter(fix for line in self.lines for fix in {one.fix for one in line if one.fix})
        found = []
        for line in self.lines:
            looks = {one.look for one in line}
            has_goal = looks.issuperset(self.goal) and bool(line) and not line[-1].fix
            found.append(has_goal and all(counts[one.fix] >= FEWEST for one in line if one.fix))
        return found

    @cached_property
    def lists(self) -> dict[str, list[Plain]]:
        """The members of lists. A list of ids says nothing about a state."""
        found: dict[str, set[Plain]] = {}
        plain: dict[str, set[Plain]] = {}
        for line in self.lines:
            for one in line:
                for name, held in one.symptoms.lists.items() if one.symptoms else ():
                    found.setdefault(name, set()).update(held)
                for name, value in one.symptoms.plain.items() if one.symptoms else ():
                    plain.setdefault(name, set()).add(value)
        return {
            name: sorted(held | plain.get(name, set()), key=str)
            for name, held in found.items()
            if not any(isinstance(one, str) and _has_digit(one) for one in held)
        }

    @cached_property
    def free(self) -> set[str]:
        """The symptoms whose text does not matter: it differs from trace to trace, and stays."""
        values: dict[str, dict[int, set[Plain]]] = {}
        for number, line in enumerate(self.lines):
            for one in [Moment("", of_words(self._examples[number].said)[0]), *line]:
                for name, value in one.symptoms.plain.items() if one.symptoms else ():
                    values.setdefault(name, {}).setdefault(number, set()).add(value)
        found = set()
        for name, by_trace in values.items():
            distinct = set().union(*by_trace.values())
            stays = all(len(own) == 1 for own in by_trace.values())
            is_text = all(isinstance(one, str) for one in distinct)
            if stays and is_text and len(distinct) > max(2, len(by_trace) / 2):
                found.add(name)
        return found

    @cached_property
    def _all_states(self) -> list[list[dict[str, Plain]]]:
        """By trace and time: what a look showed; nothing for a fix."""
        plain = [
            [{} if one.symptoms is None else state_of(one.symptoms, self.lists) for one in line]
            for line in self.lines
        ]
        expected: dict[str, dict[str, None]] = {}
        for line, states in zip(self.lines, plain, strict=True):
            for one, state in zip(line, states, strict=True):
                expected.setdefault(one.look, {}).update(dict.fromkeys(state))
        return [
            [self._filled(state, expected[one.look]) for one, state in zip(line, own, strict=True)]
            for line, own in zip(self.lines, plain, strict=True)
        ]

    @cached_property
    def _said(self) -> list[dict[str, Plain]]:
        plain = [state_of(of_words(example.said)[0], {}) for example in self._examples]
        expected = {name: None for state in plain for name in state}
        return [self._filled(state, expected) for state in plain]

    def _filled(self, state: Mapping[str, Plain], expected: Iterable[str]) -> dict[str, Plain]:
        """Return a state with what is missing in it, and without texts that don't matter."""
        return {name: state.get(name, MISSING) for name in expected if name not in self.free}

    @cached_property
    def _varied(self) -> set[str]:
        """The symptoms that had more than one value."""
        found: dict[str, set[Plain]] = {}
        for states in (self._said, *self._all_states):
            for state in states:
                for name, value in state.items():
                    found.setdefault(name, set()).add(value)
        return {name for name, values in found.items() if len(values) > 1}

    # --- what fixes change ------------------------------------------------------------------------

    @cached_property
    def _effects(self) -> "Effects":
        return Effects(
            interval for number in range(len(self.lines)) for interval in self._intervals(number)
        )

    def _intervals(self, number: int) -> Iterator[tuple[frozenset[str], State, State]]:
        """Yield the fixes between two equal looks of a trace, and what both showed."""
        line = self.lines[number]
        last: dict[str, tuple[int, State]] = {}
        for time, (one, state) in enumerate(zip(line, self._all_states[number], strict=True)):
            if one.look:
                if one.look in last:
                    since, before = last[one.look]
                    fixes = frozenset(other.fix for other in line[since:time] if other.fix)
                    yield fixes, before, state
                last[one.look] = time, state

    def _knowledge(self, number: int, *, is_strict: bool) -> list[dict[str, Plain]]:
        """Return what was known in a trace before each time and at its end, as far as it held.

        What was seen before a fix holds if the fix is known not to change it, or, unless strict, if
        nothing is known to change it.
        """
        said = self._said[number]
        known: dict[str, Plain] = dict(said)
        found = []
        lost: set[str] = set()
        for one, state in zip(self.lines[number], self._all_states[number], strict=True):
            if is_strict or one.look:
                # Several fixes in a row were all made for what was seen before the first.
                known = {name: value for name, value in known.items() if name not in lost}
                lost = set()
            found.append(dict(known))
            if one.fix:
                lost |= self._effects.lost(one.fix, known, is_strict=is_strict) - said.keys()
            known |= state
        return [*found, {name: value for name, value in known.items() if name not in lost}]

    def _seen_last(self, number: int, time: int) -> dict[str, Plain]:
        """Return what was seen last of every symptom, whether it still held or not."""
        found: dict[str, Plain] = dict(self._said[number])
        for state in self._all_states[number][:time]:
            found |= state
        return found

    # --- rules ------------------------------------------------------------------------------------

    def remedies(self) -> Remedies:
        """Return what the traces teach. Raises RoutineError if they contradict each other."""
        names = {name for states in self._all_states for state in states for name in state}
        self._effects.assume_same_names(name for name in names if ": " in name)
        for one in self._rules():
            # A fix changes what it is made for, also where nobody looked again.
            self._effects.assume(one.fix, {name for when in one.rule.when for name in when})
        rules = self._rules()
        covered = {one for rule in rules for one in rule.made}
        known = self._known(rules, covered)
        order = self._ordered(rules)
        named = {one.name: one.rule for one in order}
        cured = {name for one in named.values() for name in one.cures}
        return Remedies(
            looks=self._looks.looks,
            goal=self.goal,
            known=known,
            lists=dict(self.lists),
            healthy={} if self.goal else self._last_values(covered, cured),
            moves={one.name: sorted(self._effects.moved.get(one.fix, ())) for one in order},
            apart=self._apart(order, covered),
            rules=named,
        )

    def _rules(self) -> "list[_Learnt]":
        learnt: list[_Learnt] = []
        known = [self._knowledge(number, is_strict=False) for number in range(len(self.lines))]
        fixes = [[one.fix for one in line] for line in self.lines]
        evidence = Evidence(self._negatives(), fixes, self._varied)
        for fix in self._fixes.chains:
            positives = [
                Snapshot(number, time, known[number][time])
                for number, line in enumerate(self.lines)
                for time, one in enumerate(line)
                if one.fix == fix
            ]
            seen = {one[:2]: self._seen_last(*one[:2]) for one in positives}
            reasons = Reasons(fix, positives, seen, evidence, self._effects)
            for number, (made, when, given) in enumerate(reasons.all()):
                name = fix if not number else f"{fix} {number + 1}"
                rule = self._rule(fix, made, when, given)
                learnt.append(_Learnt(name, fix, rule, frozenset((s.trace, s.time) for s in made)))
        return [self._without_others(one, learnt) for one in learnt]

    def _negatives(self) -> list[Snapshot]:
        """Return what was known after each look, in traces that ended well."""
        found = []
        for number, line in enumerate(self.lines):
            if self.is_whole[number]:
                states = self._knowledge(number, is_strict=True)
                found += [
                    Snapshot(number, time, states[time])
                    for time in range(len(line) + 1)
                    if time == len(line) or line[time].fix or line[time - 1].look
                ]
        return found

    def _rule(
        self, fix: str, made: Sequence[Snapshot], when: list[dict[str, Plain]], given: State
    ) -> Rule:
        per_trace = Counter(one.trace for one in made)
        ends = all(
            one.time + 1 == len(self.lines[one.trace]) and not self.is_whole[one.trace]
            for one in made
        )
        return Rule(
            calls=(),
            when=when,
            given=dict(given),
            cures=[] if ends else self._cured(fix, when),
            most=max(per_trace.values()),
            ends=ends,
        )

    def _cured(self, fix: str, when: Sequence[Mapping[str, Plain]]) -> list[str]:
        """Return the reasons for a fix that were different whenever somebody looked after it."""
        names = {name for one in when for name in one}
        return sorted(name for name in names if self._effects.always_changes(fix, name))

    def _without_others(self, one: "_Learnt", learnt: "Sequence[_Learnt]") -> "_Learnt":
        """Return a rule that does not require what is about the fault of another rule.

        Faults come together by chance. So it is no reason for this fix that another fault was never
        there, or that it was always there and had been fixed.
        """
        own = {name for conjunction in one.rule.when for name in conjunction}
        dropped = set()
        for other in learnt:
            if other.fix == one.fix:
                continue
            is_fixed = all(self._is_made_before(other.fix, *moment) for moment in one.made)
            for name, value in (fact for when in other.rule.when for fact in when.items()):
                is_absent = name in other.rule.cures and one.rule.given.get(name, value) != value
                is_theirs = is_absent or (is_fixed and source_of(name) != SAID)
                if name not in own and is_theirs:
                    dropped.add(name)
        reasons = {fact for other in learnt for when in other.rule.when for fact in when.items()}
        dropped |= {name for name in one.rule.given if self._follows(name, reasons)}
        given = {name: value for name, value in one.rule.given.items() if name not in dropped}
        return one._replace(rule=msgspec.structs.replace(one.rule, given=given))

    def _is_made_before(self, fix: str, number: int, time: int) -> bool:
        return any(one.fix == fix for one in self.lines[number][:time])

    # --- what is known ----------------------------------------------------------------------------

    def _is_taught(self, number: int, covered: set[tuple[int, int]]) -> bool:
        """Return whether a trace ended well, by fixes that all have a rule."""
        fixes = [(number, time) for time, one in enumerate(self.lines[number]) if one.fix]
        return self.is_whole[number] and covered.issuperset(fixes)

    def _known(
        self, rules: "Sequence[_Learnt]", covered: set[tuple[int, int]]
    ) -> dict[str, list[Plain]]:
        """Return the values of symptoms that were put right or did no harm."""
        known: dict[str, set[Plain]] = {}
        for number in range(len(self.lines)):
            if self._is_taught(number, covered):
                for state in (self._said[number], *self._all_states[number]):
                    for name, value in state.items():
                        known.setdefault(name, set()).add(value)
        for one in rules:
            for facts in (one.rule.given, *one.rule.when) if one.rule.ends else ():
                for name, value in facts.items():
                    known.setdefault(name, set()).add(value)
        found = {name: sorted(values, key=str) for name, values in known.items()}
        return found | {name: [] for name in sorted(self.free)}

    def _apart(
        self, rules: "Sequence[_Learnt]", covered: set[tuple[int, int]]
    ) -> list[dict[str, Plain]]:
        """Return what is said and what is seen that never came together in a trace that ended well.

        A value that needs no fix may do harm elsewhere, or to somebody who wants something else.
        """
        reasons = {fact for one in rules for when in one.rule.when for fact in when.items()}
        together: dict[Fact, set[Fact]] = {}
        for number in range(len(self.lines)):
            if self._is_taught(number, covered):
                moments = zip(self.lines[number], self._all_states[number], strict=True)
                states = [state for one, state in moments if one.look not in self.goal]
                shown = {fact for state in states for fact in state.items()}
                for fact in self._said[number].items():
                    together.setdefault(fact, set()).update(shown)
        known = set().union(*together.values()) - reasons
        return [
            dict([said, fact])
            for said in sorted(together, key=str)
            for fact in sorted(known - together[said], key=str)
            # What a fix changes has the rule of that fix.
            if not self._effects.movers(fact[0])
        ]

    def _follows(self, name: str, reasons: Iterable[Fact]) -> bool:
        """Return whether a symptom follows from others: several fixes change it, none is for it."""
        return len(self._effects.movers(name)) > 1 and not any(name == one for one, _ in reasons)

    def _last_values(
        self, covered: set[tuple[int, int]], names: set[str]
    ) -> dict[str, list[Plain]]:
        """Return the values of symptoms at the end of traces that ended well."""
        found: dict[str, set[Plain]] = {}
        for number in range(len(self.lines)):
            if self._is_taught(number, covered):
                state = self._knowledge(number, is_strict=False)[-1]
                for name in names & state.keys():
                    found.setdefault(name, set()).add(state[name])
        return {name: sorted(found[name], key=str) for name in sorted(found)}

    # --- order ------------------------------------------------------------------------------------

    def _ordered(self, rules: "Sequence[_Learnt]") -> "list[_Learnt]":
        """Return the rules in the order of the traces, each with its calls and those before it."""
        before: set[tuple[str, str]] = set()
        places: dict[str, list[float]] = {}
        for line in self.lines:
            fixes = list(dict.fromkeys(one.fix for one in line if one.fix))
            before |= set(combinations(fixes, 2))
            for time, one in enumerate(line):
                if one.fix:
                    places.setdefault(one.fix, []).append(time / len(line))
        left = sorted(rules, key=lambda one: sum(places[one.fix]) / len(places[one.fix]))
        found = []
        while left:
            names = {one.fix for one in left}
            following = next(
                (
                    one
                    for one in left
                    if not any(_is_before(other, one.fix, before) for other in names)
                ),
                left[0],
            )
            left.remove(following)
            found.append(following)
        return [self._complete(one, found, before) for one in found]

    def _complete(
        self, one: "_Learnt", rules: "Sequence[_Learnt]", before: set[tuple[str, str]]
    ) -> "_Learnt":
        after = [other.name for other in rules if _is_before(other.fix, one.fix, before)]
        calls = self._fixes.calls(one.fix, {name for when in one.rule.when for name in when})
        return one._replace(rule=msgspec.structs.replace(one.rule, calls=calls, after=after))


class _Learnt(NamedTuple):
    """A rule, its name, its fix, and when in the traces it was made."""

    name: str
    fix: str
    rule: Rule
    made: frozenset[tuple[int, int]]


def _is_before(one: str, other: str, before: set[tuple[str, str]]) -> bool:
    return (one, other) in before and (other, one) not in before


def _has_digit(text: str) -> bool:
    return any(char.isdigit() for char in text)


class Shown:
    """What calls show, found out once for each."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[TracedCall, Symptoms]] = {}

    def by(self, look: str, call: TracedCall) -> Symptoms:
        """Return the symptoms that a call showed."""
        key = look, id(call)
        if key not in self._known:
            # The call is kept, so that its id is not used again.
            self._known[key] = call, of_result(look, call.result)
        return self._known[key][1]


class _Fixes:
    """Calls with an effect, put together where they always come together."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._tools: dict[str, str] = {}
        self._values: dict[str, dict[str, list[Occurrence]]] = {}
        self._made: dict[str, list[TracedCall]] = {}
        self._keys: dict[tuple[int, int], str] = {}
        by_tool: dict[str, list[tuple[int, TracedCall]]] = {}
        for number, example in enumerate(looks.examples):
            for call in example.writes:
                by_tool.setdefault(call.name, []).append((number, call))
        for tool, made in by_tool.items():
            self._name(tool, made)
        self.begun: dict[tuple[int, int], str] = {}
        self.chains: dict[str, list[str]] = {}
        self._join()

    def calls(self, fix: str, reasons: Collection[str]) -> list[FixCall]:
        """Return the calls of a fix. An argument without enough evidence has no origin."""
        found = []
        for key in self.chains[fix]:
            args = {}
            for name, occurrences in self._values[key].items():
                origins = origins_of(occurrences)
                is_known = is_enough(name, origins, occurrences, reasons)
                args[name] = origins if is_known else []
            first, *others = self._made[key]
            expects = expectations(first, others)
            found.append(FixCall(tool=self._tools[key], args=args, expects=expects))
        return found

    def _name(self, tool: str, made: Sequence[tuple[int, TracedCall]], name: str = "") -> None:
        """Give calls of a tool a name. Where nothing explains an argument, each value is a fix."""
        by_name: dict[str, list[Occurrence]] = {}
        for argument in {key: None for _, call in made for key in call.args}:
            occurrences = self._looks.occurrences(made, argument)
            values = {quoted(one.value) for one in occurrences}
            is_few = 1 < len(values) <= len(made) / FEWEST
            if is_few and not is_enough(argument, origins_of(occurrences), occurrences):
                for value in sorted(values):
                    own = [one for one in made if quoted(one[1].args.get(argument)) == value]
                    self._name(tool, own, f"{name or tool} {value.strip(chr(34))}")
                return
            by_name[argument] = occurrences
        self._tools[name or tool], self._values[name or tool] = tool, by_name
        self._made[name or tool] = [call for _, call in made]
        for number, call in made:
            self._keys[number, call.index] = name or tool

    def _join(self) -> None:
        """Put a call that always follows another one, and never comes first, behind that one."""
        following: dict[str, set[str]] = {}
        firsts: set[str] = set()
        numbers = range(len(self._looks.examples))
        groups = [group for number in numbers for group in self._of(number)]
        for group in groups:
            firsts.add(group[0][1])
            for (_, one), other in zip(group, [*group[1:], None], strict=True):
                following.setdefault(one, set()).add("" if other is None else other[1])
        joined: set[str] = set()
        for key in following:
            before = {one for one, others in following.items() if key in others}
            if key not in firsts and all(following[one] == {key} for one in before):
                joined.add(key)
        for group in groups:
            name = ""
            for place, key in group:
                if key in joined:
                    continue
                name = self._whole(key, following, joined)
                self.begun[place] = name

    def _whole(self, key: str, following: Mapping[str, set[str]], joined: set[str]) -> str:
        chain = [key]
        while following[chain[-1]] & joined and len(following[chain[-1]]) == 1:
            (after,) = following[chain[-1]]
            if after in chain:
                break
            chain.append(after)
        self.chains[key] = chain
        return key

    def _of(self, number: int) -> Iterator[list[tuple[tuple[int, int], str]]]:
        """Yield the calls with an effect of a trace that no read separates."""
        group: list[tuple[tuple[int, int], str]] = []
        for call in self._looks.examples[number].calls:
            if call.effect == "write":
                group.append(((number, call.index), self._keys[number, call.index]))
            elif group:
                yield group
                group = []
        if group:
            yield group
