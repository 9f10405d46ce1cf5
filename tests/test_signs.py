"""A sign that no recorded request had is asked about, wherever words are read: it may turn round,
quote, strike out or bound what the words alone would ask for."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from em import Memory, recorded_tool
from em.runner.signs import _MAY_BE_SIGN, _is_in_word, odd_signs, signs_of, unknown_sign

Reads = dict[str, tuple[str, Callable[[Any], Any]]]


class Learnt(NamedTuple):
    """A learnt routine, and what its tools have written since."""

    run: Callable[[str], Any]
    written: list[dict[str, Any]]

    def does(self, request: str) -> list[dict[str, Any]]:
        """Return what a request writes."""
        self.written.clear()
        self.run(request)
        return list(self.written)

    def asks(self, request: str) -> str:
        """Return the question that a request leads to; it must not write."""
        self.written.clear()
        result = self.run(request)
        assert not self.written, f"{request!r} wrote {self.written}"
        assert result.status == "needs_input", (request, result.status)
        return str(result.pending_prompt.message)

    def refuses(self, request: str) -> None:
        """Demand that a request writes nothing, and that the run says so."""
        self.written.clear()
        result = self.run(request)
        assert not self.written, f"{request!r} wrote {self.written}"
        assert result.status in ("needs_input", "failed"), (request, result.status)


_LEARNT: dict[str, Learnt] = {}


def learnt(tool: str, traces: dict[str, dict[str, Any]], reads: Reads | None = None) -> Learnt:
    """Learn a routine from requests and the arguments that their one call had, once for all tests.

    reads: reads that were made before the call, by the argument of the call that they have.
    """
    if reads:
        return _learn(tool, traces, reads)
    key = repr((tool, traces))
    if key not in _LEARNT:
        _LEARNT[key] = _learn(tool, traces, {})
    return _LEARNT[key]


def _learn(tool: str, traces: dict[str, dict[str, Any]], reads: Reads) -> Learnt:
    written: list[dict[str, Any]] = []

    def write(**args: Any) -> dict[str, Any]:
        written.append(args)
        return {"ok": True}

    write.__name__ = tool
    made = recorded_tool(effect="write")(write)
    tools = {tool: made}
    for name, (_, look) in reads.items():
        look.__name__ = name
        tools[name] = recorded_tool(effect="read")(look)
    memory = Memory(":memory:")

    @memory.record(app="desk")
    def agent(request: str) -> None:
        for name, (argument, _) in reads.items():
            tools[name](**{argument: traces[request][argument]})
        made(**traces[request])

    for request in traces:
        agent(request)
    routine = memory.compile([trace.id for trace in memory.traces()], name="desk")
    return Learnt(lambda text: memory.run(routine, {"request": text}, tools), written)


@pytest.fixture
def meetings() -> Learnt:
    return learnt(
        "cancel_meeting",
        {
            "Please cancel meeting M-111.": {"meeting_id": "M-111"},
            "Cancel M-221, thanks.": {"meeting_id": "M-221"},
            "I need to cancel M-331.": {"meeting_id": "M-331"},
        },
    )


@pytest.fixture
def stock() -> Learnt:
    def args(sku: str, count: int, source: str, target: str) -> dict[str, Any]:
        return {"sku": sku, "count": count, "source": source, "target": target}

    return learnt(
        "move_stock",
        {
            "Move 20 BOLT from HAM to BER.": args("BOLT", 20, "HAM", "BER"),
            "Move 35 NUTX from MUC to KIL.": args("NUTX", 35, "MUC", "KIL"),
            "Move 12 GEAR from KIL to HAM.": args("GEAR", 12, "KIL", "HAM"),
            "Move 44 PIPE from BER to MUC.": args("PIPE", 44, "BER", "MUC"),
        },
    )


@pytest.fixture
def rooms() -> Learnt:
    return learnt(
        "set_level",
        {
            f"Set the heating in the {room} to level {level}.": {"room": room, "level": level}
            for room, level in (("kitchen", 2), ("hall", 3), ("office", 5), ("attic", 4))
        },
    )


WHOLE = (
    "> {}", "~~{}~~", "// {}", "# {}", "<!-- {} -->", "-- {}", "- {}", "; {}", "!{}", "¬ {}",
    "❌ {}", "{} ❌", "🚫 {}", "{} 🙃", "{} ;-)", "({})", "[{}]", "*{}*", "≠ {}", "{}..", "{}…",
    "Hello.\n> {}", "Hello.\n- {}",
)  # fmt: skip


@pytest.mark.parametrize("frame", WHOLE)
def test_a_sign_around_a_whole_request_is_asked_about(meetings: Learnt, frame: str) -> None:
    meetings.asks(frame.format("cancel M-771"))


@pytest.mark.parametrize("sign", ["!", "≠", "~", ">", "^", "≥ ", "*"])
def test_a_sign_before_an_id_is_asked_about(meetings: Learnt, sign: str) -> None:
    assert sign.strip() in meetings.asks(f"cancel {sign}M-771")


@pytest.mark.parametrize("request_", ["Cancel M-771!", "Please cancel meeting M-771."])
def test_ordinary_punctuation_says_nothing(meetings: Learnt, request_: str) -> None:
    assert meetings.does(request_) == [{"meeting_id": "M-771"}]


@pytest.mark.parametrize("count", ["<30", ">30", "~30", "≤30", "30+", "30.000", "3.5", "±30"])
def test_a_number_with_a_sign_is_another_number(stock: Learnt, count: str) -> None:
    stock.asks(f"Move {count} TAPE from HAM to BER.")


def test_a_sign_before_a_code_is_asked_about(stock: Learnt) -> None:
    assert "'!'" in stock.asks("Move 30 TAPE from !HAM to BER.")
    assert stock.does("Move 30 TAPE from HAM to BER.")


@pytest.mark.parametrize(
    "request_",
    [
        "Set the heating in the !cellar to level 2.",
        "Set the heating in the ~cellar to level 2.",
        "Set the heating in the cellar* to level 2.",
        'Set the heating in the "cellar" to level 2.',
        "Set the heating in the cellar to level -2.",
        "Set the heating in the cellar to level 2%.",
        "Set the heating in the cellar to level 2.000.",
    ],
)
def test_a_blank_takes_no_sign_that_no_recorded_value_had(rooms: Learnt, request_: str) -> None:
    rooms.asks(request_)


def test_a_blank_takes_what_looks_like_the_recorded_values(rooms: Learnt) -> None:
    assert rooms.does("Set the heating in the cellar to level 2.")


def test_a_sign_that_recorded_requests_had_is_known() -> None:
    desk = learnt(
        "cancel_meeting",
        {
            "> Please cancel meeting M-111.": {"meeting_id": "M-111"},
            "> Cancel M-221, thanks.": {"meeting_id": "M-221"},
            "> I need to cancel M-331.": {"meeting_id": "M-331"},
        },
    )
    assert desk.does("> Cancel M-771, thanks.") == [{"meeting_id": "M-771"}]
    assert ">" in desk.asks("Cancel >M-771, thanks.")


def test_signs_are_told_by_where_they_stand() -> None:
    assert signs_of(["Pay $5 (now), please: it's 20% off!", "See #A1 / 'x > y'."]) == [" / ", "0% "]
    assert unknown_sign("Give 30% to Ana.", (), ["0% "]) == ""
    assert unknown_sign("Give %30 to Ana.", (), ["0% "]) == "%"
    assert odd_signs("ana@shop.example") == {"@"}
    assert odd_signs("-2") == {"^-"}
    assert odd_signs("2+") == {"+$"}


def test_no_sign_of_unicode_is_passed_over() -> None:
    passed_over = _MAY_BE_SIGN.sub("", "".join(map(chr, range(sys.maxunicode + 1))))
    assert all(map(_is_in_word, passed_over))
