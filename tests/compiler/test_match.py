"""Which routine does a request ask for: found by recorded words, offered by likeness and values."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from em import Memory, tool
from em.compiler.match import LEAST_LIKENESS
from em.errors import UsageError
from em.runner.package import find_routine, keep_routine, texts_of
from em.settings import Settings
from em.store.sqlite import SqliteStore

RELEASE = ("release {version}", "please cut {version} and tag it", "tag {version} as our release")
RENAME = ("rename {old} to {new}", "{old} should be called {new} everywhere", "call {old} {new}")
ACTIONS = ("update {package}", "move {package} to its newest version", "upgrade {package}")


def learn(memory: Memory, name: str, wordings: Sequence[str], values: Sequence[Any]) -> None:
    """Compile a routine from sessions that were asked for in these words with these values."""
    ids = []
    for wording, own in zip(wordings, values, strict=True):
        text = wording.format(**own)
        said = {"type": "message", "role": "user", "text": text}
        call = {"type": "tool_call", "seq": 0, "tool": f"do_{name}", "args": own, "result": "",
                "effect": "write"}  # fmt: skip
        trace = {"version": "1", "app": {"name": "coder"}, "mission": {"goal": text},
                 "events": [said, call], "outcome": "success"}  # fmt: skip
        ids.append(memory.add_trace(trace))
    memory.compile(ids, name=name)


VERSIONS = [{"version": one} for one in ("0.10.0", "1.2.0", "2.0.1")]
NAMES = [{"old": "get_it", "new": "read_row"}, {"old": "do_x", "new": "to_row"},
         {"old": "my_f", "new": "is_row"}]  # fmt: skip
PACKAGES = [{"package": one} for one in ("httpx", "rich", "polars")]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """Return a memory with three routines under names that say nothing."""
    with Memory(tmp_path / "em.db") as opened:
        learn(opened, "first", RELEASE, VERSIONS)
        learn(opened, "second", RENAME, NAMES)
        learn(opened, "third", ACTIONS, PACKAGES)
        yield opened


def best(memory: Memory, request: str) -> str:
    return memory.matcher.ranked(request)[0].routine.name


def offered(memory: Memory, request: str) -> list[str]:
    return [one.routine.name for one in memory.matcher.ranked(request, at_least=LEAST_LIKENESS)]


@pytest.mark.parametrize(
    ("request_", "routine", "inputs"),
    [
        ("Release 3.1.0", "first@1", {"version": "3.1.0"}),
        ("rename a_b to c_d", "second@1", {"old": "a_b", "new": "c_d"}),
        ("upgrade structlog", "third@1", {"package": "structlog"}),
    ],
)
def test_recorded_words_with_other_values_find_the_routine_and_its_inputs(
    memory: Memory, request_: str, routine: str, inputs: dict[str, str]
) -> None:
    found = memory.match(request_)
    assert found is not None
    assert (found.routine, found.inputs) == (routine, inputs)
    assert offered(memory, request_)[0] == routine.partition("@")[0]


def test_a_kind_with_reads_is_found_by_what_its_requests_say_beside_the_inputs(
    tmp_path: Path,
) -> None:
    """A name of the record is checked by the routine; `em run --request` uses the same function."""
    people = {f"{name.lower()}@mail.example": name for name in ("Ann", "Bo", "Gus")}
    request = "I'm {name} ({mail}), please cancel W-{n}"
    with Memory(tmp_path / "reads.db") as memory:

        @tool(effect="read")
        def find_customer(email: str) -> Any:
            return {"email": email, "name": people[email]}

        @tool(effect="write")
        def cancel_order(order_id: str, email: str) -> bool:
            return True

        for n, mail in enumerate(["ann@mail.example", "bo@mail.example"]):
            said = request.format(name=people[mail], mail=mail, n=n)
            with memory.record("cancel", {"request": said}):
                find_customer(mail)
                cancel_order(f"W-{n}", mail)
        memory.compile([one.id for one in memory.traces()], name="cancel")
        asked = request.format(name="Gus", mail="gus@mail.example", n=7377)
        found = memory.match(asked)
        assert found is not None
        assert (found.inputs["email"], found.inputs["order_id"]) == ("gus@mail.example", "W-7377")
        tools = [find_customer, cancel_order]
        assert memory.run(found.routine, found.inputs, tools).status == "ok"
        stranger = memory.match(asked.replace("Gus", "Bo"))
        assert stranger is not None
        assert memory.run(stranger.routine, stranger.inputs, tools).status == "needs_input"


def test_likeness_alone_matches_nothing_and_is_only_offered(memory: Memory) -> None:
    request = "could you please tag 3.1.0 as a release"
    assert memory.match(request) is None
    assert offered(memory, request) == ["first"]


def test_what_the_values_look_like_counts(memory: Memory) -> None:
    assert best(memory, "tag or rename: 3.1.0") == "first"
    assert best(memory, "tag or rename: a_b c_d") == "second"


def test_words_without_what_looks_like_a_value_count_half(memory: Memory) -> None:
    assert offered(memory, "please cut our release") == []
    assert offered(memory, "please cut our release 3.1.0") == ["first"]


@pytest.mark.parametrize(
    "request_",
    [
        "why did the release 3.1.0 fail?",
        "does everything that we tag and release from 3.1.0 on need notes",
        "remove get_it everywhere",  # one value, and two inputs
    ],
)
def test_a_request_about_the_same_things_for_another_task_is_not_offered(
    memory: Memory, request_: str
) -> None:
    assert offered(memory, request_) == []


def test_what_stands_where_a_recorded_value_stands_is_a_value(memory: Memory) -> None:
    words = [f"put {{word}} into the {place}" for place in ("cellar", "attic", "barn")]
    learn(memory, "fourth", words, [{"word": one} for one in ("hay", "a pump", "corn")])
    ((found, likeness), *_) = memory.matcher.ranked("please put a ladder into the cellar")
    assert found.name == "fourth"
    _, less = memory.matcher.ranked("please put into the cellar a ladder")[0]
    assert likeness > less


def test_a_routine_for_other_tools_is_not_found(memory: Memory) -> None:
    assert memory.matcher.match("release 3.1.0", ["do_second"]) is None
    assert memory.matcher.match("release 3.1.0", ["do_first"]) is not None


def test_nothing_is_found_where_routines_are_off(memory: Memory) -> None:
    with Memory(memory.store.location, settings=Settings(routines="off")) as off:
        assert off.match("release 3.1.0") is None
        assert off.matcher.ranked("release 3.1.0") == []


@pytest.mark.parametrize("request_", ["", " ", "release 1.2.3" * 90_000, "\u202e3.1.0 esaeler"])
def test_odd_requests_find_nothing(memory: Memory, request_: str) -> None:
    assert memory.match(request_) is None


@pytest.mark.parametrize("odd", [None, 7, b"cancel", ["cancel"]])
def test_what_is_no_text_is_refused(memory: Memory, odd: Any) -> None:
    with pytest.raises(UsageError) as refused:
        memory.match(odd)
    assert refused.value.place == "request"
    assert refused.value.fix


def test_what_another_process_does_to_a_routine_is_seen_at_once(memory: Memory) -> None:
    with Memory(memory.store.location) as other:
        assert other.match("release 3.1.0") is not None
        memory.retire("first@1")
        assert other.match("release 3.1.0") is None
        assert "first" not in offered(other, "release 3.1.0")
        memory.restore("first@1")
        assert other.match("release 3.1.0") is not None
        learn(memory, "fourth", ("say {word} to all",) * 3, [{"word": one} for one in "abc"])
        found = other.match("say hello to all")
        assert found is not None
        assert found.routine == "fourth@1"


def test_a_forgotten_routine_is_not_found(memory: Memory) -> None:
    assert memory.match("release 3.1.0") is not None
    memory.forget(find_routine(memory.store, "first").from_events)
    assert memory.match("release 3.1.0") is None


def statements_of_a_match(size: int) -> list[str]:
    """Return the statements of a match among so many routines, after one that read everything."""
    with Memory(f"{size}.db") as memory:
        assert isinstance(memory.store, SqliteStore)
        learn(memory, "first", RELEASE, VERSIONS)
        kept = find_routine(memory.store, "first")
        files = texts_of(kept)
        for number in range(size - 1):
            text = files["routine.yaml"].replace("name: first", f"name: other_{number}")
            text = text.replace("release", f"do{number}").replace("cut", f"do{number}")
            keep_routine(memory.store, {**files, "routine.yaml": text}, kept.from_events)
        assert memory.match("release 3.1.0") is not None
        seen: list[str] = []
        connection = memory.store._pool.take()
        connection.set_trace_callback(seen.append)
        memory.store._pool.give_back(connection)
        assert memory.match("release 3.1.0") is not None
        connection.set_trace_callback(None)
    return seen


def test_a_match_reads_as_much_of_the_store_with_ten_times_the_routines() -> None:
    few, many = statements_of_a_match(3), statements_of_a_match(30)
    assert few
    assert len(few) == len(many)
    assert not any("artefacts" in one for one in few + many)
