"""Snapshots: the records of a version of a state, also when newer ones are stored.

The store has the records of the newest version. Those of an older one are folded again from the
log, up to where that version had read it. The same log always gives the same records; what was
forgotten since is in none.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import TypeVar

from em.log.event import EventQuery, subject_stream
from em.state.fold import fold, records_of, sort_events
from em.state.schema import KIND, PROFILE, StateSchema
from em.store.protocol import Record, Store

Result = TypeVar("Result")


class Snapshot:
    """The records of one version."""

    def __init__(self, store: Store, schema: StateSchema, version: int) -> None:
        self._store, self._schema, self._version = store, schema, version
        self._folded: dict[str, list[Record]] | None = None

    def read(self, type_: str, use: Callable[[Iterator[Record]], Result]) -> Result:
        """Return what `use` makes of the records of a type, which is given by its class's name.

        Records are read first and the version after them: if it is still the newest one, they were
        its own. Else `use` gets those that are folded from the log.
        """
        if self._folded is None:
            try:
                found = use(self._store.records(self._schema.subject, type_))
            except Exception:
                if self._is_newest():
                    raise
            else:
                if self._is_newest():
                    return found
            self._folded = self._fold()
        return use(iter(self._folded.get(type_, ())))

    @property
    def is_folded(self) -> bool:
        """Whether the records come from the log, since newer ones are stored."""
        return self._folded is not None

    def _is_newest(self) -> bool:
        newest = self._store.artefact(KIND, self._schema.subject)
        return newest is None or newest.version == self._version

    def _fold(self) -> dict[str, list[Record]]:
        """Fold the log up to where this version had read it."""
        old = self._schema
        events = self._store.rows(EventQuery(stream=subject_stream(old.subject)))
        material = sort_events(takewhile(lambda row: row.pos <= old.watermark, events), 0)
        new = StateSchema(subject=old.subject, policies=dict(old.policies))
        keys = {
            type_.given: type_.key
            for type_ in old.types.values()
            if type_.key is not None and type_.given != PROFILE
        }
        found: defaultdict[str, list[Record]] = defaultdict(list)
        for given, record in records_of(new, fold(new, material, keys), None):
            found[old.types[given].name if given in old.types else given].append(record)
        return found
