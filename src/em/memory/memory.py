"""The memory of an agent."""

from collections.abc import Sequence

from em.errors import NotFound, UsageError
from em.log.event import Event, EventQuery, check_name
from em.memory.observations import Observing
from em.memory.routines import Routines
from em.memory.workflows import Workflowing
from em.store import Erasure


class Memory(Workflowing, Observing, Routines):
    """The memory of an agent, on one store. A context manager; safe to share between threads.

    db: a path or a `postgresql://` address; `EM_DB`, then `.em/em.db`, where it is not given.
    embedder: a function from texts to vectors, for recall; the settings may name one too.
    llm: the model that checkpoints and questions may ask; none is asked where it is not given.
    checkpoint_every: so many events about a subject, or minutes as `10m`; else `em.yaml` says.
    """

    def forget(
        self,
        events: str | Event | Sequence[str | Event] = (),
        *,
        subject: str | None = None,
        reason: str = "",
    ) -> Erasure:
        """Erase the bodies of events, or all of a subject's, with everything derived from them."""
        chosen = [events] if isinstance(events, str | Event) else events
        if not chosen and subject is None:
            raise UsageError("nothing to forget", fix="name events or a subject")
        ids = [event.id if isinstance(event, Event) else event for event in chosen]
        if subject is not None:
            ids += self._ids_about(subject)
        subjects = () if subject is None else (subject,)
        # What recall remembers of which passages have vectors is not true any more.
        self.__dict__.pop("_recall", None)
        touched = self._subjects_of(ids) - {subject}
        erasure = self.store.erase(ids, subjects=subjects, reason=reason)
        from em.heuristics.shelf import rebuild

        rebuild(self.store, erasure.events)
        for other in sorted(touched):
            if self.subjects.has_state(other):
                self.subjects.checkpoint(other, accept=True, rebuild=True)
        return erasure

    def _subjects_of(self, ids: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(ids), 500):
            query = EventQuery(ids=ids[start : start + 500])
            found |= {event.subject for event in self.store.read(query) if event.subject}
        return found

    def _ids_about(self, subject: str) -> list[str]:
        check_name(subject, "subject")
        found = [(event.id, event.kind) for event in self.log.read(subject=subject)]
        if not found:
            raise NotFound(f"nothing in the log is about {subject!r}", place="subject")
        return [event_id for event_id, kind in found if kind != "erased"]
