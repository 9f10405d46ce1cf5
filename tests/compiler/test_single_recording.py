"""One recording, compiled by a person: what becomes an input, what is read, and what is checked."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from em.compiler.evidence import BY_PERSON
from em.compiler.example import Call, Example
from em.compiler.learner import Learnt, learn
from em.compiler.requested import with_requested
from em.runner.engine import run_routine
from em.runner.run import RunResult

Made = tuple[str, dict[str, Any]]
Recorded = tuple[str, dict[str, Any], Any]
OK = {"ok": True}


def read(tool: str, result: Any, **args: Any) -> Call:
    return Call(tool, args, result, None, "read")


def write(tool: str, result: Any = OK, **args: Any) -> Call:
    return Call(tool, args, result, None, "write")


def compiled(calls: Sequence[Call], request: str = "", **inputs: Any) -> Learnt:
    example = Example(inputs, calls, request=request)
    return learn("task", with_requested([example]), caution=BY_PERSON)


class Runs:
    """Runs a routine in a world; reads answer by tool, writes are noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writes: list[Made] = []

    def __call__(
        self, learnt: Learnt, answers: Mapping[str, Any], given: dict[str, Any]
    ) -> RunResult:
        self.writes = []
        text = json.dumps(learnt.routine, ensure_ascii=False)
        (self.folder / "routine.yaml").write_text(text)
        tools = {
            one["name"]: self._tool(one["name"], one["effect"], answers.get(one["name"], OK))
            for one in learnt.routine["tools"]
        }
        return run_routine(self.folder, given, tools)

    def _tool(self, name: str, effect: str, answer: Any) -> Callable[..., Any]:
        def call(**args: Any) -> Any:
            if effect == "write":
                self.writes.append((name, args))
            return answer(**args) if callable(answer) else answer

        return call


@pytest.fixture
def run(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


TICKET = {"id": "T-100", "state": "open", "owner": "Mara", "votes": 12, "closed_at": None}


def escalate(**changes: Any) -> dict[str, Any]:
    return {**TICKET, **changes}


def escalation() -> Learnt:
    return compiled(
        [
            read("get_ticket", TICKET, ticket="T-100"),
            write("escalate", ticket="T-100", team="night", owner="Mara"),
        ],
        ticket="T-100",
    )


def test_given_inputs_and_values_that_were_read_are_not_constants(run: Runs) -> None:
    made = escalation()
    other = escalate(id="T-205", owner="Ilse", votes=3)
    assert run(made, {"get_ticket": other}, {"ticket": "T-205"}).status == "ok"
    assert run.writes == [("escalate", {"ticket": "T-205", "team": "night", "owner": "Ilse"})]
    assert made.constants == [("escalate.team", "night")]


@pytest.mark.parametrize(
    "change",
    [
        {"state": "closed"},
        {"closed_at": "2026-05-03"},
        {"votes": 0},
        {"id": "T-999"},
        {"owner": None},
    ],
)
def test_what_the_record_showed_must_be_so_again(run: Runs, change: dict[str, Any]) -> None:
    world = {"get_ticket": escalate(**{"id": "T-205", **change})}
    ended = run(escalation(), world, {"ticket": "T-205"})
    assert ended.status == "needs_input"
    assert ended.reason is not None
    assert not run.writes


CONTRACTS = [
    {
        "contract": f"K-{number}",
        "status": "Active" if number % 3 else "Ended",
        "agent": agent,
        "signed": True,
        "note": "" if number % 2 else "by post",
    }
    for number, agent in enumerate(
        ("Maja", "Pelle", "Olof", "Signe", "Nils", "Rosa", "Ida", "Eva", "Bo", "Kit"), 1
    )
]


def renewal(size: int = len(CONTRACTS)) -> Learnt:
    calls = [
        read("list_contracts", CONTRACTS[:size], berth="C14"),
        write("renew", contract="K-2"),
    ]
    return compiled(calls, contract="K-2", berth="C14")


@pytest.mark.parametrize(
    ("size", "change", "status"),
    [
        (10, {"agent": "Zoe"}, "ok"),
        (10, {"agent": ""}, "needs_input"),
        (10, {"agent": "Zoe", "status": "Ended"}, "needs_input"),
        (10, {"agent": "Zoe", "signed": False}, "needs_input"),
        (10, {"agent": "Zoe", "note": ""}, "needs_input"),
        (8, {"agent": "Zoe"}, "needs_input"),
    ],
)
def test_words_of_which_a_list_shows_many_are_names(
    run: Runs, size: int, change: dict[str, Any], status: str
) -> None:
    world = {"list_contracts": [{**CONTRACTS[1], "contract": "K-90", **change}]}
    ended = run(renewal(size), world, {"contract": "K-90", "berth": "A3"})
    assert ended.status == status
    assert run.writes == ([("renew", {"contract": "K-90"})] if status == "ok" else [])


@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize("slot", [911, 7])
def test_the_element_that_a_write_names_is_as_it_was(run: Runs, slot: int, is_given: bool) -> None:
    def slots(state: str, number: int) -> Any:
        rows = [{"slot": number, "state": state}, {"slot": number + 2, "state": "blocked"}]
        return {"day": "2026-06-08", "slots": rows}

    calls = [read("agenda", slots("free", slot), doctor="d-1"), write("book", slot=slot)]
    given = {"slot": slot} if is_given else {}
    made = compiled(calls, doctor="d-1", **given)
    other = {"doctor": "d-2", "slot": slot + 20}
    assert run(made, {"agenda": slots("free", slot + 20)}, other).status == "ok"
    assert run.writes == [("book", {"slot": slot + 20})]
    assert run(made, {"agenda": slots("held", slot + 20)}, other).status == "needs_input"
    assert not run.writes


@pytest.mark.parametrize(("status", "ended"), [("Active", "ok"), ("Ended", "needs_input")])
@pytest.mark.parametrize("asked", [{"berth": "C14"}, {"contract": "K-2"}])
def test_the_element_that_a_text_names_is_as_it_was(
    run: Runs, asked: dict[str, str], status: str, ended: str
) -> None:
    calls = [read("contracts", CONTRACTS[1:4], **asked), write("log", text="renewed K-2 now")]
    world = {"contracts": [{**CONTRACTS[1], "contract": "K-90", "status": status}]}
    made = compiled(calls, **{"contract": "K-2", **asked})
    given = dict.fromkeys(asked, "A3") | {"contract": "K-90"}
    assert run(made, world, given).status == ended
    assert run.writes == ([("log", {"text": "renewed K-90 now"})] if ended == "ok" else [])


def test_a_part_of_a_text_may_be_asked_for_where_nothing_is_written(run: Runs) -> None:
    made = compiled([read("search", CONTRACTS[1:4], words="paid 118.25 now")])
    (asked,) = made.asked
    assert run(made, {"search": CONTRACTS[:1]}, {asked: "7.50"}).output == CONTRACTS[:1]


@pytest.mark.parametrize(("status", "ended"), [("Active", "ok"), ("Ended", "needs_input")])
def test_the_record_that_a_write_names_by_its_key_is_as_it_was(
    run: Runs, status: str, ended: str
) -> None:
    known = {f"K-{number}": {"status": "Active", "hours": number} for number in (1, 2, 3)}
    calls = [read("contracts", {"by_id": known}, berth="C14"), write("renew", contract="K-2")]
    world = {"contracts": {"by_id": {"K-90": {"status": status, "hours": 8}}}}
    made = compiled(calls, contract="K-2", berth="C14")
    assert run(made, world, {"contract": "K-90", "berth": "A3"}).status == ended
    assert run.writes == ([("renew", {"contract": "K-90"})] if ended == "ok" else [])


@pytest.mark.parametrize(
    ("was", "now"),
    [("Open", "Closed"), ("OPEN", "VOID"), ("In Progress", "On Hold"), (2, 0), (True, False)],
)
def test_how_a_value_is_written_does_not_say_that_it_may_change(
    run: Runs, was: Any, now: Any
) -> None:
    record = {"lead": "Vera", "seats": was, "by": "ana"}
    calls = [read("trip", record, trip="t9"), write("sign_up", trip="t9", label="Vera")]
    made = compiled(calls, trip="t9")
    assert run(made, {"trip": {**record, "lead": "Anton"}}, {"trip": "t12"}).status == "ok"
    assert run(made, {"trip": {**record, "seats": now}}, {"trip": "t12"}).status == "needs_input"
    assert not run.writes


def test_a_second_recording_strikes_a_check() -> None:
    def example(ticket: str, **changes: Any) -> Example:
        record = {**TICKET, "id": ticket, **changes}
        calls = [
            read("get_ticket", record, ticket=ticket),
            write("escalate", ticket=ticket, team="night"),
        ]
        return Example({"ticket": ticket}, calls)

    examples = [example("T-100"), example("T-205", state="waiting")]
    steps = learn("task", examples, caution=BY_PERSON).routine["steps"]
    expected = steps[0]["expect"]["properties"]
    assert "state" not in expected
    assert expected["closed_at"] == {"const": None}


def test_values_of_the_request_are_inputs_named_after_their_arguments(run: Runs) -> None:
    made = compiled(
        [
            read("find_flight", {"code": "BA 77", "gate": "B4"}, flight="BA 77"),
            write("book", flight="BA 77", seat="4B", bags=2, meal="plain"),
        ],
        "Book seat 4B with 2 bags on BA 77.",
    )
    assert sorted(made.routine["input_schema"]["required"]) == ["bags", "flight", "seat"]
    given = {"flight": "LH 400", "seat": "11A", "bags": 1}
    assert run(made, {"find_flight": {"code": "LH 400", "gate": "A1"}}, given).status == "ok"
    assert run.writes == [("book", {**given, "meal": "plain"})]


def test_names_of_requested_inputs_are_the_same_over_recordings() -> None:
    def example(flight: str, seat: str) -> Example:
        calls = [write("book", flight=flight, seat=seat, meal="plain")]
        return Example({}, calls, request=f"Book {seat} on {flight}, plain meal.")

    found = [example("BA 77", "4B"), example("LH 400", "11A"), example("AF 9", "2C")]
    schema = learn("task", with_requested(found), caution=BY_PERSON).routine["input_schema"]
    assert sorted(schema["properties"]) == ["flight", "seat"]


@pytest.mark.parametrize("value", [450, 12.5, "2026-05-03", "17.30"])
def test_a_number_or_date_that_nothing_explains_is_asked_for(value: Any) -> None:
    made = compiled(
        [
            read("get_bill", {"number": "B-1", "pages": 31}, number="B-1"),
            write("pay", number="B-1", extra=value),
        ],
        number="B-1",
    )
    assert made.asked == ["extra"]


def test_words_written_after_reading_prose_are_asked_for() -> None:
    body = "Hello, the tap in our kitchen has been dripping since last week and we can't stop it."
    calls = [read("get_mail", {"body": body}, mail="m-1"), write("tag", mail="m-1", tag="repair")]
    assert compiled(calls, mail="m-1").asked == ["tag"]


def test_a_small_number_is_taken_from_a_result_only_by_its_name() -> None:
    record = {"ref": "K-1", "floor": 4, "seats": 8}
    same = [read("get_room", record, room="K-1"), write("book", room="K-1", floor=4)]
    other = [read("get_room", record, room="K-1"), write("book", room="K-1", hours=4)]
    assert not compiled(same, room="K-1").asked
    assert compiled(other, room="K-1").asked == ["hours"]


def test_an_input_that_nothing_uses_must_be_as_recorded(run: Runs) -> None:
    made = compiled([write("ping", host="h-1")], host="h-1", mode="fast")
    assert run(made, {}, {"host": "h-2", "mode": "fast"}).status == "ok"
    assert run(made, {}, {"host": "h-2", "mode": "slow"}).status == "needs_input"
    assert not run.writes


def test_a_write_is_repeated_for_each_element_of_a_result(run: Runs) -> None:
    files = ["a1.pdf", "a2.pdf"]
    calls = [
        read("list_files", files, folder="/in"),
        *(write("move", source=f"/in/{one}", target=f"/out/2026/{one}") for one in files),
    ]
    made = compiled(calls, folder="/in", year="2026")
    found = ["f7.tif", "f8.tif", "f9.tif"]
    assert run(made, {"list_files": found}, {"folder": "/fax", "year": "2027"}).status == "ok"
    assert run.writes == [
        ("move", {"source": f"/fax/{one}", "target": f"/out/2027/{one}"}) for one in found
    ]


def test_reads_in_a_loop_over_a_result_are_repeated(run: Runs) -> None:
    people = [{"id": "U-1", "role": "a"}, {"id": "U-2", "role": "b"}]
    mails = {"U-1": "ann@x.example", "U-2": "bob@x.example", "U-3": "eva@x.example"}
    calls = [read("list_people", {"people": people}, team="red")]
    for one in people:
        calls.append(read("get_mail", mails[one["id"]], user=one["id"]))
        calls.append(write("invite", to=mails[one["id"]], role=one["role"]))
    made = compiled(calls, team="red")
    world = {
        "list_people": {"people": [{"id": "U-3", "role": "c"}, {"id": "U-1", "role": "a"}]},
        "get_mail": lambda user: mails[user],
    }
    run(made, world, {"team": "blue"})
    assert run.writes == [
        ("invite", {"to": "eva@x.example", "role": "c"}),
        ("invite", {"to": "ann@x.example", "role": "a"}),
    ]


def test_several_recordings_learn_the_same_loop_without_a_person(run: Runs) -> None:
    def example(number: int) -> Example:
        files = [f"F-{number}{one}731" for one in range(2 + number % 3)]
        folder = f"/in/box-{number}400"
        calls = [
            read("list_files", files, folder=folder),
            *(write("remove", folder=folder, file=one) for one in files),
        ]
        return Example({"folder": folder}, calls)

    made = learn("task", [example(number) for number in range(6)])
    run(made, {"list_files": ["F-881", "F-882"]}, {"folder": "/in/box-7400"})
    assert run.writes == [
        ("remove", {"folder": "/in/box-7400", "file": one}) for one in ("F-881", "F-882")
    ]


def test_repeated_writes_that_no_list_explains_are_writes_of_their_own(run: Runs) -> None:
    calls = [
        write("type_text", field="name", text="Ines"),
        write("type_text", field="mail", text="i@p.example"),
        write("click", button="Send"),
    ]
    made = compiled(calls, name="Ines", email="i@p.example")
    assert run(made, {}, {"name": "Jon", "email": "j@v.example"}).status == "ok"
    assert run.writes == [
        ("type_text", {"field": "name", "text": "Jon"}),
        ("type_text", {"field": "mail", "text": "j@v.example"}),
        ("click", {"button": "Send"}),
    ]


def test_an_element_is_found_by_what_is_known_about_it_or_asked_for() -> None:
    logs = [{"file": "a.log", "kind": "mail"}, {"file": "k.log", "kind": "shop"}]
    calls = [read("list_logs", logs, host="h-1"), write("send", file="k.log")]
    assert compiled(calls, host="h-1").asked == ["file"]
    assert not compiled(calls, host="h-1", kind="shop").asked


def test_a_number_is_computed_from_others(run: Runs) -> None:
    calls = [
        read("get_hours", {"hours": 13, "rate": 85}, project="Pier"),
        write("invoice", project="Pier", amount=1105),
    ]
    made = compiled(calls, project="Pier")
    run(made, {"get_hours": {"hours": 22, "rate": 70}}, {"project": "Dome"})
    assert run.writes == [("invoice", {"project": "Dome", "amount": 1540})]


def test_sums_and_counts_of_a_list_are_made_again(run: Runs) -> None:
    entries = [{"task": "API", "h": 19.5}, {"task": "Docs", "h": 12.25}]
    calls = [
        read("get_week", {"entries": entries}, week="2026-W20"),
        write("submit", week="2026-W20", hours=31.75, entries=2),
    ]
    made = compiled(calls, week="2026-W20")
    other = [{"task": "Audit", "h": 0.1}, {"task": "API", "h": 0.2}, {"task": "Ops", "h": 8}]
    run(made, {"get_week": {"entries": other}}, {"week": "2026-W23"})
    assert run.writes == [("submit", {"week": "2026-W23", "hours": 8.3, "entries": 3})]


def test_a_count_that_is_called_otherwise_is_asked_for() -> None:
    calls = [
        read("list_files", ["a1.pdf", "a2.pdf"], folder="/in"),
        write("report", folder="/in", priority=2),
    ]
    assert compiled(calls, folder="/in").asked == ["priority"]


@pytest.mark.parametrize("value", [None, True, [], {}, [1, "x"], {"a": {"b": [None]}}, 1e308, ""])
def test_no_value_keeps_a_recording_from_being_compiled(value: Any) -> None:
    record = {"ref": "R-1", "held": value}
    compiled([read("get", record, ref="R-1"), write("put", ref="R-1", value=value)], ref="R-1")
    compiled([write("put", ref="R-1", value=value)], "Put it.", ref="R-1")


def test_a_date_stays_on_its_side_of_today(run: Runs) -> None:
    member = {"name": "Ola Ek", "valid_until": "2026-12-31"}
    calls = [
        read("today", "2026-05-10"),
        read("get_member", member, member="M-20"),
        write("issue", member="M-20", name="Ola Ek"),
    ]
    made = compiled(calls, member="M-20")
    old = {"name": "Kit Moe", "valid_until": "2026-02-28"}
    fine = {"name": "Pam Roy", "valid_until": "2027-03-31"}
    days = {"today": "2026-05-10"}
    assert run(made, {**days, "get_member": old}, {"member": "M-44"}).status == "needs_input"
    assert not run.writes
    assert run(made, {**days, "get_member": fine}, {"member": "M-31"}).status == "ok"


def test_a_list_of_which_nothing_is_known_is_constant() -> None:
    made = compiled([write("label", ticket="T-1", labels=["urgent", "web"])], ticket="T-1")
    assert made.constants == [("label.labels", ["urgent", "web"])]


def test_a_loop_goes_over_those_elements_that_the_request_names(run: Runs) -> None:
    invoices = [
        {"no": "R-11", "to": "kay", "late": True},
        {"no": "R-14", "to": "bob", "late": False},
        {"no": "R-19", "to": "cyd", "late": True},
    ]
    calls = [
        read("list_invoices", invoices, branch="Kiel"),
        write("remind", to="kay", invoice="R-11"),
        write("remind", to="cyd", invoice="R-19"),
    ]
    made = compiled(calls, "Remind those of Kiel whose invoices are late.", branch="Kiel")
    others = [
        {"no": "R-31", "to": "ann", "late": False},
        {"no": "R-32", "to": "ted", "late": True},
    ]
    assert run(made, {"list_invoices": others}, {"branch": "Bonn"}).status == "ok"
    assert run.writes == [("remind", {"to": "ted", "invoice": "R-32"})]
    assert compiled(calls, "Remind those of Kiel.", branch="Kiel").asked


def test_plain_words_of_the_request_are_defaults_beside_other_inputs(run: Runs) -> None:
    made = compiled([write("deploy", build=1180, to="staging")], "Deploy build 1180 to staging.")
    assert made.routine["input_schema"]["required"] == ["build"]
    run(made, {}, {"build": 1192})
    assert run.writes == [("deploy", {"build": 1192, "to": "staging"})]
    run(made, {}, {"build": 1192, "to": "production"})
    assert run.writes == [("deploy", {"build": 1192, "to": "production"})]


def test_numbers_that_may_limit_one_another_are_shown() -> None:
    calls = [
        read("get_hall", {"name": "Dome", "capacity": 110}, hall="Dome"),
        write("book", hall="Dome", guests=80),
    ]
    made = compiled(calls, hall="Dome", guests=80)
    assert [*made.unchecked] == ["guests, hall_2.capacity"]


VALUES = {
    "code": st.integers(100, 999).map("B-{}".format),
    "name": st.sampled_from("Mira Berg,Jonas Lund,Odile Holt,Tarek Voss,Freya Kern".split(",")),
    "small": st.integers(1, 60),
    "large": st.integers(100, 9999),
    "money": st.integers(100, 99999).map(lambda cents: cents / 100),
    "day": st.dates().map(str).filter(lambda day: day > "1970"),
}
KINDS = st.sampled_from([*VALUES])
FIXED = st.sampled_from([73, 87, "K2", "plain", True, 50_000])


@settings(deadline=None, max_examples=120)
@drawn(st.data())
def test_arguments_from_anywhere_are_never_wrong(data: st.DataObject) -> None:
    """Arguments are inputs, fields or constants, by their own name or another one."""
    inputs = {"ref": "code"} | {f"given{n}": data.draw(KINDS) for n in range(2)}
    fields = {f"field{n}": data.draw(KINDS) for n in range(3)}
    sources = data.draw(st.lists(st.sampled_from([*inputs, *fields, ""]), min_size=1, max_size=4))
    args = {
        (source if source and data.draw(st.booleans()) else f"arg{number}"): source
        or data.draw(FIXED)
        for number, source in enumerate(sources)
    }
    worlds = [
        {name: data.draw(VALUES[kind]) for name, kind in (inputs | fields).items()}
        for _ in range(2)
    ]
    unused = {name for name in inputs if name not in args.values()} - {"ref"}
    worlds[1] |= {name: worlds[0][name] for name in unused}

    def flow(world: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        written = {
            name: world[source] if isinstance(source, str) and source in world else source
            for name, source in args.items()
        }
        return (
            {name: world[name] for name in inputs},
            {name: world[name] for name in fields},
            written,
        )

    old, new = map(flow, worlds)
    calls = [read("get_thing", old[1], ref=old[0]["ref"]), write("act", **old[2])]
    with tempfile.TemporaryDirectory() as folder:
        run = Runs(Path(folder))
        run(compiled(calls, **old[0]), {"get_thing": new[1]}, new[0])
    assert run.writes in ([], [("act", new[2])])
