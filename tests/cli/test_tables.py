"""Tables fit the terminal, and what the next command needs is never cut."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from em import Memory
from em.cli import output
from em.cli.root import run
from em.runner.package import keep_routine
from em.traces.trace import Mission, ToolCall, Trace

WIDE = (
    "日本語のとても長いテキスト \U0001f469\u200d\U0001f467\U0001f389 \x1b[31m\nsecond line\t"
    "and more of it, to the end of the line"
)
ROUTINE = "version: '1'\nname: {}\nsteps: [{{id: end, type: return, value: 1}}]\n"
LONG_NAME = "a_routine_with_a_name_that_is_long"


def fill(db: str) -> dict[str, str]:
    """Store one of each thing that is listed, with hostile texts; return their ids."""
    with Memory(db) as memory:
        trace = memory.add_trace(
            Trace(
                mission=Mission(goal=WIDE),
                events=[ToolCall(tool="look", args={"text": WIDE}, error="broken " + WIDE)],
                outcome="failure",
            )
        )
        keep_routine(memory.store, {"routine.yaml": ROUTINE.format(LONG_NAME)}, [])
        result = memory.run(LONG_NAME)
        event = memory.observe("ana", {"type": "Note", "text": WIDE, "more": WIDE})
        memory.observe("ana", WIDE)
        memory.checkpoint("ana")
    return {"trace": trace[:6], "run": result.run_id, "routine": f"{LONG_NAME}@1", "event": event}


LISTS = {
    ("traces", "list"): "trace",
    ("runs", "list"): "run",
    ("routine", "list"): "routine",
    ("log", "show"): "",
    ("recall", "日本語のとても長いテキスト", "--subject", "ana"): "",
    ("state", "show", "ana", "notes"): "",
}


@pytest.mark.parametrize("width", [40, 60, 200])
def test_each_list_fits_and_shows_ids_whole(
    width: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ids = fill("em.db")
    monkeypatch.setattr(output, "terminal_width", lambda: width)
    for command, needed in LISTS.items():
        capfd.readouterr()
        run([*command, "--db", "em.db"])
        lines = capfd.readouterr().out.splitlines()
        assert len(lines) > 1, command
        assert [line for line in lines if cell_len(line) > width] == [], command
        assert not [line for line in lines if re.search(r"[\x00-\x1f]", line)]
        if needed:
            assert any(ids[needed] in line for line in lines), (command, lines)


TEXTS = st.text(st.sampled_from("ab日🎉é \u0301\u200b"), max_size=60)


@given(
    rows=st.lists(
        st.tuples(st.text("0123456789abcdef", min_size=28, max_size=28), TEXTS, TEXTS, TEXTS),
        max_size=3,
    ),
    width=st.integers(32, 120),
)
def test_any_text_fits_beside_an_id(rows: list[Any], width: int) -> None:
    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "terminal_width", lambda: width)
        patch.setattr(output.click, "echo", printed.append)
        patch.setattr(output.click, "secho", lambda text, **_how: printed.append(text))
        output.print_table(("id", "b", "c", "text"), rows)
    assert max(map(cell_len, printed)) <= width
    entries = [line for line in printed[1:] if not line.startswith(" ")]
    assert all(line.startswith(row[0]) for line, row in zip(entries, rows, strict=True))


def test_nothing_is_cut_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: 120)
    output.print_table(("id", "name", "what"), [("1", "n" * 60, "short")])
    assert "n" * 60 in capsys.readouterr().out
