"""The commands around state, as a user types them."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.cli.root import run
from em.llm import ScriptedClient


def em(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    assert run(list(args)) == code, capsys.readouterr()
    return capsys.readouterr().out


def em_json(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> Any:
    return json.loads(em(capsys, *args, "--json", code=code))


MOVED = [{"op": "set", "field": "city", "value": "Porto", "since": "2025-03",
          "evidence": "moved to Porto in March"}]  # fmt: skip


@pytest.fixture
def ana(capsys: pytest.CaptureFixture[str]) -> None:
    Path("trips.csv").write_text("to,date,cost_usd\nRome,2024-01-01,5.5\nOslo,2023-01-01,7\n")
    Path("trips.jsonl").write_text('{"to": "Faro", "date": "2024-02-01", "cost_usd": 2}\n\n')
    moved = ["I moved to Porto in March.", "--at", "2025-04-07", "--facts", json.dumps(MOVED)]
    em(capsys, "observe", "ana", *moved)
    em(capsys, "observe", "ana", '{"city": "Lisbon"}', "--type", "Profile", "--at", "2024-01-01")
    em(capsys, "observe", "ana", "--file", "trips.csv", "--type", "Trip")
    em(capsys, "observe", "ana", "--file", "trips.jsonl", "--type", "Trip")
    em(capsys, "state", "checkpoint", "ana")


@pytest.mark.usefixtures("ana")
def test_from_observing_to_asking(capsys: pytest.CaptureFixture[str]) -> None:
    assert em(capsys, "state", "ask", "ana", "--code", "sum(t.cost_usd for t in trips)") == "14.5\n"
    answer = em_json(
        capsys, "state", "ask", "ana", "--code", "[t.date for t in trips if t.date.year == 2023]"
    )
    assert (answer["value"], answer["route"]) == (["2023-01-01"], "code")
    assert "I moved to Porto" in em(capsys, "state", "ask", "ana", "what did I say about Porto?")
    shown = em_json(capsys, "state", "show", "ana")
    assert (shown["profile"], shown["collections"]) == ({"city": "Porto"}, {"trips": 3})
    assert "Oslo" in em(capsys, "state", "show", "ana", "trips")
    assert em_json(capsys, "state", "show", "ana", "--as-of", "2024-06-01")["profile"] == {
        "city": "Lisbon"
    }
    assert "class Trip:" in em(capsys, "state", "code", "ana")


@pytest.mark.usefixtures("ana")
def test_conflicts_are_shown_and_resolved(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = em_json(capsys, "state", "conflicts", "ana")["conflicts"]
    assert (found["field"], found["value"], found["policy"]) == ("Profile.city", "Porto", "latest")
    em(capsys, "state", "resolve", "ana", "city", "--policy", "ask")
    assert em_json(capsys, "state", "conflicts", "ana")["conflicts"][0]["open"]
    em(capsys, "state", "resolve", "ana", "city", "--value", "Faro")
    assert "decided" in em(capsys, "state", "history", "ana", "city")
    assert [one["version"] for one in em_json(capsys, "state", "history", "ana")["versions"]] == [
        1,
        2,
        3,
    ]
    assert "policy Profile.city: latest -> ask" in em(capsys, "state", "diff", "ana", "1", "3")


@pytest.mark.usefixtures("ana")
def test_decisions_are_taken_back_by_their_event(capsys: pytest.CaptureFixture[str]) -> None:
    decided = em_json(capsys, "state", "resolve", "ana", "city", "--value", "Faro")["event_id"]
    assert em_json(capsys, "state", "show", "ana")["profile"] == {"city": "Faro"}
    em(capsys, "state", "resolve", "ana", "--undo", decided)
    assert em_json(capsys, "state", "show", "ana")["profile"] == {"city": "Porto"}
    assert run(["state", "resolve", "ana"]) == 2
    assert "--undo" in capsys.readouterr().err


@pytest.mark.usefixtures("ana")
def test_the_log_says_who_decided_at_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "bo")

    def by(*args: str) -> str:
        event = em_json(capsys, *args)["event_id"]
        with Memory() as memory:
            return str((memory.log.get(event).body or {})["by"])

    assert by("state", "resolve", "ana", "city", "--value", "Faro") == "bo"
    assert by("state", "resolve", "ana", "city", "--policy", "ask") == "bo"
    assert by("state", "retract", "ana", "profile.city") == "bo"


@pytest.mark.usefixtures("ana")
def test_a_key_is_declared(capsys: pytest.CaptureFixture[str]) -> None:
    em(capsys, "observe", "ana", '{"to": "Rome", "cost_usd": 9}', "--type", "Trip")
    assert "version 2" in em(capsys, "state", "key", "ana", "Trip", "to")
    assert em_json(capsys, "state", "show", "ana")["collections"] == {"trips": 3}
    found = em_json(capsys, "state", "conflicts", "ana")["conflicts"]
    assert ("Trip.cost_usd", ["Rome"], 9) in [
        (one["field"], one["key"], one["value"]) for one in found
    ]


@pytest.mark.usefixtures("ana")
def test_rules_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rules.py").write_text(
        "from em.state.rules import alert, rule\n"
        "@rule('book', severity='high')\n"
        "def seen(state, to): return f'{to} again' if to in [t.to for t in state.trips] else None\n"
        "@alert()\ndef now(state, now): return 'now'\n"
    )
    out = em(capsys, "state", "check", "ana", "book", "to=Rome", "--rules", "rules.py", code=1)
    assert out.splitlines()[1].split() == ["high", "seen", "Rome", "again"]
    assert em(capsys, "state", "check", "ana", "book", "to=Bonn", "--rules", "rules.py") == ""
    assert (
        em_json(capsys, "state", "alerts", "ana", "--rules", "rules.py", code=1)["alerts"][0][
            "message"
        ]
        == "now"
    )
    Path("em.yaml").write_text("state: {rules: rules.py}\n")
    em(capsys, "state", "check", "ana", "book", "to=Rome", code=1)


def test_a_checkpoint_that_would_break_something_waits_for_accept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("rules.py").write_text(
        "from em.state.rules import rule\n"
        "@rule('go')\n"
        "def late(state): return state.trips[0].date.year > 3000\n"
    )
    Path("em.yaml").write_text("state: {rules: rules.py}\n")
    em(capsys, "observe", "ana", '{"date": "2024-05-02"}', "--type", "Trip")
    em(capsys, "state", "checkpoint", "ana")
    em(capsys, "observe", "ana", '{"date": "whenever"}', "--type", "Trip")
    assert run(["state", "checkpoint", "ana"]) == 1
    assert "--accept" in capsys.readouterr().err
    assert "accepted: breaks rule late" in em(capsys, "state", "checkpoint", "ana", "--accept")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "a,b\n1\n", "a.csv:2"),
        ("a.csv", "a,a\n1,2\n", "two columns"),
        ("a.jsonl", '{"a": 1}\n[1]\n', "a.jsonl:2"),
        ("a.json", "[1]", "expected a JSON object"),
        ("a.txt", "", "found nothing"),
        ("a.csv", "", "found nothing"),
    ],
)
def test_files_that_are_not_what_they_seem(
    capsys: pytest.CaptureFixture[str], name: str, content: str, said: str
) -> None:
    Path(name).write_text(content)
    assert run(["observe", "ana", "--file", name]) in (1, 2)
    assert said in capsys.readouterr().err
    assert not Path(".em").exists()


def test_the_model_is_asked_only_if_it_is_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trip = {"op": "add", "type": "Trip", "record": {"to": "Rome"}}
    trip |= {"events": ["e1"], "evidence": ["in Rome"]}
    count = {
        "route": "code",
        "code": "def answer(state):\n    return len(state.trips)",
        "parameters": {},
    }
    Path("facts.json").write_text(json.dumps([{"facts": [trip]}, {"stated": ["s1"]}]))
    Path("query.json").write_text(json.dumps([count]))
    em(capsys, "observe", "ana", "I was in Rome.")
    monkeypatch.setenv("EM_LLM_PROVIDER", "scripted")
    monkeypatch.setenv("EM_LLM_BASE_URL", "facts.json")
    assert "1 by the model" in em(capsys, "state", "checkpoint", "ana", "--llm")
    monkeypatch.setenv("EM_LLM_BASE_URL", "query.json")
    assert em(capsys, "state", "ask", "ana", "How many trips?", "--llm") == "1\n"
    assert em_json(capsys, "state", "ask", "ana", "how many trips")["kept"]


@pytest.mark.usefixtures("ana")
def test_the_console_has_the_typed_state() -> None:
    typed = "len(trips)\nstate.profile.city\nTrip.__doc__\n"
    shown = subprocess.run(
        [sys.executable, "-m", "em", "state", "repl", "ana"],
        input=typed,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "3\n" in shown.stdout
    assert "'Porto'" in shown.stdout
    assert "Trip: 3 records." in shown.stdout


@pytest.mark.usefixtures("ana")
def test_watching_compiles_what_comes_in(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "em", "state", "checkpoint", "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        em(capsys, "observe", "ana", '{"to": "Bonn"}', "--type", "Trip")
        assert watch.stdout is not None
        assert "version 2" in watch.stdout.readline()
        time.sleep(0.2)
        watch.send_signal(2)
        assert watch.wait(20) == 0


@pytest.mark.parametrize(
    ("name", "content", "records"),
    [
        ("a.csv", 'to,n\r\n"a,""b\nc",\r\n', [{"to": 'a,"b\nc'}]),
        ("a.csv", "\ufeffto\nx\n", [{"to": "x"}]),
        ("a.json", '[{"to": "x"}, {"to": null}]', [{"to": "x"}, {"to": None}]),
        ("a.json", '{"to": 1e400}', None),
        ("a.ndjson", '\n{"to": "x"}\r\n', [{"to": "x"}]),
    ],
)
def test_what_files_say_is_what_is_observed(
    capsys: pytest.CaptureFixture[str], name: str, content: str, records: Any
) -> None:
    Path(name).write_text(content, newline="")
    code = run(["observe", "ana", "--file", name, "--type", "Trip"])
    capsys.readouterr()
    if records is None:
        assert code != 0
        return
    em(capsys, "state", "checkpoint", "ana")
    assert em_json(capsys, "state", "show", "ana", "trips")["trips"] == records


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"a,b\n1,2,3\n", "a.csv:2"),
        ("a.csv", b'a\n"x\n', "expected CSV"),
        ("a.csv", b"a\n\xff\n", "expected UTF-8"),
        ("a.jsonl", b'{"a": 1}\n\xff\n', "a.jsonl:2"),
        ("a.jsonl", b'{"a": 1}\n{"a": \n', "a.jsonl:2"),
        ("a.json", b'{"a": NaN}', "expected a JSON object"),
        ("a.txt", b"\xff\xfe", "expected UTF-8"),
        ("a.jsonl", b'{"a": "' + b"[" * 10 + b'"}\n' + b"[" * 5_000 + b"\n", "a.jsonl:2"),
    ],
)
def test_a_bad_line_is_named_and_nothing_of_its_file_is_kept(
    capsys: pytest.CaptureFixture[str], name: str, content: bytes, said: str
) -> None:
    Path(name).write_bytes(content)
    assert run(["observe", "ana", "--file", name]) in (1, 2)
    assert said in capsys.readouterr().err
    assert not Path(".em").exists()


def test_standard_input_is_read_with_its_format() -> None:
    command = [sys.executable, "-m", "em", "observe", "ana", "--file", "-", "--format", "csv"]
    kept = subprocess.run(
        command, input="to\nRome\nOslo\n", capture_output=True, text=True, check=True
    )
    assert kept.stdout == "2 observations of ana recorded\n"


def test_what_is_inferred_is_marked_and_told_why_and_can_be_corrected(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"events": ["e1"], "evidence": ["in Rome"], "status": "inferred"}
    trip = {"op": "add", "type": "Trip", "record": {"to": "Rome"}, **words}
    city = {"op": "set", "field": "city", "value": "Rome", **words}
    Path("facts.json").write_text(json.dumps([{"facts": [trip, city]}, {"stated": ["s1", "s2"]}]))
    em(capsys, "observe", "ana", "I was in Rome.", "--speaker", "Ana")
    monkeypatch.setenv("EM_LLM_PROVIDER", "scripted")
    monkeypatch.setenv("EM_LLM_BASE_URL", "facts.json")
    em(capsys, "state", "checkpoint", "ana", "--llm")
    assert "city: Rome  (inferred)" in em(capsys, "state", "show", "ana")
    assert em_json(capsys, "state", "show", "ana", "trips")["inferred"] == [0]
    (why,) = em_json(capsys, "state", "why", "ana", "profile.city")["why"]
    assert (why["value"], why["confidence"], why["how"]) == ("Rome", "inferred", "model")
    assert (why["speaker"], why["words"]) == ("Ana", "in Rome")
    assert em_json(capsys, "state", "why", "ana", "1")["why"][0]["words"] == "in Rome"
    assert run(["state", "correct", "ana", "1", "too=Oslo"]) == 1
    assert "did you mean 'to'?" in capsys.readouterr().err
    em(capsys, "state", "correct", "ana", "1", "to=Oslo")
    assert em_json(capsys, "state", "show", "ana", "trips")["trips"] == [{"to": "Oslo"}]
    em(capsys, "state", "retract", "ana", "1")
    em(capsys, "state", "retract", "ana", "city")
    assert em_json(capsys, "state", "show", "ana", "trips")["trips"] == []
    assert "city: taken back" in em(capsys, "state", "show", "ana")


def test_a_chat_is_observed_with_who_says_what_to_whom(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = [
        {"role": "user", "content": "I live in Porto.", "timestamp": "2025-04-07T10:00:00Z"},
        {"role": "assistant", "content": "I live in Paris.", "to": "Ana"},
        {"role": "user", "name": "Bo", "content": "I live in Rome."},
    ]
    for name, text in (("a.json", json.dumps(said)), ("b.jsonl", "\n".join(map(json.dumps, said)))):
        Path(name).write_text(text)
        em(capsys, "observe", name[0], "--file", name, "--format", "chat")
        em(capsys, "state", "checkpoint", name[0])
        assert len(em_json(capsys, "state", "show", name[0])["unstructured"]) == 3
    shown = em(capsys, "log", "show", "--json")
    assert '"addressee": "Ana"' in shown or '"addressee":"Ana"' in shown
    Path("c.json").write_text('[{"role": "user", "content": [1]}]')
    em(capsys, "observe", "c", "--file", "c.json", "--format", "chat", code=1)


@pytest.mark.usefixtures("ana")
def test_texts_that_nobody_has_read_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    em(capsys, "observe", "ana", "I left Porto after my last trip.")
    em(capsys, "state", "checkpoint", "ana")
    assert "city: Porto  (1 newer text unread)" in em(capsys, "state", "show", "ana")
    assert len(em_json(capsys, "state", "why", "ana", "city")["why"][0]["unread"]) == 1
    assert run(["state", "ask", "ana", "--code", "len(trips)"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, "trips may be incomplete" in shown.err) == ("3\n", True)
    assert em_json(capsys, "state", "ask", "ana", "How many trips?")["route"] == "recall"


@pytest.mark.usefixtures("ana")
def test_derived_rules_are_listed_and_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    assert em_json(capsys, "state", "rules", "ana") == {"rules": []}
    when = {"op": ">", "left": {"detail": "amount"}, "right": {"value": 100}}
    rule = {"id": "limit", "severity": "high", "action": "spend", "message": "stop", "when": when}
    reply = {"facts": [], "constraints": [{**rule, "events": ["e1"]}]}
    with Memory() as memory:
        memory.observe("ana", "Warn me above 100.")
        memory.checkpoint("ana", llm=ScriptedClient([reply]))
    assert em_json(capsys, "state", "rules", "ana")["rules"][0]["id"] == "limit"
    check = ("state", "check", "ana", "spend", "amount=200")
    assert em_json(capsys, *check, code=1)["alerts"][0]["proposed"]
    (found,) = em_json(capsys, "state", "rules", "ana", "--accept", "limit")["rules"]
    assert (found["verdict"], found["code"]) == (
        "accepted",
        'holds(details.get("amount"), ">", 100)',
    )
    assert not em_json(capsys, *check, code=1)["alerts"][0]["proposed"]


def test_a_wrong_subject_or_field_to_take_back_is_named(
    ana: None, capsys: pytest.CaptureFixture[str]
) -> None:
    em(capsys, "observe", "ana", '{"city": "Porto"}', "--type", "Profile")
    em(capsys, "state", "checkpoint", "ana")
    with Memory() as memory:
        others = memory.observe("bo", {"to": "Rome"}, type="Trip")
    for args, said in (
        (("ana", others), f"no single-valued field '{others}'"),
        (("nobody", "profile.city"), "'nobody'"),
        (("ana", "nofield"), "no single-valued field 'nofield'"),
        (("ana", "profile.cty"), "did you mean 'city'?"),
    ):
        assert run(["state", "retract", *args]) == 1
        error = capsys.readouterr().err
        assert said in error, error
        assert "no event has the id" not in error


def test_texts_that_are_not_shown_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with Memory() as memory:
        memory.observe_many(("eva", f"The weather was odd on day {n}.") for n in range(25))
        memory.checkpoint("eva")
    assert run(["state", "show", "eva"]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("not structured") == 20
    assert "… 5 more" in shown.err
    assert run(["state", "show", "eva", "--limit", "30"]) == 0
    shown = capsys.readouterr()
    assert (shown.out.count("not structured"), shown.err) == (25, "")
