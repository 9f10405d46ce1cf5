"""The draft of a routine whose rules were learnt from traces of repairs."""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from em.compiler.calls import specs_of
from em.compiler.diagnosis import Diagnosis
from em.compiler.draft import Draft
from em.compiler.homes import Example
from em.compiler.kind_draft import draft_of
from em.compiler.recorded_world import cured_in_trials
from em.compiler.sources import quoted
from em.compiler.trials import REQUEST, refuse_wrong
from em.runner.remedies import Remedies
from em.runner.routine import ReturnStep, Routine, RulesStep, Step, ToolSpec
from em.runner.symptoms import of_words
from em.values.canonical import Json

RULES = "rules"
"""The id of the step that follows the rules."""
DONE = "done"
"""The name of its result."""
FEWEST_TRACES = 3


def draft_rules(
    examples: Mapping[str, Example], *, name: str, goals: Collection[str], force: bool = False
) -> Draft | None:
    """Learn rules from traces, and try them on each of them; None if they are no repairs.

    goals: what the traces were for. force: return the rules though a trial was wrong.
    """
    if not _are_repairs(list(examples.values())):
        return None
    remedies = Diagnosis(list(examples.values())).remedies()
    has_goal = remedies.goal or remedies.healthy
    if not has_goal or not any(rule.cures for rule in remedies.rules.values()):
        return None
    made = cured_in_trials(examples)
    refuse_wrong(made, force=force)
    # A goal that not all traces have may be the words of one person.
    about = next(iter(goals)) if len(goals) == 1 else f"Puts right: {', '.join(remedies.rules)}"
    return draft_of(_routine(remedies, name, about, examples.values()), RULES, examples, made)


def _are_repairs(examples: list[Example]) -> bool:
    """Return whether the traces look, act on what they saw, and look again.

    The same words must have led to different calls: then the words don't say what to do.
    """
    acting = [one for one in examples if one.writes]
    looking = [one for one in acting if _sees_a_change(one)]
    if len(examples) < FEWEST_TRACES or not acting or len(looking) * 2 < len(acting):
        return False
    done: dict[frozenset[str], set[frozenset[str]]] = {}
    for one in examples:
        words = frozenset(of_words(one.said)[0].plain)
        done.setdefault(words, set()).add(frozenset(call.name for call in one.writes))
    return any(len(tools) > 1 for tools in done.values())


def _sees_a_change(example: Example) -> bool:
    """Return whether a read gave another result after a call with an effect."""
    seen: dict[str, tuple[int, str]] = {}
    writes = 0
    for call in example.calls:
        if call.effect == "write":
            writes += 1
            continue
        key, result = quoted([call.name, call.args]), quoted(call.result)
        before = seen.get(key)
        if before and before[0] < writes and before[1] != result:
            return True
        seen[key] = writes, result
    return False


def _routine(
    remedies: Remedies, name: str, description: str, examples: Iterable[Example]
) -> Routine:
    step = RulesStep(
        id=RULES,
        looks=remedies.looks,
        goal=remedies.goal,
        known=remedies.known,
        lists=remedies.lists,
        healthy=remedies.healthy,
        moves=remedies.moves,
        apart=remedies.apart,
        rules=remedies.rules,
        save_as=DONE,
    )
    steps: list[Step] = [step, ReturnStep(id="return", value=f"{{{{ {DONE} }}}}")]
    reads = {look.tool for look in remedies.looks.values()}
    known = specs_of(call for example in examples for call in example.calls)
    tools = [
        msgspec.structs.replace(
            known.get(tool, ToolSpec(name=tool)),
            effect="read" if tool in reads else "write",
            effect_inferred=False,
        )
        for tool in sorted(remedies.tools)
    ]
    schema: Json = {
        "type": "object",
        "properties": {REQUEST: {"type": "string"}},
        "required": [REQUEST],
        "additionalProperties": False,
    }
    return Routine(
        name=name, description=description, tools=tools, input_schema=schema, steps=steps
    )
