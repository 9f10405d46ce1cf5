"""Traces of repairs become rules: what was seen, what was done about it, and when to stop."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from boiler_room import Boiler, recorded
from em import Memory
from em.compiler.compile_trace import compile_several
from em.errors import RoutineError
from em.runner.package import find_routine, texts_of, write_files
from em.runner.routine import RulesStep
from em.runner.run import RunResult
from em.runner.validation import validate
from em.traces.trace import KeptTrace, Message, Mission, ToolCall, Trace

SINGLE = [(fault,) for fault in ("low", "stuck", "summer", "air") for _ in range(4)]
LEAKS = [("leak",), ("low", "leak"), ("leak",)]


def traces(*homes: tuple[str, ...], **how: Any) -> list[Trace]:
    return [recorded(Boiler(*faults, home=n), **how) for n, faults in enumerate(homes, 10)]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


class Learnt:
    """Rules learnt in some homes, and followed in another one."""

    def __init__(self, memory: Memory, made: list[Trace]) -> None:
        self.memory = memory
        self.routine = memory.compile([memory.add_trace(trace) for trace in made], name="warm")

    def run(self, boiler: Boiler, **options: Any) -> RunResult:
        return self.memory.run(self.routine, {"request": boiler.request}, boiler.tools(), **options)


@pytest.fixture(scope="module")
def plumber(new_memory: Callable[[], Memory]) -> Learnt:
    """Knows every fault, each from traces that had no other."""
    return Learnt(new_memory(), traces(*SINGLE, *LEAKS))


def test_each_fault_is_put_right_where_it_was_never_seen(plumber: Learnt) -> None:
    for fault, done in {
        "low": [("refill", {"boiler_id": "HB7201", "bar": 1.5})],
        "stuck": [("free_pump", {"boiler_id": "HB7201"})],
        "summer": [("set_mode", {"boiler_id": "HB7201", "mode": "winter"})],
        "air": [("bleed", {"boiler_id": "HB7201"}), ("close_vents", {"boiler_id": "HB7201"})],
    }.items():
        boiler = Boiler(fault)
        result = plumber.run(boiler)
        assert (result.status, boiler.done) == ("ok", done), result.failure
        assert result.output == [tool for tool, _ in done]


@pytest.mark.parametrize("looks_first", [False, True])
def test_faults_that_were_never_seen_together_are_put_right_together(
    memory: Memory, looks_first: bool
) -> None:
    learnt = Learnt(memory, traces(*SINGLE, looks_first=looks_first))
    for faults, done in (
        (("low", "summer"), {"refill", "set_mode"}),
        (("air", "stuck"), {"free_pump", "bleed", "close_vents"}),
        (
            ("air", "stuck", "low", "summer"),
            {"refill", "free_pump", "set_mode", "bleed", "close_vents"},
        ),
    ):
        boiler = Boiler(*faults)
        result = learnt.run(boiler)
        assert (result.status, {*boiler.made}, boiler.faults) == ("ok", done, set()), result.failure
        assert len(boiler.made) == len(done)


def test_where_nothing_is_wrong_nothing_is_done(plumber: Learnt) -> None:
    boiler = Boiler()
    assert (plumber.run(boiler).output, boiler.done) == ([], [])


def test_an_unknown_fault_is_handed_over_before_anything_is_done(memory: Memory) -> None:
    learnt = Learnt(memory, traces(*(home for home in SINGLE if home != ("stuck",))))
    boiler = Boiler("low", "stuck", "summer")
    result = learnt.run(boiler)
    assert (result.status, boiler.done) == ("failed", [])
    assert result.failure is not None
    assert result.failure.error_type == "HandedOver"
    assert 'check_pump: Pump is "stuck", which was never put right' in result.failure.message
    assert "nothing was changed" in result.failure.message


@pytest.mark.parametrize("value", ["whistling", "running backwards"])
def test_a_value_that_nobody_saw_is_handed_over(plumber: Learnt, value: str) -> None:
    boiler = Boiler("low")
    boiler.pump = value
    assert plumber.run(boiler).status == "failed"
    assert boiler.done == []


def test_a_field_that_nobody_saw_is_handed_over(plumber: Learnt) -> None:
    boiler = Boiler("low")
    tools = boiler.tools()
    tools["check_mode"] = lambda **_: {"mode": "winter", "is_locked": True}
    result = plumber.memory.run(plumber.routine, {"request": boiler.request}, tools)
    assert result.failure is not None
    assert "check_mode: is_locked is new" in result.failure.message
    assert boiler.done == []


def test_words_that_nobody_said_are_handed_over(plumber: Learnt) -> None:
    boiler = Boiler("low")
    request = f"{boiler.request} Don't touch the pressure."
    result = plumber.memory.run(plumber.routine, {"request": request}, boiler.tools())
    assert (result.status, boiler.done) == ("failed", [])


def test_what_did_no_harm_where_something_else_was_said_is_handed_over(memory: Memory) -> None:
    """Nobody who came in winter found the heating in summer mode; in July nobody minded it."""
    made = []
    for number, fault in enumerate(("low", "stuck", "low", "stuck", "low", "stuck")):
        boiler = Boiler(fault, home=number)
        boiler.month = "January"
        made.append(recorded(boiler))
        boiler = Boiler(fault, "summer", home=10 + number)
        boiler.month = "July"
        made.append(recorded(boiler))
    learnt = Learnt(memory, made)
    for month, status in (("January", "failed"), ("July", "ok")):
        boiler = Boiler("low", "summer", home=40)
        boiler.month = month
        result = learnt.run(boiler)
        assert (result.status, boiler.made) == (status, ["refill"] if status == "ok" else [])


def test_who_has_to_come_is_called_and_the_run_ends(plumber: Learnt) -> None:
    boiler = Boiler("leak")
    result = plumber.run(boiler)
    assert (result.status, boiler.made) == ("ok", ["call_engineer"]), result.failure


def test_a_fix_that_does_not_help_ends_the_run_with_what_was_done(plumber: Learnt) -> None:
    boiler = Boiler("low", "stuck", "summer")
    boiler.useless = "free_pump"
    result = plumber.run(boiler)
    assert (result.status, boiler.made) == ("failed", ["refill", "free_pump"])
    assert result.failure is not None
    assert "free_pump did not help: check_pump: Pump is still" in result.failure.message
    assert result.failure.context["done"] == ["refill", "free_pump"]


def test_a_fix_that_fails_ends_the_run_with_what_was_done(plumber: Learnt) -> None:
    boiler = Boiler("low", "stuck")

    def free_pump(**_: Any) -> None:
        raise ValueError("the pump is hot")

    result = plumber.memory.run(
        plumber.routine, {"request": boiler.request}, boiler.tools() | {"free_pump": free_pump}
    )
    assert result.failure is not None
    assert (result.failure.context["done"], boiler.made) == (["refill"], ["refill"])


def test_the_goal_is_looked_at_and_if_it_fails_the_run_does_not_say_ok(plumber: Learnt) -> None:
    boiler = Boiler("low")
    tools = boiler.tools() | {"measure_room": lambda **_: "Room: cold"}
    result = plumber.memory.run(plumber.routine, {"request": boiler.request}, tools)
    assert result.failure is not None
    assert result.failure.context["done"] == ["refill"]
    assert 'measure_room: Room is "cold"' in result.failure.message


def test_a_call_of_a_fix_that_says_it_failed_is_the_last_one(plumber: Learnt) -> None:
    boiler = Boiler("air")
    tools = boiler.tools() | {"bleed": lambda **_: "Error: the key does not fit"}
    result = plumber.memory.run(plumber.routine, {"request": boiler.request}, tools)
    assert result.failure is not None
    assert result.failure.error_type == "UnexpectedResult"
    assert result.failure.context["done"] == ["bleed"], "it was called"
    assert boiler.done == [], "the vents are not closed"


def test_something_new_after_a_fix_ends_the_fixing(plumber: Learnt) -> None:
    boiler = Boiler("low", "summer")
    tools = boiler.tools()

    def check_pump(**_: Any) -> str:
        return f"Pump: running\nPower: {'off' if boiler.done else 'on'}"

    result = plumber.memory.run(
        plumber.routine, {"request": boiler.request}, tools | {"check_pump": check_pump}
    )
    assert result.failure is not None
    assert 'check_pump: Power is "off", which was never put right' in result.failure.message
    assert boiler.made == ["refill"]


def test_no_fix_is_made_more_often_than_a_trace_made_it(plumber: Learnt) -> None:
    """The pressure is low, is put right, and is low again after every other fix."""
    boiler = Boiler("low", "stuck", "summer")
    tools = boiler.tools()

    def free_pump(**args: Any) -> Any:
        boiler.faults.add("low")
        return boiler.tools()["free_pump"](**args)

    result = plumber.memory.run(
        plumber.routine, {"request": boiler.request}, tools | {"free_pump": free_pump}
    )
    assert result.failure is not None
    assert "refill would be needed again" in result.failure.message
    assert boiler.made.count("refill") == 1


def test_traces_that_contradict_each_other_are_refused(memory: Memory) -> None:
    """Two of them left the pump as it was, and the room got warm all the same."""
    made = traces(*SINGLE, looks_first=True)
    healthy = traces(("low",), looks_first=True)[0]
    stuck = [one for one in made if any(getattr(e, "tool", "") == "free_pump" for e in one.events)]
    odd = msgspec.structs.replace(
        stuck[0], events=[e for e in stuck[0].events if getattr(e, "tool", "") != "free_pump"]
    )
    with pytest.raises(RoutineError, match="contradict each other"):
        Learnt(memory, [*made, healthy, odd])


def test_a_dry_run_shows_the_first_fix_and_what_waits_for_it(plumber: Learnt) -> None:
    boiler = Boiler("low", "summer")
    result = plumber.run(boiler, dry_run=True)
    first, second, *_ = result.planned
    assert (first.tool, first.does) == ("refill", "write")
    assert {one.place: (one.value, one.source) for one in first.arguments} == {
        "boiler_id": ("HB7201", "`find_boiler.boiler_id`"),
        "bar": (1.5, "always 1.5"),
    }
    assert first.guards[0].guard == 'check_pressure: bar vs minimum_bar is "<"'
    assert (second.tool, second.does, second.needs) == (
        "set_mode",
        "wait",
        ["the effect of refill"],
    )
    assert boiler.done == []


def test_a_run_that_dies_amid_the_fixes_goes_on_and_repeats_none(memory: Memory) -> None:
    plumber = Learnt(memory, traces(*SINGLE, *LEAKS))
    boiler = Boiler("low", "stuck", "summer")
    boiler.dies_at = "free_pump"
    with pytest.raises(KeyboardInterrupt):
        plumber.run(boiler, run_id="killed")
    assert boiler.made == ["refill"]
    boiler.dies_at = ""
    result = plumber.memory.resume("killed", boiler.tools())
    assert result.pending_prompt is not None, "nobody knows whether the pump was freed"
    answer = {result.pending_prompt.step_id: {"happened": False}}
    result = plumber.memory.resume("killed", boiler.tools(), answers=answer)
    assert (result.status, boiler.made) == ("ok", ["refill", "free_pump", "set_mode"])


def kept(made: list[Trace]) -> list[KeptTrace]:
    at = datetime(2026, 11, 16, tzinfo=UTC)
    return [
        KeptTrace(id=f"t{n}", trace=trace, at=at, event_ids=[f"e{n}"])
        for n, trace in enumerate(made)
    ]


def test_the_proof_says_how_it_did_on_traces_it_was_not_learnt_from() -> None:
    draft = compile_several(kept(traces(*SINGLE, ("low", "summer"), ("air", "stuck")))).draft
    assert draft.proof[0] == (
        "tried on traces that it was not learnt from: right in 18 of 18, handed over in 0,"
        " wrong in 0"
    )


def test_a_fault_that_one_trace_had_is_handed_over_in_its_trial() -> None:
    draft = compile_several(kept(traces(*SINGLE[:-3]))).draft
    assert "right in 12 of 13, handed over in 1, wrong in 0" in draft.proof[0]


def test_one_wrong_trial_refuses_the_traces() -> None:
    """In one home the pressure was right as soon as the mode was: the others teach a refill."""
    odd = recorded(Boiler("summer", home=40), looks_first=True)
    tools = [getattr(one, "tool", "") for one in odd.events]
    place = tools.index("check_pressure")
    low = {"bar": 0.4, "minimum_bar": 1.0, "unit": "bar"}
    odd.events[place] = msgspec.structs.replace(odd.events[place], result=low)
    traces_of_all = kept([*traces(*SINGLE, looks_first=True), odd])
    with pytest.raises(RoutineError, match=r"wrong in 1") as refused:
        compile_several(traces_of_all)
    assert "it would make refill" in str(refused.value)
    assert compile_several(traces_of_all, force=True).draft.proof[0].endswith("wrong in 1")


def test_the_package_is_valid_and_says_what_the_rules_are(plumber: Learnt, tmp_path: Path) -> None:
    folder = tmp_path / "warm"
    write_files(texts_of(find_routine(plumber.memory.store, plumber.routine.ref)), folder)
    assert validate(folder) == []
    text = (folder / "routine.yaml").read_text()
    assert "type: rules" in text
    assert "right in" in text


def test_words_that_say_what_to_do_are_no_rules() -> None:
    """Each request asks for its own effect: that is a plan, or nothing."""
    made = []
    for number, (fault, words) in enumerate({"low": "Refill", "stuck": "Free the pump"}.items()):
        trace = recorded(Boiler(fault, home=number))
        said = msgspec.structs.replace(trace.events[0], text=f"{words}. Home: H-{4100 + number}.")
        made.append(msgspec.structs.replace(trace, events=[said, *trace.events[1:]]))
    routine = compile_several(kept(made)).draft.routine
    assert not any(isinstance(step, RulesStep) for step in routine.steps)


class Servers:
    """Services of one machine; some may be down, or have filled their disk."""

    NAMES = ("mail", "web", "search", "billing")

    def __init__(self, machine: int, *down: str, is_full: bool = False) -> None:
        self.name, self.down, self.is_full = f"srv-{5600 + machine}", set(down), is_full
        self.done: list[tuple[str, dict[str, Any]]] = []

    @property
    def request(self) -> str:
        return f"Something is wrong on machine {self.name}"

    def tools(self) -> dict[str, Any]:
        return {
            "list_services": self.list_services,
            "read_disk": self.read_disk,
            "ping": lambda machine: {"ok": not self.down and not self.is_full},
            "restart": self.restart,
            "clean_disk": self.clean_disk,
        }

    def list_services(self, machine: str) -> list[dict[str, Any]]:
        assert machine == self.name
        return [
            {"service": one, "state": "down" if one in self.down else "up"} for one in self.NAMES
        ]

    def read_disk(self, machine: str) -> dict[str, Any]:
        assert machine == self.name
        return {"used_gb": 99 if self.is_full else 20, "limit_gb": 90}

    def restart(self, machine: str, service: str) -> dict[str, Any]:
        self.done.append(("restart", {"machine": machine, "service": service}))
        self.down.discard(service)
        return {"ok": True}

    def clean_disk(self, machine: str, paths: list[str]) -> dict[str, Any]:
        self.done.append(("clean_disk", {"machine": machine, "paths": paths}))
        self.is_full = False
        return {"ok": True}

    def recorded(self) -> Trace:
        events: list[Any] = [Message(role="user", text=self.request)]

        def call(tool: str, **args: Any) -> Any:
            effect: Any = "write" if tool in ("restart", "clean_disk") else "read"
            result = self.tools()[tool](machine=self.name, **args)
            own = {"machine": self.name, **args}
            events.append(ToolCall(tool=tool, args=own, result=result, effect=effect))

        call("list_services")
        call("read_disk")
        for service in sorted(self.down):
            call("restart", service=service)
        if self.is_full:
            call("clean_disk", paths=["/tmp", "/var/tmp"])
        call("list_services")
        call("read_disk")
        call("ping")
        return Trace(mission=Mission(goal=self.request), events=events, outcome="success")


@pytest.fixture(scope="module")
def operator(new_memory: Callable[[], Memory]) -> Learnt:
    down = [Servers(n, Servers.NAMES[n % 3]).recorded() for n in range(4)]
    full = [Servers(n, is_full=True).recorded() for n in range(4, 8)]
    return Learnt(new_memory(), [*down, *full])


def test_the_item_that_is_the_reason_is_the_one_that_is_acted_on(operator: Learnt) -> None:
    servers = Servers(40, "billing", is_full=True)
    result = operator.memory.run(operator.routine, {"request": servers.request}, servers.tools())
    assert result.status == "ok", result.failure
    assert servers.done == [
        ("restart", {"machine": "srv-5640", "service": "billing"}),
        ("clean_disk", {"machine": "srv-5640", "paths": ["/tmp", "/var/tmp"]}),
    ]


def test_the_order_of_lists_and_of_keys_does_not_count(operator: Learnt) -> None:
    servers = Servers(40, "mail", is_full=True)

    def list_services(machine: str) -> list[dict[str, Any]]:
        return [dict(reversed(one.items())) for one in reversed(servers.list_services(machine))]

    tools = servers.tools() | {"list_services": list_services}
    result = operator.memory.run(operator.routine, {"request": servers.request}, tools)
    assert result.status == "ok", result.failure
    assert [tool for tool, _ in servers.done] == ["restart", "clean_disk"]


def test_two_such_items_are_handed_over(operator: Learnt) -> None:
    servers = Servers(40, "billing", "web")
    result = operator.memory.run(operator.routine, {"request": servers.request}, servers.tools())
    assert (result.status, servers.done) == ("failed", [])


def test_another_machine_than_the_one_of_the_request_is_not_touched(operator: Learnt) -> None:
    servers = Servers(40, "web")
    request = {"request": f"{servers.request}, not on srv-5641"}
    result = operator.memory.run(operator.routine, request, servers.tools())
    assert (result.status, servers.done) == ("failed", [])
