"""Refusals of steps: what calls that failed teach about the calls of a routine that follows a way.

A plan has its reads as functions, and its checks are written with them: `copy(copy_id).state`. A
routine of steps has the same reads as steps before its calls with an effect, whose results have
names. Here such a check is written for them. A form of free words gets the checks as they are, with
the reads that they need.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from em.compiler.calls import TracedCall
from em.compiler.differences import in_expression, recorded_scope, with_names
from em.compiler.draft import Draft, Recorded
from em.compiler.goal_checks import part_of
from em.compiler.homes import Example, Kind
from em.errors import EmError
from em.runner.expressions.language import compile_expression, whole_expression
from em.runner.routine import ToolStep
from em.runner.task_plan import Plan, Read
from em.values.canonical import Json, identical

_READ = "em_read_{}"
"""Stands for a read in a check while the other names of it are replaced."""


class _Made(NamedTuple):
    """A read in a check: how it stands there, and the values of the effect that it is made with."""

    text: str
    ways: Sequence[Read]
    values: Sequence[str]

    def is_call(self, tool: str, args: Json, write: Json) -> bool:
        """Return whether a call is this read. write: the arguments of the call with an effect."""
        return any(tool == read.tool and self._fits(read, args, write) for read in self.ways)

    def _fits(self, read: Read, args: Json, write: Json) -> bool:
        given = dict(zip(read.given, self.values, strict=False))
        for name, value in read.args.items():
            hole = whole_expression(value) if isinstance(value, str) else None
            own = given.get(str(hole).strip())
            wanted = value if hole is None else write.get(own) if own else args.get(name)
            if not identical(args.get(name), wanted):
                return False
        return True


class StepRefusals:
    """The checks that refused calls teach, by tool and by text, each with the recorded error."""

    def __init__(self, plan: Plan | None = None) -> None:
        self._plan = plan or Plan()
        self.checks = {
            effect.tool: dict(effect.reasons)
            for effect in self._plan.effects.values()
            if effect.reasons
        }

    @classmethod
    def of(cls, examples: Mapping[str, Example]) -> "StepRefusals":
        """Return what traces teach. Most have no refused call, and nothing is looked for then."""
        every = list(examples.values())
        return cls(Kind(every).plan() if any(one.refused for one in every) else None)

    def needed(self, calls: Sequence[TracedCall]) -> set[int]:
        """Return the numbers of the calls in a trace whose results the checks look at."""
        found: set[int] = set()
        for number, write in enumerate(calls):
            if write.failed or write.name not in self.checks:
                continue
            for text in self.checks[write.name]:
                for made in self._reads_in(text):
                    found |= {
                        before
                        for before, call in enumerate(calls[:number])
                        if not call.failed and made.is_call(call.name, call.args, write.args)
                    }
        return found

    def guarded(self, draft: Draft) -> Draft:
        """Return a draft whose calls have the checks that hold in its recording."""
        numbers = {item.step: number for number, item in enumerate(draft.recording)}
        acting = [
            step
            for step in draft.routine.steps
            if isinstance(step, ToolStep) and step.tool in self.checks and step.id in numbers
        ]
        if not any(step.for_each is None for step in acting):
            return draft
        draft = with_names(draft, ())
        scope = recorded_scope(draft, draft)
        steps = list(draft.routine.steps)
        for place, step in enumerate(steps):
            if not isinstance(step, ToolStep) or step.for_each is not None:
                continue
            found: dict[str, str] = {}
            for text, error in self.checks.get(step.tool, {}).items():
                written = self._written(text, step, draft, numbers[step.id])
                if written is not None and _holds(written, scope):
                    found[written] = error
            if found:
                guards = tuple(dict.fromkeys([*step.guards, *found]))
                steps[place] = msgspec.structs.replace(step, guards=guards, reasons=found)
        routine = msgspec.structs.replace(draft.routine, steps=steps)
        return msgspec.structs.replace(draft, routine=routine)

    def in_form(self, form: Plan) -> Plan:
        """Return a form of free words with the checks that need no more than its values."""
        effects, reads = dict(form.effects), dict(form.reads)
        for name, effect in form.effects.items():
            found: dict[str, str] = {}
            for text, error in self.checks.get(effect.tool, {}).items():
                needed = self._form_reads(text)
                fits = needed is not None and all(
                    reads.get(own, ways) == ways for own, ways in needed.items()
                )
                if needed is not None and fits:
                    found[text] = error
                    reads |= needed
            guards = list(dict.fromkeys([*found, *effect.guards]))  # they tell the error
            effects[name] = msgspec.structs.replace(
                effect, guards=guards, reasons={**effect.reasons, **found}
            )
        return msgspec.structs.replace(form, effects=effects, reads=reads)

    def _form_reads(self, text: str) -> dict[str, list[Read]] | None:
        """Return the reads of a check; None if one is made with more than values of the effect."""
        found: dict[str, list[Read]] = {}
        for made in self._reads_in(text):
            ways = [read for read in made.ways if _is_given(read)]
            if not ways:
                return None
            found[made.text.partition("(")[0]] = ways
        return found

    def _reads_in(self, text: str) -> Iterator[_Made]:
        names = "|".join(map(re.escape, self._plan.reads))
        for call in re.finditer(rf"(?<![\w.\"])({names})\(([\w, ]*)\)", text) if names else ():
            values = [one.strip() for one in call[2].split(",") if one.strip()]
            yield _Made(call[0], self._plan.reads[call[1]], values)

    def _written(self, text: str, step: ToolStep, draft: Draft, number: int) -> str | None:
        """Return a check over the names of a draft; None if it lacks something that it needs."""
        results: dict[str, str] = {}
        saved = {one.id: one.save_as for one in draft.routine.steps}
        for made in self._reads_in(text):
            read = _last(made, draft.recording[:number], draft.recording[number].args)
            name = None if read is None else saved.get(read.step)
            if name is None:
                return None
            results[_READ.format(len(results))] = name
            text = text.replace(made.text, _READ.format(len(results) - 1))
        for name in step.args:
            value = part_of(step.args, (name,))
            own = in_expression(text, name, f"({value})")
            if own != text and value is None:
                return None
            text = in_expression(text, name, str(value)) if str(value).isidentifier() else own
        for stand_in, name in results.items():
            text = in_expression(text, stand_in, name)
        return text


def _last(made: _Made, before: Sequence[Recorded], write: Json) -> Recorded | None:
    """Return the last call that is this read; None if it may be one of several."""
    found = [item for item in before if made.is_call(item.name, item.args, write)]
    is_one = found and all(identical(item.args, found[0].args) for item in found)
    return found[-1] if is_one else None


def _is_given(read: Read) -> bool:
    holes = [whole_expression(value) for value in read.args.values() if isinstance(value, str)]
    return all(str(hole).strip() in read.given for hole in holes if hole is not None)


def _holds(text: str, scope: Json) -> bool:
    try:
        return bool(compile_expression(text, "")(scope))
    except EmError:
        return False
