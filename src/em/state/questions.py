"""Answer questions by code over the typed records, or by searching what was said.

All code runs in the sandbox, on a copy of the records that it names. A model that writes it sees
the types, never the records. An answered question is stored with its code, so that the next
question of the same form needs no model.
"""

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from em.errors import BadQuestion, InputError, SandboxError
from em.llm.client import LlmClient, ask_struct
from em.llm.wires import Message
from em.runner.sandbox import Limits, choose
from em.runner.sandbox.monty import SUBSET_RULES, MontySandbox
from em.state.code import write_module, write_sandbox_code
from em.state.rules import names_in
from em.state.schema import Question
from em.state.state import State
from em.store.protocol import Passage
from em.values.canonical import Json
from em.values.syntax_tree import module_of

_SPACE = re.compile(r"\s+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DATE = r"\d{4}-\d{2}-\d{2}"


def normal(question: str) -> str:
    """Normalize a question: case, spaces, and the sign at its end don't matter."""
    return _SPACE.sub(" ", question.replace("\0", " ")).strip().rstrip("?.! ").casefold()


def template_of(question: str, parameters: Json) -> tuple[str, Json] | None:
    """Replace parameters in a question by slots; None unless each occurs exactly once."""
    text = normal(question)
    for name, value in parameters.items():
        word = normal(str(value))
        found = re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", text) if word else []
        if len(found) != 1 or not _NAME.fullmatch(name):
            return None
        start = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text)
        assert start is not None
        text = f"{text[: start.start()]}\0{name}\0{text[start.end() :]}"
    return text, parameters


def fit(
    stored: Question, question: str, in_place_of: Callable[[str, str], str | None]
) -> Json | None:
    """Return the parameters that turn a stored question into this one; None if it differs.

    in_place_of: given two texts, returns the second as records write it, if records have both in
    the same field.
    """
    parts = stored.template.split("\0")
    pattern = "".join(
        re.escape(part) if number % 2 == 0 else f"(?P<{part}>{_slot(stored.parameters[part])})"
        for number, part in enumerate(parts)
    )
    found = re.fullmatch(pattern, normal(question))
    if found is None:
        return None
    values: Json = {}
    for name, text in found.groupdict().items():
        example = stored.parameters[name]
        value = _value(example, text)
        if isinstance(value, str) and not re.fullmatch(_DATE, value):
            known = normal(example)
            value = example if value == known else in_place_of(known, value)
            if value is None:
                return None
        values[name] = value
    return values


def _slot(example: Any) -> str:
    if isinstance(example, int):
        return r"\d{4}" if 1000 <= example <= 9999 else r"\d{1,9}"
    if isinstance(example, float):
        return r"\d{1,9}(?:\.\d{1,9})?"
    return _DATE if re.fullmatch(_DATE, str(example)) else r"[^\0]{1,60}?"


def _value(example: Any, text: str) -> Any:
    if isinstance(example, int):
        return int(text)
    return float(text) if isinstance(example, float) else text


CORRECTIONS = 2
SYSTEM = (
    """\
You answer a question about one person's records by writing Python. You see the classes, not the
records. Reply with JSON: {"route": "code", "code": …, "parameters": {…}}, or {"route": "recall",
"code": "", "parameters": {}} if the question asks what was said rather than for something to be
computed.

The code defines two functions. Both take `state` (the class State) and the parameters by name:
    def used(state, year): return [trip for trip in state.trips if trip.date.year == year]
    def answer(state, year): return sum(trip.cost_usd for trip in used(state, year))
`used` gives the records that the answer rests on, `answer` the plain value of the answer.
`parameters` has what the question itself says and another question may say otherwise, as it stands
there: {"year": 2024}. The classes are in scope, and `datetime` and `Decimal`.
"""
    + SUBSET_RULES
)


class Query(msgspec.Struct, frozen=True):
    """What a model must return for a question: code with its parameters, or `recall`."""

    route: Literal["code", "recall"]
    code: str
    parameters: Json


_DYNAMIC = frozenset({"getattr", "vars", "__dict__", "__getattribute__", "eval", "exec"})
LIMITS = Limits(seconds=60.0, memory_bytes=2 * 1024 * 1024 * 1024)

CALL = """

def _em_ask(data, parameters):
    read = {}
    for name, rows in data["rows"].items():
        read[name] = [_EM_READ[name](row) for row in rows]
    state = State(**read)
    state.profile = _em_read_Profile(data["profile"])
    records = None
    if "used" in data["functions"]:
        records = used(state, **parameters)
        records = [records] if hasattr(records, "event_ids") else list(records)
    value = answer(state, **parameters)
    ids = None
    if records is not None:
        ids = [event for record in records for event in record.event_ids]
    return {"value": value, "ids": ids, "records": None if records is None else len(records)}
"""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, and how it was found.

    route: `code` or `recall`. records: how many records or passages it rests on, from `event_ids`.
    kept: the code of an earlier question was reused. note: why this route was taken. unread: newer
    texts that nobody has read and that mention what the code uses; so it may be incomplete.
    """

    value: Any
    route: Literal["code", "recall"]
    question: str = ""
    code: str = ""
    parameters: Json = {}
    records: int = 0
    event_ids: tuple[str, ...] = ()
    kept: bool = False
    asked_model: bool = False
    note: str = ""
    unread: tuple[str, ...] = ()


Recall = Callable[[str], Sequence[Passage]]
"""Search for a question; returns passages, best first."""
StoreQuestion = Callable[[Question], None]


class Asker:
    """Answers questions about one state."""

    def __init__(
        self,
        state: State,
        recall: Recall,
        *,
        client: LlmClient | None = None,
        stored: Sequence[Question] = (),
        store: StoreQuestion | None = None,
    ) -> None:
        self._state, self._recall, self._client = state, recall, client
        self._stored, self._store = stored, store

    def ask(self, question: str) -> Answer:
        """Answer a question in words, and say if unread texts may change the answer."""
        return with_unread(self._state, self._found(question))

    def _found(self, question: str) -> Answer:
        for known in reversed(self._stored):
            parameters = fit(known, question, self._in_place_of)
            if parameters is not None:
                try:
                    found = run_in_sandbox(self._state, known.code, parameters)
                except SandboxError:
                    continue  # the types may have changed since: ask again
                return self._answer(question, known.code, parameters, found, kept=True)
        if self._client is None:
            return self._recalled(question, "no model, and no stored question of this form")
        return self._by_model(question, self._client)

    def _by_model(self, question: str, client: LlmClient) -> Answer:
        prompt = f"{write_module(self._state.schema, examples=False)}\n\nQuestion: {question}"
        messages = [Message("user", prompt)]
        error: SandboxError | None = None
        for _ in range(1 + CORRECTIONS):
            query, completion = ask_struct(client, Query, messages, system=SYSTEM, name="query")
            if query.route == "recall":
                answer = self._recalled(
                    question, "the model judged that the question asks what was said"
                )
                return msgspec.structs.replace(answer, asked_model=True)
            try:
                found = run_in_sandbox(self._state, query.code, query.parameters)
            except SandboxError as failed:
                error = failed
                again = f"That code failed: {failed.message}. Write it again."
                messages += [Message("assistant", completion.text), Message("user", again)]
                continue
            self._remember(question, query)
            answer = self._answer(question, query.code, query.parameters, found)
            return msgspec.structs.replace(answer, asked_model=True)
        assert error is not None
        raise BadQuestion(
            f"the model's code failed {1 + CORRECTIONS} times: {error.message}",
            place=f"question {question[:80]!r}",
            fix="ask in other words, or pass code=",
        )

    def _remember(self, question: str, query: Query) -> None:
        if self._store is None:
            return
        shape = template_of(question, query.parameters)
        template, parameters = shape if shape is not None else (normal(question), {})
        if shape is None and query.parameters:
            return  # the parameters are not in the question, so a later one can't fill them in
        self._store(
            Question(
                question=question,
                code=query.code,
                template=template,
                parameters=parameters,
                uses=sorted(names_in(query.code)),
            )
        )

    def _answer(
        self, question: str, code: str, parameters: Json, found: Json, *, kept: bool = False
    ) -> Answer:
        return Answer(
            value=found["value"],
            route="code",
            question=question,
            code=code,
            parameters=parameters,
            records=found["records"],
            event_ids=tuple(dict.fromkeys(found["ids"])),
            kept=kept,
        )

    def _recalled(self, question: str, why: str) -> Answer:
        passages = list(self._recall(question))
        return Answer(
            value=passages,
            route="recall",
            question=question,
            records=len(passages),
            event_ids=tuple(dict.fromkeys(one.event_id for one in passages)),
            note=why,
        )

    def _in_place_of(self, one: str, other: str) -> str | None:
        """Return the other text as records write it, if some field has both as values."""
        for name in self._state.collections:
            found: dict[str, set[str]] = {}
            for row in self._state.rows(name):
                for field, value in row.items():
                    for text in value if isinstance(value, list) else (value,):
                        if isinstance(text, str) and normal(text) in (one, other):
                            found.setdefault(field, set()).add(text)
            for texts in found.values():
                written = [text for text in texts if normal(text) == other]
                if len(written) == 1 and any(normal(text) == one for text in texts):
                    return written[0]
        return None


def run_in_sandbox(state: State, code: str, parameters: Json) -> Json:
    """Run a question's code in the sandbox, with the collections it names; raises SandboxError."""
    mentioned = names_in(code)
    # Code that builds names at run time gets all collections, so that none seems empty.
    named = state.collections if mentioned & _DYNAMIC else mentioned
    used = {name: state.rows(name) for name in state.collections if name in named}
    data = {
        "rows": used,
        "profile": state.profile_row(),
        "functions": [name for name in ("used", "answer") if f"def {name}(" in code],
    }
    whole = write_sandbox_code(state.schema) + "\n" + code + "\n" + CALL
    # Prefer the subset, which reaches nothing; use full Python only if monty is missing.
    sandbox = choose(whole, prefer=None if MontySandbox.missing() else MontySandbox.name)
    found: Json = sandbox.run(whole, "_em_ask", {"data": data, "parameters": parameters}, LIMITS)
    if found["ids"] is None:
        rows = [row for rows in used.values() for row in rows]
        ids = [event for row in rows for event in row["event_ids"]]
        found["ids"] = ids + state.events_of_profile(mentioned)
        found["records"] = len(rows)
    return found


def run_own_code(state: State, code: str) -> Answer:
    """Run the caller's own code: an expression over the collections, statements that end in one, or
    a function `answer(state)`."""
    try:
        found = run_in_sandbox(state, _as_function(code.strip(), state), {})
    except (SandboxError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.message if isinstance(error, SandboxError) else str(error)
        raise InputError(
            f"the code failed: {why}", place="code", fix="see the classes: em state code SUBJECT"
        ) from error
    ids = tuple(dict.fromkeys(found["ids"]))
    answer = Answer(
        value=found["value"], route="code", code=code, records=found["records"], event_ids=ids
    )
    return with_unread(state, answer)


def _as_function(code: str, state: State) -> str:
    """Write code as the function `answer`, in which collections and the profile are names."""
    tree = module_of(code, "<question>")
    if any(isinstance(one, ast.FunctionDef) and one.name == "answer" for one in tree.body):
        return code
    last = tree.body.pop() if tree.body else None
    if not isinstance(last, ast.Expr):
        raise ValueError("it must end in an expression, or define answer(state)")  # noqa: TRY004 - the code is wrong, no type
    names = [name for name in (*state.collections, "profile") if name in names_in(code)]
    given = module_of("\n".join(f"{name} = state.{name}" for name in names))
    whole = module_of("def answer(state):\n    pass")
    function = whole.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = [*given.body, *tree.body, ast.Return(last.value)]
    return ast.unparse(ast.fix_missing_locations(whole))


def with_unread(state: State, answer: Answer) -> Answer:
    """Say of an answer by code which texts that nobody has read mention what the code uses."""
    found = state.unread_in(names_in(answer.code)) if answer.route == "code" else {}
    if not found:
        return answer
    said = "; ".join(
        f"{name} may be incomplete: {len(events)} newer texts that nobody has read mention it"
        for name, events in found.items()
    )
    note = f"{answer.note}; {said}" if answer.note else said
    unread = tuple(dict.fromkeys(event for events in found.values() for event in events))
    return msgspec.structs.replace(answer, note=note, unread=unread)
