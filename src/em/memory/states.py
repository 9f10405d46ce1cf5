"""What is true about someone."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from em.log.event import Event
from em.memory.passages import Recalling
from em.values.times import Moment

if TYPE_CHECKING:
    from em.llm.interface import LlmClient
    from em.recall.search import Recalled
    from em.state.questions import Answer
    from em.state.rules import Alert
    from em.state.state import Conflict, State
    from em.state.subjects import Subjects


class States(Recalling):
    """Checkpoints, questions and rules. What can't be answered by code is looked for in texts."""

    def _observed(self, events: Sequence[Event]) -> None:
        if self._state_settings.checkpoint_every is not None:
            self.subjects.observed(events)

    @cached_property
    def subjects(self) -> "Subjects":
        """The states of this memory's subjects."""
        from em.state.subjects import Subjects

        def said(text: str, subject: str, until: datetime | None) -> "Recalled":
            return self.recall(text, subject=subject, k=10, until=until)

        return Subjects(self.store, self._state_settings, recall=said, client=self._llm)

    def checkpoint(
        self,
        subject: str,
        *,
        llm: "LlmClient | None" = None,
        accept: bool = False,
        again: bool = False,
        rebuild: bool = False,
    ) -> "State":
        """Compile what is new about a subject; its state then, with the `report` of what was done.

        accept: also if it breaks kept questions or rules. again: what no model has read well is
        read again. rebuild: all of it anew, from the log.
        """
        return self.subjects.checkpoint_state(
            subject, client=llm, accept=accept, again=again, rebuild=rebuild
        )

    def checkpoint_many(
        self,
        /,
        subjects: Iterable[str] | None = None,
        *,
        processes: int | None = None,
        **how: Any,
    ) -> tuple[int, dict[str, str]]:
        """Checkpoint many subjects, or all, with all cores; how many, and which failed and why."""
        from em.state.parallel import checkpoint_many, subjects_of

        names = subjects_of(self.store) if subjects is None else subjects
        return checkpoint_many(self.subjects, names, processes=processes, db=self._db, **how)

    def state(
        self, subject: str, as_of: Moment | None = None, *, known_at: Moment | None = None
    ) -> "State":
        """What was last compiled about a subject; as it was at a moment, or was known by then."""
        return self.subjects.state(subject, as_of=as_of, known_at=known_at)

    def ask(
        self,
        subject: str,
        question: str | None = None,
        *,
        code: str | None = None,
        llm: "LlmClient | None" = None,
        as_of: Moment | None = None,
    ) -> "Answer":
        """Answer a question by code over the state, or from what was said; or run your own code."""
        return self.subjects.ask(subject, question, code=code, client=llm, as_of=as_of)

    def check(self, subject: str, action: str, /, **details: Any) -> "list[Alert]":
        """The rules that fire before an action, the worst first."""
        return self.subjects.state(subject).check(action, **details)

    def alerts(self, subject: str, now: Moment | None = None) -> "list[Alert]":
        """What is due about a subject: deadlines, active windows."""
        return self.subjects.state(subject).alerts(now)

    def conflicts(self, subject: str) -> "list[Conflict]":
        """What contradicts itself about a subject, and how each was settled."""
        return self.subjects.state(subject).conflicts()

    def resolve(self, subject: str, field: str, /, **decision: Any) -> str:
        """Settle a field: by `value`, by an `event`, or by a `policy` (with `order`); an event."""
        return self.subjects.resolve(subject, field, **decision)

    def undo(self, subject: str, decision: str) -> str:
        """Take back what `resolve` or `declare` decided, by its event; an event as well."""
        return self.subjects.undo(subject, decision)

    def declare(self, subject: str, type: str, key: str | Sequence[str]) -> str:  # noqa: A002 - the name users know from records
        """Say by which fields records of a type are one and the same; an event."""
        return self.subjects.declare(subject, type, [key] if isinstance(key, str) else key)
