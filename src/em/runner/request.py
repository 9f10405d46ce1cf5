"""Request: what a person asked for in words becomes the typed inputs of a routine, in this place.

A request that is word for word a recorded one gives its inputs by a template. Otherwise a model may
fill in the input schema, once; code then checks each of its values against the request. Where both
leave something open, the run asks for it or hands over. No list of words decides anything here.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from em.runner.routine import Routine
from em.runner.run import REQUEST
from em.values import json_schema
from em.values.canonical import Json, same, short
from em.values.leaves import scalars

if TYPE_CHECKING:
    from em.llm.client import LlmClient

LONGEST_READ = 20_000
"""Characters of a request that is read, by a model, a person or code: a longer one is a document
that somebody pasted, and hands over unless it is word for word a recorded one."""
How = Literal["given", "template", "model", "nothing"]


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs that a request gives, as far as they are known.

    how: what gave them. problem: why the routine must not run on them, as a sentence; empty if it
    may. missing: inputs that the request does not have, by the model's account; where nobody read
    it, those that a person may be asked for instead. wishes: what the request asks for that no
    input expresses, where that is the only problem: then the inputs are those that were read, and
    the run may be prepared (`em.runner.preparation`).
    """

    inputs: Json
    how: How
    problem: str = ""
    missing: Sequence[str] = ()
    wishes: Sequence[str] = ()


def joined(given: Json, read: Json, how: How, missing: Sequence[str] = ()) -> Bound:
    """Return inputs that were given together with those that a request has."""
    for name, value in given.items():
        if name in read and not same(read[name], value):
            problem = (
                f"the request contradicts the input {name!r}: "
                f"{short(read[name])} in the request, {short(value)} given"
            )
            return Bound(inputs=given, how=how, problem=problem)
    return Bound(inputs={**read, **given}, how=how, missing=missing)


def bind(
    routine: Routine,
    given: Json,
    client: "LlmClient | None" = None,
    *,
    asks_twice: bool = False,
    at: datetime | None = None,
) -> Bound:
    """Return the inputs of a run that was given inputs, a request in words, or both.

    given: inputs by name; under `request`, the request. Inputs that are given count, and the
    request must not contradict them: a template or the model reads it; without both, every id,
    number and quoted text of it must be in some input. client: the model to ask where no template
    fits.
    at: when it was said. asks_twice: what a model read must be agreed to, as if the request had a
    wish.
    """
    schema = routine.input_schema or {}
    text = given.get(REQUEST)
    if not isinstance(text, str) or not _is_in_words(routine):
        return Bound(inputs=given, how="given")
    inputs = {name: value for name, value in given.items() if name != REQUEST}
    from em.runner.template import filling

    found = filling(routine.requests, text, routine.input_schema)
    if found.inputs is not None:
        return joined(inputs, found.inputs, "template")
    problem = unreadable(text)
    if client is None and inputs and not any(json_schema.problems(schema, inputs)):
        if len(text) > LONGEST_READ:
            return Bound(inputs=inputs, how="given", problem=problem)
        from em.runner.reading import RequestText  # it brings dates and the words of an index

        said = RequestText(text, at or datetime.now(UTC))
        unused, _ = next(said.unused([one for _, one in scalars(inputs)]), ("", False))
        problem = f"no input that is given holds {unused!r} of the request" if unused else ""
        return Bound(inputs=inputs, how="given", problem=problem)
    if client is None:
        missing = () if problem else _to_ask(schema, inputs)
        return Bound(
            inputs=inputs,
            how="nothing",
            problem=found.problem,
            missing=missing,
        )
    from em.runner.reading import read

    return read(routine, text, inputs, client, at or datetime.now(UTC), asks_twice=asks_twice)


def unreadable(text: str) -> str:
    """Say why nobody reads a request; empty if one may be read."""
    if not text.strip():
        return "the request is empty"
    if len(text) > LONGEST_READ:
        return f"the request has more than {LONGEST_READ} characters"
    return ""


def _to_ask(schema: Json, known: Json) -> Sequence[str]:
    """Return the inputs that a person may be asked for: none unless a required one is missing."""
    if not json_schema.lacking(schema, known):
        return ()
    return [name for name in json_schema.properties_of(schema) if name not in known]


def _is_in_words(routine: Routine) -> bool:
    """Return whether `request` is not an input of the routine's own."""
    declared = json_schema.Declared(routine.input_schema or {})
    own = REQUEST in json_schema.properties_of(routine.input_schema)
    return not own and bool(routine.requests or declared.without([REQUEST]))
