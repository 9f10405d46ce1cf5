"""Promises: what a model must leave as it is in the routine that it rewrites.

A model may rename, describe, compute and loop. What the routine is given, what its tools are, what
it checks before it writes, and whom it asks is the draft's.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from em.compiler.draft import Draft
from em.runner.expressions.language import syntax_of
from em.values.canonical import Json, same
from em.values.leaves import is_informative, mentioned_in, scalars, texts
from em.values.syntax_tree import module_of

LONGEST_TEXT = 20_000
"""The most characters of one text in a model's routine."""
LONGEST_SHOWN = 80
_MODELS = ("description", "tools", "steps")
"""The only fields of a routine that a model may write; all others are the draft's."""
_ON_WRITES = ("when", "retry", "timeout", "idempotency_key", "parallel")
"""Fields of steps with an effect that are the draft's."""
_ACTING = ("args", "for_each", "over", "value", "prompt")
"""Fields of steps whose values go into calls, questions and results."""


class Placed(NamedTuple):
    """A step, and how many steps with an effect stand before it."""

    step: Json
    writes: int


class Steps:
    """The steps of a routine with those of its blocks. tools: as the draft declares them."""

    def __init__(self, steps: Sequence[Json], tools: Sequence[Json]) -> None:
        self._reads = {tool["name"] for tool in tools if tool.get("effect") == "read"}
        self.all: list[Placed] = []
        self._add(steps)

    def _add(self, steps: Sequence[Json]) -> None:
        for step in steps:
            writes = sum(self.is_write(one.step) for one in self.all)
            self.all.append(Placed(step, writes))
            self._add(step.get("steps", ()))

    def __iter__(self) -> Iterator[Json]:
        return (one.step for one in self.all)

    def is_write(self, step: Json) -> bool:
        """Return whether a step has an effect."""
        return step["type"] == "tool.call" and step["tool"] not in self._reads

    def acts(self, step: Json) -> bool:
        """Return whether a step or one in its block has an effect."""
        return self.is_write(step) or any(map(self.acts, step.get("steps", ())))

    def calling(self, target: str) -> list[Json]:
        """Return the steps that call a tool or a function."""
        return [step for step in self if target_of(step) == target]

    def saved(self, name: str) -> Json | None:
        """Return the step that saves its result under a name."""
        return next((step for step in self if step.get("save_as") == name), None)


def target_of(step: Json) -> str:
    """Return the tool or the function that a step calls, else its type."""
    return str(step.get("tool") or step.get("function") or step["type"])


def with_head_of(draft: Json, document: Json) -> Json:
    """Return a draft with the tools and steps of a model, before these are read."""
    return {**draft, **{name: document[name] for name in _MODELS if name in document}}


def with_what_stays(draft: Json, document: Json) -> Json:
    """Return a model's routine, which has the draft's head, with what is not the model's to say."""
    old, new = _both(draft, document)
    described = {tool["name"]: tool.get("description") for tool in document.get("tools", ())}
    called = {target_of(step) for step in new}
    tools = [
        {**tool, "description": described[tool["name"]]} if described.get(tool["name"]) else tool
        for tool in draft["tools"]
        if tool["name"] in called
    ]
    steps = [_kept(step, old, new) for step in document["steps"]]
    return {**document, "tools": tools, "steps": steps}


def _both(draft: Json, document: Json) -> tuple[Steps, Steps]:
    return Steps(draft["steps"], draft["tools"]), Steps(document["steps"], draft["tools"])


def _kept(step: Json, old: Steps, new: Steps) -> Json:
    """Return a step with what the draft expects of its result, and with its effect."""
    kept = {name: one for name, one in step.items() if name not in ("held", "effect")}
    if "steps" in step:
        kept["steps"] = [_kept(one, old, new) for one in step["steps"]]
    if step["type"] == "assert":
        known = [one for one in old if one["type"] == "assert" and one["check"] == step["check"]]
    elif step["type"] in ("tool.call", "udf.call"):
        known = old.calling(target_of(step))
        mine = [one is step for one in new.calling(target_of(step))]
        if len(known) == len(mine):
            known = [known[mine.index(True)]]
        kept.pop("expect", None)
    else:
        return kept
    # A step in the place of several expects what all of them did.
    shared = known[0] if known and all(_same_check(one, known[0]) for one in known) else {}
    added: Json = {name: shared[name] for name in ("expect", "held", "effect") if name in shared}
    return {**kept, **added}


def _same_check(one: Json, other: Json) -> bool:
    return same(one.get("expect"), other.get("expect"))


def broken_promises(draft: Json, document: Json) -> list[str]:
    """Return what a model changed that it must not change."""
    old, new = _both(draft, document)
    return [
        *_unbounded(document),
        *_inputs(draft, new),
        *_calls(old, new, {tool["name"] for tool in draft["tools"]}),
        *_conditions(old, new),
        *_questions(old, new),
        *_checks(old, new),
        *_end(document["steps"]),
    ]


def _unbounded(document: Json) -> Iterator[str]:
    for text in texts(document, names=True):
        if "{%" in text:
            yield "no {% %} in a routine: write an expression, or a function in udf.py"
            return
        if len(text) > LONGEST_TEXT:
            yield f"a text of more than {LONGEST_TEXT:,} characters"
            return


def _inputs(draft: Json, new: Steps) -> Iterator[str]:
    """Refuse results that are saved under the name of an input or a secret."""
    fixed = {*draft["input_schema"].get("properties", {})}
    fixed |= {secret["name"] for secret in draft.get("secrets", ())}
    for step in new:
        for name in {step.get("save_as"), *step.get("over", ()), step.get("as")} & fixed:
            yield f"step {step['id']}: {name} is an input; save under another name"


def _calls(old: Steps, new: Steps, tools: Collection[str]) -> Iterator[str]:
    for step in new:
        known, place = old.calling(target_of(step)), f"step {step['id']}"
        if step["type"] == "tool.call" and step["tool"] not in tools:
            yield f"{place}: the draft has no tool {step['tool']}"
        errors = ["fail", *(one.get("on_error") for one in known)]
        if step.get("on_error", "fail") not in errors:
            yield f"{place}: `on_error` is as in the draft; what fails must be seen"
        for name in _ON_WRITES if new.acts(step) or step["type"] == "prompt.user" else ():
            if name in step and not any(same(one.get(name), step[name]) for one in known):
                yield f"{place}: it has an effect or asks a person, so no `{name}` on it"


def _conditions(old: Steps, new: Steps) -> Iterator[str]:
    """Refuse conditions in values: the recordings can't show what they do on others."""
    known = {text for step in old for text in texts(_handed_on(step), names=True)}
    for step in new:
        for text in texts(_handed_on(step), names=True):
            if "{{" in text and text not in known and _chooses(text, f"step {step['id']}"):
                yield f"step {step['id']}: no condition or default in an expression: {text[:80]}"


def _handed_on(step: Json) -> list[Any]:
    over = [f"{{{{ {text} }}}}" for text in step.get("over", {}).values()]
    return [step[name] for name in _ACTING if name in step and name != "over"] + over


def _chooses(text: str, place: str) -> bool:
    from jinja2 import nodes

    tree = syntax_of(text, place)
    if next(tree.find_all((nodes.CondExpr, nodes.And, nodes.Or)), None) is not None:
        return True
    return any(found.name in ("default", "d") for found in tree.find_all(nodes.Filter))


def _questions(old: Steps, new: Steps) -> Iterator[str]:
    """Refuse other questions. That a person who says no is heard, replays show."""
    asked = [step["prompt"].get("fields") for step in old.calling("prompt.user")]
    if not same([step["prompt"].get("fields") for step in new.calling("prompt.user")], asked):
        yield f"there must be {len(asked)} prompt.user steps, with the fields that the draft has"


def _end(steps: Sequence[Json]) -> Iterator[str]:
    returns = [step for step in steps if step["type"] == "return"]
    if len(returns) != 1 or returns[0] is not steps[-1] or "when" in returns[0]:
        yield "there is one return step, the last one, without `when`"


# ---- checks


def _checks(old: Steps, new: Steps) -> Iterator[str]:
    """Refuse a routine that leaves out a check of the draft, or makes it of something else."""
    names = _new_names(old, new)
    # Whether an answer counts is shown by replays.
    answers = {step.get("save_as") for step in old.calling("prompt.user")}
    for step in old:
        if step["type"] in ("let", "for_each") and {"expect", "max"} & step.keys():
            fields = ("type", "expect", "max", "value", "over")
            wanted = [_renamed(step.get(field), names) for field in fields]
            if not any(same([one.get(field) for field in fields], wanted) for one in new):
                yield f"keep step {step['id']}: what it gives is checked"
    calls = [step for step in old if step["type"] in ("tool.call", "udf.call")]
    for target in dict.fromkeys(target_of(step) for step in calls if "expect" in step):
        known, found = old.calling(target), new.calling(target)
        is_one = bool(found) and all(_same_check(step, known[0]) for step in known)
        if len(found) < len(known) and not is_one:
            yield f"keep each call of {target}: what it returns is checked"
    for check, writes in old.all:
        if check["type"] != "assert" or answers.intersection(_names_in(check["check"])):
            continue
        wanted = _renamed(check["check"], names)
        kept = [
            one
            for one in new.all
            if one.step["type"] == "assert"
            and one.step["check"].strip() == wanted
            and one.writes <= writes
            and not {"when", "on_error"} & one.step.keys() - check.keys()
            and same(one.step.get("for_each"), _renamed(check.get("for_each"), names))
        ]
        if not kept:
            yield f"keep the assert `{wanted}` where it stands: it guards what follows"
        for name in _names_in(check["check"]):
            yield from _defined_alike(old.saved(name), new.saved(names.get(name, name)), names)


def _defined_alike(old: Json | None, new: Json | None, names: Mapping[str, str]) -> Iterator[str]:
    """Refuse a name of a check that is saved by another call, or computed in another way."""
    if old is None or old["type"] == "for_each":
        return
    fields = ("type", "tool", "function", "args", "value", "for_each", "when")
    if new is None or any(
        not same(new.get(field), _renamed(old.get(field), names)) for field in fields
    ):
        yield f"keep what is saved as {old['save_as']}: an assert needs it"


def _new_names(old: Steps, new: Steps) -> dict[str, str]:
    """Return how a model's routine calls the results of the draft, call by call of each target."""
    left = {target_of(step): [*new.calling(target_of(step))] for step in old}
    names: dict[str, str] = {}
    for step in old:
        several = left[target_of(step)]
        found = several.pop(0) if several else {}
        if "save_as" in step and "save_as" in found:
            names[step["save_as"]] = found["save_as"]
        for (one, text), (other, now) in zip(
            step.get("over", {}).items(), found.get("over", {}).items(), strict=False
        ):
            if same(_renamed(text, names), now):
                names[one] = other
    return {name: other for name, other in names.items() if name != other}


_NAME = re.compile(r"""(?<![\w."'])[A-Za-z_]\w*(?!["'])""")


def _names_in(expression: str) -> list[str]:
    return [*dict.fromkeys(_NAME.findall(expression))]


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a value with other names in its texts, to compare it with another one."""
    if isinstance(value, dict):
        return {key: _renamed(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, names) for one in value]
    if not isinstance(value, str):
        return value
    return _NAME.sub(lambda found: names.get(found[0], found[0]), value)


# ---- values


def hard_coded(draft: Draft, document: Json, code: str) -> list[str]:
    """Return the values of recordings that a routine or its functions have, and the draft not."""
    known, steps = _acting_text(draft.document), _acting_text(document)
    literals = {*_literals(code)}
    problems: dict[str, None] = {}
    for value in _recorded_values(draft):
        shown = value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}…"
        if mentioned_in(value, steps, exactly=True) and not mentioned_in(value, known):
            problems[f"{shown!r} is hard-coded in a step: take it from where it comes from"] = None
        if value in literals and not mentioned_in(value, known):
            problems[f"{shown!r} is hard-coded in udf.py: pass it as an argument"] = None
    return [*problems]


def _recorded_values(draft: Draft) -> dict[str, None]:
    """Return the values that were given, written and returned, as texts."""
    found: dict[str, None] = {}
    for one in draft.recordings:
        calls = [call.args for call in one.calls if call.error is None]
        for _, value in scalars([one.inputs, calls, one.output]):
            if is_informative(value):
                found[str(value)] = None
    return found


def _acting_text(document: Json) -> str:
    """Return the texts and values that the steps of a routine act with."""
    acting = [_handed_on(step) for step in Steps(document["steps"], ())]
    return "\n".join(str(value) for _, value in scalars(acting))


def _literals(code: str) -> Iterator[str]:
    """Yield the literals of Python code, without docstrings."""
    tree = module_of(code)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        value = (
            node.value if isinstance(node, ast.Constant) and id(node) not in docstrings else None
        )
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            yield str(value)
