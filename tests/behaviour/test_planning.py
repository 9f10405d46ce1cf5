"""A replay that can't reach its end stops before its first write, as far as the reads show it."""

from collections.abc import Callable
from typing import Any

import pytest

from em import Engine
from em.behaviour.lesson import Course
from em.behaviour.result import Result
from em.behaviour.way import Tape


class Desk:
    """Tools over a few plain values; writes are noted."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.writes: list[tuple[Any, ...]] = []
        self.gives: dict[str, Any] = {}
        tool = self.engine.function
        self.get = tool(name="get_info")(lambda: self.gives["info"])
        self.find = tool(name="find_items")(lambda: self.gives["items"])
        self.open = tool(name="create_case")(lambda kind: self._write("create", kind))
        self.send = tool(name="send_mail")(lambda to, text: self._write("send", to, text))
        self.close = tool(name="close_case")(lambda case: self._write("close", case))

    def _write(self, *what: Any) -> Any:
        self.writes.append(what)
        return self.gives.get(what[0], {"case": 7000 + len(self.writes)})

    def run(self, agent: Callable[[], Any]) -> Callable[[], Result]:
        self.engine.set_agent(agent)

        def again() -> Result:
            self.writes.clear()
            result = self.engine()
            assert isinstance(result, Result)
            return result

        return again


@pytest.fixture
def desk() -> Desk:
    return Desk()


def replayed_writes(desk: Desk, result: Result) -> list[str]:
    tools = desk.engine.tools
    return [step.tool for step in result.steps if step.replayed and tools[step.tool].writes]


def test_an_answer_that_the_reads_rule_out_is_found_before_the_write(desk: Desk) -> None:
    def agent() -> str:
        info = desk.get()
        desk.open("refund")
        return f"it takes about {info['days']} days"

    call = desk.run(agent)
    for days in (5, 7):
        desk.gives["info"] = {"days": days}
        result = call()
        assert desk.writes == [("create", "refund")]
        assert result.value == f"it takes about {days} days"
    assert result.how == "handed_over"
    assert "step 1 (get_info) returned another days" in result.reason
    assert replayed_writes(desk, result) == []


def test_the_part_of_an_answer_that_the_reads_give_is_tried_before_the_write(desk: Desk) -> None:
    def agent() -> dict[str, Any]:
        info = desk.get()
        case = desk.open("refund")
        return {"text": f"case {case['case']} of {info.get('owner', 'nobody')}"}

    call = desk.run(agent)
    for info in ({"owner": "Ana Maria"}, {"boss": "Bo"}):
        desk.gives["info"] = info
        result = call()
        assert desk.writes == [("create", "refund")]
    assert result.how == "handed_over"
    assert replayed_writes(desk, result) == []
    assert result.value == {"text": "case 7001 of nobody"}


def test_the_arguments_of_a_later_step_are_tried_before_the_first_write(desk: Desk) -> None:
    def agent() -> str:
        items = desk.find()
        desk.open("order")
        if items:
            desk.send(items[0]["mail"], "hello")
        return "done"

    call = desk.run(agent)
    desk.gives["items"] = [{"mail": "ana@example.org"}]
    call()
    desk.gives["items"] = []
    result = call()
    assert result.how == "handed_over"
    assert "step 1 (find_items)" in result.reason
    assert replayed_writes(desk, result) == []
    assert desk.writes == [("create", "order")]


def test_what_a_later_step_may_depend_on_is_compared_before_the_first_write(desk: Desk) -> None:
    def agent() -> str:
        info = desk.get()
        desk.open("order")
        desk.send("ana@example.org", f"{info['left']} left")
        return "done"

    call = desk.run(agent)
    for left in (3, 8):
        desk.gives["info"] = {"left": left}
        result = call()
        assert desk.writes[-1] == ("send", "ana@example.org", f"{left} left")
    assert result.how == "handed_over"
    assert "step 1 (get_info) returned another left" in result.reason
    assert replayed_writes(desk, result) == []


def test_a_read_between_two_writes_is_heeded_before_the_second(desk: Desk) -> None:
    def agent() -> str:
        case = desk.open("order")
        items = desk.find()
        desk.close(case["case"])
        desk.send(items[0]["mail"] if items else "nobody@example.org", "closed")
        return "done"

    call = desk.run(agent)
    desk.gives["items"] = [{"mail": "ana@example.org"}]
    call()
    desk.gives["items"] = []
    result = call()
    assert result.how == "handed_over"
    assert replayed_writes(desk, result) == ["create_case"]
    assert [write[0] for write in desk.writes] == ["create", "close", "send"]


def test_with_nothing_read_yet_it_is_a_miss_and_nothing_was_done(desk: Desk) -> None:
    engine, tools = Engine(), []
    create = engine.function(name="create")(lambda kind: tools.append(kind) or {})
    send = engine.function(name="send")(lambda to: tools.append(to) or {})

    def agent(user: dict[str, str]) -> None:
        create("case")
        send(user.get("mail", "nobody@example.org"))

    engine.set_agent(agent)
    engine({"mail": "ana@example.org"}, params=["user"])
    result = engine({"phone": "123456"}, params=["user"])
    assert result.how == "miss"
    assert tools[-2:] == ["case", "nobody@example.org"]


def test_of_two_behaviours_one_that_can_go_on_is_enough(desk: Desk) -> None:
    def agent() -> str:
        info = desk.get()
        desk.open("refund")
        return f"it takes about {info['days']} days"

    call = desk.run(agent)
    for days in (5, 7):
        desk.gives["info"] = {"days": days}
        desk.gives["create"] = {"case": 1}
        call()
    for days in (5, 7):
        desk.gives["info"] = {"days": days}
        result = call()
        assert result.hit, result.reason
        assert result.value == f"it takes about {days} days"
    desk.gives["info"] = {"days": 9}
    assert call().value == "it takes about 9 days"


def test_where_no_recording_can_decide_later_nothing_is_written_now(desk: Desk) -> None:
    def agent() -> str:
        info = desk.get()
        desk.open("refund")
        desk.send("ana@example.org", "large" if info["total"] > 500 else "small")
        return "done"

    call = desk.run(agent)
    desk.gives["create"] = {"case": 1}
    desk.engine.budget, desk.engine.grace = 0.0, -1.0  # replay nothing yet: two recordings
    for total in (900, 100):
        desk.gives["info"] = {"total": total}
        call()
    desk.engine.budget, desk.engine.grace = 10.0, 1.0
    for total, text in ((900, "large"), (100, "small")):
        desk.gives["info"] = {"total": total}
        result = call()
        assert result.hit, result.reason
        assert desk.writes[-1][-1] == text
    desk.gives["info"] = {"total": 700}
    result = call()
    assert result.how == "handed_over"
    assert replayed_writes(desk, result) == []
    assert desk.writes[-1][-1] == "large"


def test_each_step_is_run_once_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    def counted(course: Any, result: Any, advance: Any) -> None:
        tried.append(result)
        advance(course, result)

    for kind in (Tape, Course):
        advance = kind.answer
        monkeypatch.setattr(kind, "answer", lambda *told, advance=advance: counted(*told, advance))
    counts, first = [], [1000]
    for steps in (10, 100):
        engine = Engine(grace=600)
        create = engine.function(name="create")(lambda n, after: {"id": f"case-{first[0] + n}"})

        def agent(create: Any = create, steps: int = steps) -> str:
            last = "none"
            for n in range(steps):
                last = create(n, last)["id"]
            return last

        engine.set_agent(lambda agent=agent: agent())
        assert engine().stored
        for changed in (0, 7000):
            tried.clear()
            first[0] += changed
            assert engine().hit, "as recorded, and with other ids"
            counts.append(len(tried))
    assert min(counts) > 0
    assert counts[2] <= 11 * counts[0]
    assert counts[3] <= 11 * counts[1]


def test_a_constant_with_braces_is_no_expression(desk: Desk) -> None:
    def agent() -> str:
        desk.get()
        desk.open("use {{ name }} or {% if x %} and }} in a template")
        return "{{ done }}"

    desk.gives["info"] = {"days": 5}
    call = desk.run(agent)
    call()
    result = call()
    assert result.hit, result.reason
    assert desk.writes == [("create", "use {{ name }} or {% if x %} and }} in a template")]
    assert result.value == "{{ done }}"
