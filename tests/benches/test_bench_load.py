"""The load generator: prints what it measured, also when it is stopped."""

import pytest
from bench import load


def test_it_fills_mixes_and_prints_rates(capsys: pytest.CaptureFixture[str]) -> None:
    assert load.main(["--subjects", "3", "--seconds", "0.5", "--threads", "2"]) == 0
    said = capsys.readouterr().out
    assert "p99 ms" in said
    assert "0 errors" in said
    for call in ("observe", "recall", "all"):
        assert f"\n{call}" in said


def test_stopping_it_prints_what_was_measured_so_far(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_target: object, _options: object, measured: load.Measured, _stop: object) -> None:
        measured.note("observe", 0.012)
        raise KeyboardInterrupt

    monkeypatch.setattr(load, "mix", stopped)
    assert load.main(["--subjects", "1"]) == 0
    said = capsys.readouterr()
    assert "12.0" in said.out
    assert "stopped" in said.err


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load.main(["--help"])
    assert "python -m bench load --subjects 100000" in capsys.readouterr().out


def test_an_unknown_call_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load.main(["--mix", "dance=1"])
    assert "'dance'" in capsys.readouterr().err
