"""The bench of lessons counts what a reader found, and passes over what is not there."""

from pathlib import Path

import pytest
from bench import lessons

from em.heuristics.heuristic import Lesson


def test_without_data_it_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lessons, "DATA", tmp_path / "none")
    monkeypatch.setattr(lessons, "TRANSCRIPTS", tmp_path / "none")
    assert list(lessons.mined()) == []
    assert "passed over" in capsys.readouterr().out


def test_a_lesson_is_unread_until_a_reader_has_judged_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def line(n: int, error: bool) -> str:
        said = '"error": "invalid total"' if error else '"observation": "ok"'
        total = "1,5" if error else "1.5"
        return f'{{"action": "insert", "args": {{"c": "c{n}", "total": "{total}"}}, {said}}}'

    folder = tmp_path / "made"
    folder.mkdir()
    steps = f"[{line(1, True)}, {line(1, False)}]"
    (folder / "t.json").write_text(f'{{"task": "load", "outcome": "success", "steps": {steps}}}')
    monkeypatch.setattr(lessons, "DATA", tmp_path / "none")
    monkeypatch.setattr(lessons, "TRANSCRIPTS", tmp_path)
    figures = {one.what: one.ours for one in lessons.mined()}
    assert (figures["lessons told that are unread"], figures["harmful lessons"]) == (1, 0)
    told = Lesson(
        trigger="insert fails with: invalid total",
        action='Give total as "9.9", not as "9,9".',
    )
    monkeypatch.setattr(lessons, "READ", {lessons.mark(told): "harmful"})
    judged = {one.what: one for one in lessons.mined()}
    assert judged["lessons told that are unread"].ours == 0
    assert not judged["harmful lessons"].cleared
