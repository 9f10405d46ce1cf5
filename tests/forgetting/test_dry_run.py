"""A dry run lists what goes, by kind with ids, and changes nothing; the real one lists the same."""

from pathlib import Path

from em import Memory
from em.store import Commit
from em.store.protocol import ArtefactDraft


def fill(path: Path) -> tuple[str, str]:
    with Memory(path) as memory:
        first = memory.observe("ana", "I live in Porto.")
        memory.observe("ana", {"to": "Rome", "cost": 12}, type="Trip")
        memory.observe("bob", "I live in Faro.")
        memory.checkpoint("ana")
        made = memory.log.append("notes", "note", {"text": "Porto!", "from_events": [first]})
        draft = ArtefactDraft(kind="note", name="n", body={"of": "Porto"}, from_events=[made.id])
        memory.store.commit(Commit(artefacts=[draft]))
    return first, made.id


def test_a_dry_run_lists_what_the_real_one_erases_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "em.db"
    first, made = fill(path)
    with Memory(path) as memory:
        before = [*memory.log.read()], [*memory.store.artefacts()], [*memory.store.records("ana")]
        listed = memory.forget(subject="ana", dry_run=True)
        after = [*memory.log.read()], [*memory.store.artefacts()], [*memory.store.records("ana")]
        assert before == after
        assert listed.is_dry_run
        assert first in listed.gone["events"]["observation"]
        assert listed.gone["events"]["note"] == [made]
        assert listed.gone["artefacts"]["note"] == ["n@1"]
        assert sum(len(ids) for ids in listed.gone["records"].values()) == len(before[2]) > 0
        assert len(listed.gone["passages"]["observation"]) == listed.passages > 0
        erased = memory.forget(subject="ana")
        assert (erased.gone, erased.events) == (listed.gone, listed.events)
        again = memory.forget(subject="ana", dry_run=True)
        assert not again.gone
