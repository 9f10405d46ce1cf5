"""Record: one typed record of a subject's state; a projection of events."""

from collections.abc import Sequence

import msgspec

from em.values.canonical import Json


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Committing one replaces that of the same subject, type and id; `body=None` removes it.

    from_log: it holds nothing but bodies of events as the log has them, which are redacted.
    """

    subject: str
    type: str
    id: str
    body: Json | None
    from_events: Sequence[str] = ()
    from_log: bool = False
