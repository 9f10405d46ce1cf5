"""A routine says what it is for in words that several of its recorded requests share."""

from collections.abc import Sequence
from typing import Any

import msgspec

from em.clients.skill import Skill
from em.compiler.compile_trace import compile_several
from em.memory import Memory
from em.runner.card import CardBox
from em.traces.trace import KeptTrace, Message, Mission, ToolCall, Trace, as_kept

WORDINGS = (
    "Please release {}, it is for Ottilie",
    "release {} and tag it",
    "tag {} as a release",
    "could we get {} out?",
)
VERSIONS = ("0.10.0", "1.2.1", "2.0.3", "3.1.0")


def session(request: str, version: str, number: int, subject: str = "") -> KeptTrace:
    events: list[Any] = [
        Message(role="user", text=request),
        ToolCall(tool="set_version", args={"version": version}, result="done", effect="write"),
    ]
    trace = Trace(mission=Mission(request), events=events, outcome="success")
    kept = as_kept(trace, f"trace{number}")
    return msgspec.structs.replace(kept, subject=subject or None)


def sessions(wordings: Sequence[str] = WORDINGS) -> list[KeptTrace]:
    pairs = zip(wordings, VERSIONS, strict=False)
    return [session(one.format(own), own, n) for n, (one, own) in enumerate(pairs)]


def description(traces: Sequence[KeptTrace]) -> str:
    return compile_several(traces).draft.routine.description


def test_it_has_the_inputs_and_the_words_of_several_requests() -> None:
    assert description(sessions()).startswith("Release {version} … tag it")
    same = sessions(["Release {} please"] * 4)
    assert description(same).startswith("Release {version} please")


def test_a_word_of_one_request_only_is_left_out() -> None:
    assert "Ottilie" not in description(sessions())
    assert not any(version in description(sessions()) for version in VERSIONS)


def test_what_one_person_always_says_is_left_out() -> None:
    ours = "release {} for Ottilie"
    theirs = ["make the release {}", "release {} now"]
    own = [session(ours.format(one), one, n, "ottilie") for n, one in enumerate(VERSIONS[:2])]
    others = [
        session(said.format(one), one, n, f"user{n}")
        for n, (said, one) in enumerate(zip(theirs, VERSIONS[2:], strict=True), 2)
    ]
    assert "Ottilie" not in description([*own, *others])
    assert "elease {version}" in description([*own, *others])


def test_one_recording_and_requests_without_a_word_in_common_give_none() -> None:
    assert description(sessions()[:1]) == ""
    assert description(sessions(["release {}", "{} it is", "we want {}"])) == ""


def test_skills_and_lists_of_tools_show_it() -> None:
    with Memory(":memory:") as memory:
        ids = [memory.add_trace(one.trace) for one in sessions()]
        memory.compile(ids, name="cut")
        skill = Skill(memory.store).text()
        assert "elease {version} … tag it" in skill
        assert "elease {version} … tag it" in CardBox(memory.store).newest()["cut"][1].about
