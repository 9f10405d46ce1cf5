"""Hostile requests never act, and every recorded request is done, by templates alone."""

from pathlib import Path

from bench.learn.hostile import acts


def test_no_hostile_request_acts_and_all_recorded_ones_are_done(tmp_path: Path) -> None:
    hostile, recorded, new_values, _ = acts(tmp_path, None)
    assert (hostile.ours, hostile.theirs) == (0, 1972)
    assert recorded.ours == recorded.theirs
    assert new_values.ours == new_values.theirs
