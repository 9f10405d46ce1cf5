"""What others see of a routine has nothing of one recording but what a run needs as it is."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.compiler.export.agent_tools import export_langchain, export_openai, export_skill
from em.compiler.export.python import export_python
from em.compiler.package_files import render_routine
from em.errors import ExportError
from em.runner.package import opened, parse_yaml, read_routine
from em.runner.planner import _form
from em.runner.public_form import described_input, description_of, public_form
from em.runner.routine import PlanStep, Program, Routine, RulesStep, ToolStep
from em.traces.trace import Message, Mission, ToolCall, Trace
from em.values.example_shape import blank

MARK = re.compile(r"zq[a-z]*|81\d\d", re.IGNORECASE)
"""Every value of a recording below has one of these in it."""
Calls = list[tuple[str, str, dict[str, Any], Any]]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def trace(request: str, calls: Calls) -> Trace:
    events: list[Any] = [Message(role="user", text=request)]
    events += [
        ToolCall(tool=tool, args=args, result=result, effect=effect)
        for effect, tool, args, result in calls
    ]
    return Trace(mission=Mission(goal=request), events=events, outcome="success")


def letters(n: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(n + 10))


def who(n: int) -> str:
    return f"Zq{letters(n)}"


def user_reads(n: int) -> Calls:
    mail, user = f"{who(n)}@zqhost.example", f"u_{8100 + n}"
    orders = [f"#W{8110 + n}", f"#W{8150 + n}"]
    record = {"orders": orders, "name": f"{who(n)} Zqson", "town": f"Zqtown{letters(n)}"}
    return [
        ("read", "find_user", {"email": mail}, user),
        ("read", "get_user", {"user_id": user}, record),
        (
            "read",
            "get_order",
            {"order_id": orders[0]},
            {"user_id": user, "status": "pending", "note": f"zqnote {letters(n)}"},
        ),
    ]


def cancelled(n: int, words: str) -> Trace:
    request = words.format(mail=f"{who(n)}@zqhost.example", order=f"#W{8110 + n}", name=who(n))
    effect = {"order_id": f"#W{8110 + n}", "reason": f"zqreason {letters(n)}"}
    result = {"status": "cancelled", "by": who(n)}
    return trace(request, [*user_reads(n), ("write", "cancel_order", effect, result)])


def plan() -> list[Trace]:
    words = [
        "I am {mail}. Cancel {order} because zqreason {{}}.",
        "{mail} here: cancel {order}, zqreason {{}}!",
        "{mail}. Please cancel {order} because zqreason {{}}.",
    ]
    return [cancelled(n, words[n % 3].replace("{{}}", letters(n))) for n in range(6)]


def lent(n: int, words: str, **more: Any) -> Trace:
    copy = f"C-{8100 + n}"
    record = {"copy_id": copy, "shelf": f"zqshelf {letters(n)}", "of": who(n)}
    calls: Calls = [
        ("read", "get_copy", {"copy_id": copy}, record),
        ("write", "lend", {"copy_id": copy, **more}, {"ok": True, "to": who(n)}),
    ]
    return trace(words.format(copy=copy, name=who(n), town=f"Zqtown{letters(n)}"), calls)


def template() -> list[Trace]:
    return [lent(n, "Lend {copy} to me now.") for n in range(6)]


def one_trace() -> list[Trace]:
    return [lent(1, "Hello, this is {name} of {town}. Lend {copy} to me now.")]


def free_words() -> list[Trace]:
    words = [
        "Lend me {copy} quickly for {weeks} weeks.",
        "Zqgrandma of {town} is here! Could you quickly lend {copy} for {weeks} weeks?",
        "Could you quickly lend {copy} for {weeks} weeks?",
        "{name} is my son. Lend me {copy} quickly for {weeks} weeks.",
        "Could you quickly lend {copy} for {weeks} weeks?",
        "Lend me {copy} quickly for {weeks} weeks.",
        "Lend me {copy} quickly for {weeks} weeks, my zqboss.",
    ]
    weeks = [text.replace("{weeks}", str(n + 2)) for n, text in enumerate(words)]
    return [lent(n, text, weeks=n + 2) for n, text in enumerate(weeks)]


def asked_for() -> list[Trace]:
    """Attempts at one task with a text that nothing explains."""
    found = []
    for n in range(2):
        text = f"zqtext {letters(n)} {8120 + n}"
        calls: Calls = [
            ("read", "get_bill", {"bill": "B-8101"}, {"bill": "B-8101", "of": "Zqana"}),
            ("write", "pay", {"bill": "B-8101", "text": text}, "done"),
        ]
        found.append(trace("Pay the bill B-8101.", calls))
    return found


def rules() -> list[Trace]:
    found = []
    for n in range(8):
        home, is_stuck = f"H-{8100 + n}", n >= 4
        owner = {"owner": who(n)}
        before = {"mode": "winter" if is_stuck else "summer", **owner}
        calls: Calls = [("read", "check_mode", {"home": home}, before)]
        if not is_stuck:
            calls.append(("write", "set_mode", {"home": home, "mode": "winter"}, "ok"))
            calls.append(("read", "check_mode", {"home": home}, {**before, "mode": "winter"}))
        pump = {"pump": "stuck" if is_stuck else "running", "serial": f"zq{letters(n)}"}
        calls.append(("read", "check_pump", {"home": home}, pump))
        if is_stuck:
            calls.append(("write", "free_pump", {"home": home}, "ok"))
            calls.append(("read", "check_pump", {"home": home}, {**pump, "pump": "running"}))
        calls.append(("read", "measure", {"home": home}, "Room: warm"))
        found.append(trace(f"The room stays cold. Home: {home}.", calls))
    return found


FORMS = [plan, template, one_trace, free_words, asked_for, rules]


def learnt(memory: Memory, traces: list[Trace]) -> Routine:
    ids = [memory.add_trace(one) for one in traces]
    return memory.compile(ids, name="task", force=True)


def marks_in(text: str) -> set[str]:
    return {found.lower() for found in MARK.findall(text)}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_nothing_of_one_recording_leaves(memory: Memory, form: Callable[[], list[Trace]]) -> None:
    routine = learnt(memory, form())
    expected = {plan: PlanStep, free_words: PlanStep, rules: RulesStep}.get(form)
    first = routine.steps[0]
    assert isinstance(first, expected or ToolStep)
    assert not isinstance(first, PlanStep) or (first.form is None) == (form is plan)
    public = public_form(routine, is_shared=bool(routine.trials))
    shown = {"resource": render_routine(public, {})}
    shown["tool"] = f"{description_of(routine)} {described_input(routine)}"
    with opened(memory.store, "task") as package:
        shown |= export_skill(package)
        for export in (export_python, export_langchain, export_openai):
            try:
                text = export(package)
            except ExportError:
                continue
            # The script itself has what it needs to go on as recorded, for those who have it.
            shown[export.__name__] = text.partition("\nINPUT_SCHEMA")[0]
    # A guard of one trace compares with what it saw.
    needed = {"zqshelf"} if form is one_trace else set()
    found = {name: marks_in(text) - needed for name, text in shown.items()}
    assert found == {name: set() for name in shown}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_the_public_form_is_a_routine(memory: Memory, form: Callable[[], list[Trace]]) -> None:
    public = public_form(learnt(memory, form()))
    text = render_routine(public, {})
    again = read_routine(parse_yaml(text.encode(), ""), "")
    assert len(Program(again).steps) == len(public.steps)
    assert render_routine(again, {}) == text


@pytest.mark.parametrize(
    "value", ["#W8110", "Ana", "ana@x.example", "ana maria", "2026-05-04", "B_71-x", "ABC", "7.50"]
)
def test_a_blank_looks_like_the_value_to_a_plan(value: str) -> None:
    assert _form(blank(value)) == _form(value)
    assert blank(value) != value


def test_the_public_form_acts_or_asks(memory: Memory, tmp_path: Path) -> None:
    learnt(memory, template())
    with opened(memory.store, "task") as package:
        public = public_form(package.routine, is_shared=bool(package.trials))
    (tmp_path / "public").mkdir()
    (tmp_path / "public/routine.yaml").write_text(render_routine(public, {}))
    made: list[str] = []
    tools = {
        "get_copy": lambda copy_id: {"copy_id": copy_id, "shelf": "x", "of": "y"},
        "lend": lambda copy_id: made.append(copy_id) or {"ok": True, "to": "y"},
    }
    for request in ("Lend C-9917 to me now.", "Don't lend C-9918 to me now."):
        memory.run(tmp_path / "public", {"request": request}, tools, remember=False)
    assert made == ["C-9917"]


def test_a_text_that_was_recorded_once_is_asked_for(memory: Memory, tmp_path: Path) -> None:
    routine = learnt(memory, asked_for())
    (tmp_path / "public").mkdir()
    text = render_routine(public_form(routine, is_shared=True), {})
    (tmp_path / "public/routine.yaml").write_text(text)
    tools = {"get_bill": lambda bill: {"bill": bill, "of": "z"}, "pay": lambda **_: "done"}
    given = {"request": "Pay the bill B-8101."}
    result = memory.run(tmp_path / "public", given, tools, remember=False)
    assert result.status == "needs_input"
