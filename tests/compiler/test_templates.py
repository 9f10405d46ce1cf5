"""What the requests of several traces have in common is a template; the rest are inputs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em import Memory
from em.compiler.templates import template_of, templates_of
from em.traces.trace import Message, Mission, ToolCall, Trace


@pytest.mark.parametrize(
    ("texts", "template"),
    [
        (['press "Ok" now', 'press "No" now', 'press "Go!" now'], 'press "{{ a }}" now'),
        (["go to 5", "go to 7", "go to 9"], "go to {{ a }}"),
        (["from A to B, now", "from C to D, now", "from E to F, now"],
         "from {{ a }} to {{ b }}, now"),
    ],
)  # fmt: skip
def test_what_varies_is_a_hole(texts: list[str], template: str) -> None:
    found = template_of(texts)
    assert found is not None
    assert found.text("ab"[: len(found.words) - 1]) == template


@pytest.mark.parametrize(
    "texts",
    [
        ["go to 5", "go to 7"],
        ["go to 5", "go to 5", "go to 5"],
        ["stop", "leave", "sleep"],
        ["go to 5 now", "go to now", "go to 7 now"],
    ],
)
def test_too_little_in_common_is_no_template(texts: list[str]) -> None:
    assert template_of(texts) is None


def test_what_has_no_common_signs_is_one_value() -> None:
    *_, found = templates_of(["Water bed (1,-2).", "Water bed (0,4).", "Water bed (-3,0)."])
    assert found.text("a") == "Water bed {{ a }}."
    assert [values[0] for values in found.values] == ["(1,-2)", "(0,4)", "(-3,0)"]


def test_contractions_and_their_words_are_in_common(memory: Memory) -> None:
    said = (
        "I'm in room {}, it's dark.",
        "I am in room {}, it's dark.",
        "I'm in room {}, it is dark.",
    )
    rooms = ("R-107", "R-215", "R-342")
    traces = [
        Trace(
            mission=Mission(goal="light"),
            events=[
                Message(role="user", text=words.format(room)),
                ToolCall(tool="light", args={"room": room}, result="ok", effect="write"),
            ],
            outcome="success",
        )
        for words, room in zip(said, rooms, strict=True)
    ]
    routine = memory.compile([memory.add_trace(one) for one in traces], name="light")
    assert routine.request is not None

    def lit(request: str) -> list[str]:
        done: list[str] = []
        tools = {"light": lambda room: (done.append(room), "ok")[1]}
        memory.run(routine, {"request": request}, tools, remember=False)
        return done

    assert lit("I am in room R-888, it is dark.") == ["R-888"]
    assert lit("I’m in room R-888, it’s dark.") == ["R-888"]
    for other in ("isn't", "is not", "wasn't", "it'd", "its"):
        assert lit(f"I am in room R-888, it {other} dark.") == []
        assert lit(f"I {other} in room R-888, it is dark.") == []


@given(st.lists(st.text("xyz0 #", min_size=1).map(str.strip).filter(bool), min_size=3, unique=True))
def test_a_template_gives_back_every_request(values: list[str]) -> None:
    texts = [f"please open door {value} for me" for value in values]
    found = template_of(texts)
    if found is None:
        return
    for text, own in zip(texts, found.values, strict=True):
        parts = [found.words[0]]
        for value, words in zip(own, found.words[1:], strict=True):
            parts += [value, words]
        assert "".join("".join(parts).split()) == "".join(text.split())


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def pressed(name: str) -> Trace:
    calls = [
        ToolCall(tool="press", args={"name": name}, result="ok", effect="write"),
        ToolCall(tool="press", args={"name": "Submit"}, result="ok", effect="write"),
    ]
    said = Message(role="user", text=f"Select {name} and submit.")
    return Trace(mission=Mission(goal="press"), events=[said, *calls], outcome="success")


def test_short_values_are_taken_from_the_request(memory: Memory) -> None:
    ids = [memory.add_trace(pressed(name)) for name in ("Up", "Left", "B")]
    routine = memory.compile(ids, name="press")
    done: list[Any] = []
    tools = {"press": lambda name: done.append(name) or "ok"}
    result = memory.run(routine, {"request": "Select Down and submit."}, tools)
    assert (result.status, done) == ("ok", ["Down", "Submit"])
    others = ("Don't select Up and submit.", "Select Up and Down and submit.", "Submit.")
    vague = ("Select nothing and submit.", "Select all and submit.", "Select it and submit.")
    for other in (*others, *vague):
        assert memory.run(routine, {"request": other}, tools).status == "needs_input"
    assert len(done) == 2


# --- an irrigation plant: valves are listed, opened by name, and set by the value of a chart ------


class Plant:
    """Valves of a garden, and what was done to them."""

    def __init__(self, *valves: str, **chart: int) -> None:
        self.valves, self.chart, self.done = list(valves), chart, []

    def overview(self) -> dict[str, Any]:
        valves = [{"label": one, "kind": "valve"} for one in self.valves]
        return {"parts": [*valves, {"label": "Confirm", "kind": "key"}], "chart": self.chart}

    def act(self, *args: Any) -> str:
        self.done.append(args)
        return "ok"

    def tools(self) -> dict[str, Any]:
        return {
            "overview": self.overview,
            "open_valve": lambda label: self.act("open", label),
            "write_to": lambda field, text: self.act("write", field, text),
        }


def watered(said: str, plant: Plant, *calls: tuple[str, dict[str, Any]]) -> Trace:
    """A trace: the request, what the plant looked like, and what was done."""
    look = ToolCall(tool="overview", args={}, result=plant.overview(), effect="read")
    acts = [ToolCall(tool=tool, args=args, result="ok", effect="write") for tool, args in calls]
    events = [Message(role="user", text=said), look, *acts]
    return Trace(mission=Mission(goal="water"), events=events, outcome="success")


def learnt(memory: Memory, *traces: Trace) -> str:
    return memory.compile([memory.add_trace(trace) for trace in traces], name="plant")


def test_a_read_that_one_trace_needs_is_made_in_all(memory: Memory) -> None:
    """A long label is looked up in the overview; a short one says too little for that."""
    labels = ("Up", "GreenhouseNorth4", "B")
    made = [
        watered(f'Open the "{one}" valve.', Plant(one, "Left"), ("open_valve", {"label": one}))
        for one in labels
    ]
    routine = learnt(memory, *made)
    plant = Plant("East", "West")
    result = memory.run(routine, {"request": 'Open the "East" valve.'}, plant.tools())
    assert (result.status, plant.done) == ("ok", [("open", "East")])
    result = memory.run(routine, {"request": 'Open the "North" valve.'}, plant.tools())
    assert (result.status, len(plant.done)) != ("ok", 2), "there is no such valve"


def test_two_values_of_one_name_are_told_apart_by_all_traces(memory: Memory) -> None:
    pairs = [("rose", "Jj"), ("iris", "O4m"), ("lily", "zCm")]
    made = [
        watered(
            f'Set the owner "{owner}" and the code "{code}" now.',
            Plant("Up"),
            ("write_to", {"field": "owner", "text": owner}),
            ("write_to", {"field": "code", "text": code}),
        )
        for owner, code in pairs
    ]
    routine, plant = learnt(memory, *made), Plant("Up")
    said = 'Set the owner "tulip" and the code "w7" now.'
    result = memory.run(routine, {"request": said}, plant.tools())
    assert result.status == "ok"
    assert plant.done == [("write", "owner", "tulip"), ("write", "code", "w7")]


def test_a_value_is_read_where_the_request_says(memory: Memory) -> None:
    chart = {"Rose bed": 41, "Lawn": 5712, "Pond": 9}
    made = [
        watered(
            f"Set the meter to the value of {name} and stop.",
            Plant("Up", **{one: value + at for one, value in chart.items()}),
            ("write_to", {"field": "meter", "text": str(chart[name] + at)}),
        )
        for at, name in enumerate(chart)
    ]
    routine, plant = learnt(memory, *made), Plant("Up", **{"Lawn": 8, "Ivy wall": 77})
    said = "Set the meter to the value of Ivy wall and stop."
    result = memory.run(routine, {"request": said}, plant.tools())
    assert (result.status, plant.done) == ("ok", [("write", "meter", "77")])
    said = "Set the meter to the value of Pond and stop."
    result = memory.run(routine, {"request": said}, plant.tools())
    assert (result.status, len(plant.done)) == ("failed", 1), "the chart has no pond now"


def test_words_that_vary_and_that_nothing_follows_from_are_asked_about(memory: Memory) -> None:
    made = [
        watered(f'Open the "{one}" valve {when}.', Plant(one), ("open_valve", {"label": one}))
        for one, when in (("Up", "today"), ("East2", "slowly"), ("B", "please"))
    ]
    routine, plant = learnt(memory, *made), Plant("West", "Up")
    result = memory.run(routine, {"request": 'Open the "West" valve backwards.'}, plant.tools())
    assert (result.status, plant.done) == ("needs_input", [])


@pytest.mark.parametrize(
    "said",
    [
        'Open the "North gate" valve. Open the "East gate" valve.',
        'Open the "North gate" valve and the "East gate" valve.',
    ],
)
def test_words_around_a_value_do_not_belong_to_it(memory: Memory, said: str) -> None:
    """Nothing is on the list here that a value could be compared with."""
    made = [
        Trace(
            mission=Mission(goal="water"),
            events=[
                Message(role="user", text=f'Open the "{one}" valve.'),
                ToolCall(tool="open_valve", args={"label": one}, result="ok", effect="write"),
            ],
            outcome="success",
        )
        for one in ("Rose bed", "Iris bed", "Lawn")
    ]
    routine, plant = learnt(memory, *made), Plant()
    result = memory.run(routine, {"request": said}, plant.tools())
    assert (result.status, plant.done) == ("needs_input", [])
    memory.run(routine, {"request": 'Open the "No entry" valve.'}, plant.tools())
    assert plant.done == [("open", "No entry")], "what is quoted is a value, whatever it says"
