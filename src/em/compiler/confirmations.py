"""Confirmations: values that a request says beside the inputs, and that the routine's reads show.

`I'm Gus (gus@mail.example), please cancel W-7` says a name that no step needs. In each recording
the customer's record has it. So it becomes an input that may be left out; where it is given, it
must agree with that record before anything is written. Its words are a hole in a template, and
another name is understood: that of somebody else hands over.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from em.compiler.evidence import is_small
from em.compiler.example import Example
from em.compiler.forms import FIRST_WORD, LAST_WORD, VALUE, applied
from em.compiler.places import is_code, is_number
from em.compiler.request_templates import cut_out
from em.compiler.requested import is_named, stands_in
from em.compiler.term import unused
from em.redaction.redactor import MARKER
from em.values.canonical import Json
from em.values.leaves import scalars, texts


class Confirmed(NamedTuple):
    """A routine and its examples with the inputs that its reads confirm, and their names."""

    document: Json
    examples: Sequence[Example]
    names: Collection[str]


class Shown(NamedTuple):
    """A place in what a step reads, and the form of the value there."""

    step: str
    path: tuple[str, ...]
    form: str = VALUE

    @property
    def name(self) -> str:
        """What an input with its value is called."""
        return "_".join((self.step, *self.path))

    @property
    def expression(self) -> str:
        """How a check says it."""
        return self.form.replace(VALUE, ".".join((self.step, *self.path)))


def with_confirmations(
    document: Json, examples: Sequence[Example], saved: Sequence[Json]
) -> Confirmed:
    """Return a routine, and its examples, with the inputs that its reads confirm.

    saved: by example, what the steps of the routine saved.
    """
    names = [step["save_as"] for step in _first_reads(document["steps"]) if "save_as" in step]
    shown = [_shown({name: own[name] for name in names if name in own}) for own in saved]
    made, schema = [*examples], document["input_schema"]
    inputs: dict[str, tuple[Shown, int]] = {}
    for one, said in _told(examples, schema, shown):
        name = unused(one.name, {*schema.get("properties", {}), *texts(document["steps"])})
        kinds = {"number" if is_number(value) else "string" for value in said.values()}
        own = {"properties": {**schema.get("properties", {}), name: {"type": min(kinds)}}}
        wide = {
            number: made[number].with_inputs({**made[number].inputs, name: value})
            for number, value in said.items()
        }
        wider = {**schema, **own}
        # A request must still say each input apart from the others.
        wide = {number: each for number, each in wide.items() if _free(each, wider)}
        if len(kinds) == 1 and wide:
            made = [wide.get(number, each) for number, each in enumerate(made)]
            schema = wider
            inputs[name] = one, len(wide)
    steps = [*_checked(document, inputs)]
    return Confirmed({**document, "input_schema": schema, "steps": steps}, made, inputs.keys())


def _told(
    examples: Sequence[Example], schema: Json, shown: Sequence[Mapping[Shown, Any]]
) -> Iterator[tuple[Shown, dict[int, Any]]]:
    """Yield what requests say that a read shows, with its value by the number of the example.

    A word that a request says though the record has another one there is only a word. A small
    number or text may stand there by chance: requests must differ in it, or name it; and as many
    words are the first of some text, requests must differ in a part of a value.
    """
    free = [_free(one, schema) for one in examples]
    found: dict[Shown, dict[int, Any]] = defaultdict(dict)
    for number, own in enumerate(shown):
        for one, value in own.items():
            # A part of a value is said where the whole is not.
            forms = (VALUE,) if _stands(value, free[number]) else (FIRST_WORD, LAST_WORD)
            for form in forms:
                text = _part(form, value)
                if text is not None and _stands(text, free[number]):
                    found[one._replace(form=form)][number] = text
    differing: dict[Shown, set[Any]] = defaultdict(set)
    for one, values in found.items():
        differing[one._replace(form=VALUE)] |= {*values.values()}
    for one in sorted(found, key=lambda each: (each.form != VALUE, -len(found[each]))):
        place = one._replace(form=VALUE)
        said = {
            number: text
            for number, text in found[one].items()
            if all(
                text == _part(one.form, own[place]) or not _stands(text, words)
                for own, words in zip(shown, free, strict=True)
                if place in own
            )
        }
        is_value = len(differing[place] if one.form != VALUE else {*said.values()}) > 1
        if is_value or (one.form == VALUE and not _is_chance(one, said, examples)):
            yield one, said


def _is_chance(shown: Shown, said: Mapping[int, Any], examples: Sequence[Example]) -> bool:
    """Return whether what requests say is so small, and unnamed, that it may be anything's."""
    return not any(
        is_code(text) or not is_small(text) or is_named(shown.path, examples[number].request)
        for number, text in said.items()
    )


def _stands(value: Any, words: str) -> bool:
    return (is_number(value) or value in words) and stands_in(value, words)


def _part(form: str, value: Any) -> Any:
    return value if form == VALUE else applied(form, value)


def _checked(document: Json, inputs: Mapping[str, tuple[Shown, int]]) -> Iterator[Json]:
    """Yield the steps, each with the checks that inputs agree with what it read."""
    taken = {*texts(document["steps"])}
    for step in document["steps"]:
        own = [one for one in inputs.items() if one[1][0].step == step.get("save_as")]
        yield step
        for name, (one, held) in own:
            check = {"check": f"{one.expression} == {name}", "when": f"given({name})"}
            own_id = unused(f"check_{name}", taken)
            yield {"id": own_id, "type": "assert", **check, "held": f"{held}/{held}"}


def _first_reads(steps: Sequence[Json]) -> Iterator[Json]:
    """Yield the calls that every run makes before it writes."""
    for step in steps:
        if _writes(step):
            return
        if step["type"] == "tool.call" and "when" not in step:
            yield step


def _writes(step: Json) -> bool:
    return step.get("effect") == "write" or any(map(_writes, step.get("steps", ())))


def _free(example: Example, schema: Json) -> str:
    """Return the words of a request that are no input's; empty if they can't be told apart."""
    cut = cut_out(example, schema)
    return "" if cut is None else "\n".join(words for words, one in cut.parts if one is None)


def _shown(saved: Mapping[str, Any]) -> dict[Shown, Any]:
    """Return the texts and numbers of records that were read, outside of lists."""
    return {
        Shown(step, tuple(map(str, where))): value
        for step, result in saved.items()
        for where, value in scalars(result)
        if all(isinstance(one, str) and one.isidentifier() for one in where)
        if is_number(value) or (isinstance(value, str) and value.strip())
        if not MARKER.search(str(value))
    }
