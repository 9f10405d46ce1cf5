"""The end of the log is remembered between commits, and never believed when it is out of date."""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from em.errors import PositionConflict
from em.log.event import Draft, EventQuery
from em.log.verify import verify
from em.store import Commit
from em.store.sqlite import SqliteStore
from em.testing import append, note
from strategies import examples

STREAMS = st.sampled_from(["a", "b", "c"])
WHO = st.integers(0, 1)


class TwoWriters(RuleBasedStateMachine):
    """Two stores on one file, as two processes have them, in any order of work."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.stores = [SqliteStore(self.folder / "em.db") for _ in range(2)]
        self.lengths = dict.fromkeys("abc", 0)
        self.ids: list[str] = []

    @rule(who=WHO, streams=st.lists(STREAMS, min_size=1, max_size=3))
    def append(self, who: int, streams: list[str]) -> None:
        drafts = [Draft(stream=stream, kind="note", body={"n": 1}) for stream in streams]
        committed = self.stores[who].commit(Commit(events=drafts))
        self.ids += [event.id for event in committed.events]
        for stream in streams:
            self.lengths[stream] += 1

    @rule(who=WHO, stream=STREAMS, off_by=st.integers(-1, 1))
    def append_if_there(self, who: int, stream: str, off_by: int) -> None:
        there = self.lengths[stream]
        draft = Draft(stream=stream, kind="note", body={"n": 2})
        commit = Commit(events=[draft], expected_pos={stream: there + off_by})
        if off_by:
            with pytest.raises(PositionConflict):
                self.stores[who].commit(commit)
        else:
            self.stores[who].commit(commit)
            self.lengths[stream] += 1

    @rule(who=WHO, stream=STREAMS)
    def give_up_midway(self, who: int, stream: str) -> None:
        store = self.stores[who]

        def drafts() -> object:
            yield Commit(events=[Draft(stream=stream, kind="note", body={"n": 3})])
            raise KeyError("the caller gave up")

        with suppress(KeyError):
            store.commit_all(drafts())  # type: ignore[arg-type]  # a generator that raises

    @rule(who=WHO)
    def forget(self, who: int) -> None:
        if self.ids:
            self.stores[who].erase([self.ids.pop()])
            for stream in self.lengths:
                self.lengths[stream] = self.stores[who].head(stream)[0]

    @invariant()
    def the_log_is_whole(self) -> None:
        assert verify(self.stores[0]).ok
        events = list(self.stores[1].read(EventQuery()))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        for stream, length in self.lengths.items():
            assert [e.pos for e in events if e.stream == stream] == list(range(1, length + 1))

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)


TestTwoWriters = TwoWriters.TestCase
TestTwoWriters.settings = settings(max_examples=examples(20), stateful_step_count=20, deadline=None)


def test_a_commit_that_failed_is_not_remembered(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(sqlite_store, note("1"))
    insert = sqlite_store._chain._insert_events

    def interrupted(session: object, rows: object) -> None:
        insert(session, rows)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(sqlite_store._chain, "_insert_events", interrupted)
    with pytest.raises(KeyboardInterrupt):
        append(sqlite_store, note("2"), note("2"))
    monkeypatch.undo()
    append(sqlite_store, note("3"))
    assert [event.seq for event in sqlite_store.read(EventQuery())] == [1, 2]
    assert verify(sqlite_store).ok
