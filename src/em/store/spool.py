"""The spool: a batch of events on its way into one commit, held small.

An iterable of any length is taken in portions. Each is checked, redacted, encoded and compressed,
so that a batch needs the memory of one portion and some bytes for each event. Only when all of it
is there does the transaction begin: whoever makes the items may take their time and use the store,
and other writers don't wait for it.
"""

import zlib
from collections.abc import Iterator, Sequence

import msgspec

from em.log.event import Draft
from em.redaction.masker import Echoes
from em.redaction.redactor import Redactor
from em.store.preparation import redacted, without_echoes
from em.store.protocol import Commit
from em.values.canonical import Json, uncollected
from em.values.times import from_micros

PORTION = 1_000
"""Events that are held as objects at a time."""
FAST = 1
"""The level of compression: half the size of none at all, and far less work than the best."""

_Line = tuple[str, str, str | None, str, int, int | None, msgspec.Raw]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[tuple[str, str, str | None, str, int, int | None, Json]]).decode


class Spool:
    """Events that are committed together."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._portions: list[bytes] = []
        # By stream, what was a secret in one of its events: it is masked in all of them.
        self._echoes: dict[str, Echoes] = {}
        self.ids: list[str] = []
        self.streams: dict[str, str | None] = {}
        """The subject of each stream that the events belong to."""

    def take(self, portion: Sequence[Draft]) -> None:
        """Take the next events; raise InputError for the first that can't be stored."""
        with uncollected():
            events = redacted(portion, self._redactor, self._echoes, len(self.ids))
            lines: list[_Line] = [
                (one.id, one.stream, one.subject, one.kind, one.v, one.at, msgspec.Raw(one.text))
                for one in events
                if one.text is not None
            ]
        self._portions.append(zlib.compress(_encode(lines), FAST))
        self.ids += [one.id for one in events]
        self.streams.update((one.stream, one.subject) for one in events)

    def commits(self) -> Iterator[Commit]:
        """Yield the events in portions, for `Store.commit_all`."""
        while self._portions:
            yield Commit(
                events=[
                    Draft(
                        id=event_id,
                        stream=stream,
                        subject=subject,
                        kind=kind,
                        v=v,
                        at=None if at is None else from_micros(at),
                        body=self._masked(stream, body),
                    )
                    for event_id, stream, subject, kind, v, at, body in _decode(
                        zlib.decompress(self._portions.pop(0))
                    )
                ],
                is_decoded=True,
            )

    def _masked(self, stream: str, body: Json) -> Json:
        return without_echoes(body, self._echoes[stream]) if stream in self._echoes else body
