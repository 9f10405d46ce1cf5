"""Recorded world: a trace as a world in which remedies are tried.

A look answers what was recorded after the fixes that were made so far. Where the recording made
several fixes before it looked again, each one changes what it is known to cure; what the recording
did not look at again counts as put right.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from em.compiler.calls import TracedCall
from em.compiler.diagnosis import Diagnosis, Shown
from em.compiler.homes import Example
from em.compiler.sources import quoted
from em.compiler.trials import folds_of, in_both_orders
from em.errors import EmError
from em.runner.expressions.functions import FUNCTIONS
from em.runner.machine import unexpected
from em.runner.remedies import Ask, Cure, Findings, Remedies
from em.runner.routine import fix_step
from em.runner.symptoms import Plain, Symptoms, held_by, of_result, source_of
from em.runner.trial import Trial, Trials, Verdict


def cured_in_trials(examples: Mapping[str, Example]) -> Trials:
    """Leave each trace out once, and try what the others teach on it."""
    made: dict[str, Trial] = {}
    shown = Shown()
    for left_out, others in folds_of(examples):
        try:
            remedies = Diagnosis([examples[name] for name in others], shown).remedies()
        except EmError as error:
            made |= {name: Trial(name, "handed over", error.message) for name in left_out}
            continue
        for name in left_out:
            made[name] = Trial(name, *tried(remedies, examples[name]))
    return Trials([made[name] for name in examples])


def tried(remedies: Remedies, example: Example) -> tuple[Verdict, str]:
    """Return how remedies do in the world of a trace, and why."""
    return in_both_orders(example, lambda one: _tried(remedies, one))


def _tried(remedies: Remedies, example: Example) -> tuple[Verdict, str]:
    world = RecordedWorld(example, remedies)
    problem = world.run()
    done = Counter(_key(call.name, call.args) for call in example.writes)
    excess = world.made - done
    if excess:
        return "wrong", f"it would make {', '.join(excess)}; that was not done"
    if problem:
        return "handed over", problem
    missing = done - world.made
    if missing and not world.has_ended:
        return "wrong", f"it would end without {', '.join(missing)}"
    return ("handed over", "a rule ends the run early") if missing else ("right", "")


class RecordedWorld(Findings):
    """What remedies find out in the world of a trace."""

    def __init__(self, example: Example, remedies: Remedies) -> None:
        super().__init__(example.said)
        self._example, self._remedies = example, remedies
        self.made: Counter[str] = Counter()
        self._rules: Counter[str] = Counter()
        self.has_ended = False
        self._calls: dict[str, tuple[str, Any]] = {}

    def run(self) -> str:
        """Follow the course of the remedies; return why it was handed over, if it was."""
        course = Cure(self._remedies, self).course()
        answer: Any = None
        try:
            while True:
                ask = course.send(answer)
                if not ask.rule:
                    answer = self._answer(ask)
                    continue
                answer = None
                self.made[_key(ask.tool, ask.args)] += 1
                self._rules[ask.rule] += 1
                self.has_ended = self._remedies.rules[ask.rule].ends
                if problem := self._surprise(ask):
                    return problem
        except StopIteration:
            return ""
        except EmError as error:
            return error.message

    def _surprise(self, ask: Ask) -> str:
        """Say what a run would not have expected of a fix; empty if it returned what it must."""
        key = _key(ask.tool, ask.args)
        same = [one for one in self._example.writes if _key(one.name, one.args) == key]
        if not same:
            return ""
        made = same[min(self.made[key], len(same)) - 1]
        step = fix_step(ask.rule, ask.tool, ask.expects)
        found = unexpected(step, dict(FUNCTIONS), made.result, ask.args)
        return "" if found is None else found.message

    def shown(self, name: str) -> Symptoms:
        """Return what a look shows now."""
        before, after = self._around(*self._calls[name])
        found = of_result(name, before.result)
        later = found if after is None else of_result(name, after.result)
        for rule in self._rules:
            for when in self._remedies.rules[rule].when:
                for fact, value in when.items():
                    if source_of(fact) == name:
                        self._cure(fact, value, found, later)
        return found

    def _cure(self, fact: str, value: Plain, found: Symptoms, later: Symptoms) -> None:
        """Change what a fix changes: to what was seen later, else to the only other known value."""
        listed = next((one for one in self._remedies.lists if fact.startswith(f"{one} has ")), "")
        if listed:
            member = fact.removeprefix(f"{listed} has ")
            later_held = {str(one) for one in held_by(later, listed)}
            held = {one for one in held_by(found, listed) if str(one) != member}
            has = member in later_held if later is not found else not value
            found.plain.pop(listed, None)
            found.lists[listed] = frozenset(held | {member} if has else held)
            return
        rules = self._remedies.rules.values()
        reasons = [when[fact] for rule in rules for when in rule.when if fact in when]
        others = [one for one in self._remedies.known[fact] if one not in reasons]
        if later is not found:
            others = [later.plain[fact]] if fact in later.plain else []
        if len(others) == 1 and fact in found.plain and found.plain[fact] == value:
            found.plain[fact] = others[0]

    def _answer(self, ask: Ask) -> Any:
        before, _ = self._around(ask.tool, ask.args)
        self._calls[ask.name] = ask.tool, ask.args
        return before.result

    def add(self, name: str, result: Any, member: Any = None) -> None:
        """Take the result of a look, and remember with which of many it was made."""
        super().add(name, result, member)
        look = self._remedies.looks[name]
        if look.each is not None:
            tool, args = self._calls[name]
            self._calls[name] = tool, {**args, look.by: member}

    def _around(self, tool: str, args: Any) -> tuple[TracedCall, TracedCall | None]:
        """Return the recorded look after the fixes made so far, and amid fixes the next one.

        A look that was recorded only later answers what it showed then.
        """
        left, wanted = Counter(self.made), quoted(args)
        before: TracedCall | None = None
        is_amid = False
        for call in self._example.calls:
            if call.effect == "write":
                key = _key(call.name, call.args)
                is_amid = is_amid or left[key] == 0
                left[key] -= 1
            elif call.name == tool and quoted(call.args) == wanted:
                if before is None or not is_amid:
                    before = call
                elif sum(self.made.values()):
                    return before, call
        if before is None:
            raise _not_recorded(tool)
        return before, None


def _not_recorded(tool: str) -> EmError:
    return EmError(f"{tool} was not recorded with these arguments")


def _key(tool: str, args: Any) -> str:
    return f"{tool} {quoted(dict(sorted(args.items())))}"
