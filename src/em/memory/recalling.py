"""What was said."""

from functools import cached_property
from typing import TYPE_CHECKING

from em.memory.opened import Opened
from em.models.passage import Within
from em.models.times import Moment, moment

if TYPE_CHECKING:
    from em.recall.meaning import Progress
    from em.recall.search import Recall, Recalled


class Recalling(Opened):
    """Text search."""

    def recall(
        self,
        query: str,
        subject: str | None = None,
        k: int = 10,
        since: Moment | None = None,
        until: Moment | None = None,
        *,
        neighbours: int = 0,
        in_order: bool = False,
        now: Moment | None = None,
    ) -> "Recalled":
        """The passages that fit a question best, one of each event; all subjects' without one.

        `neighbours` brings so many passages before and after each; `in_order` gives them as they
        were said. "Last week" in a question means the week before `now`. What could not be done,
        such as asking an embedder, stands in the result's `notes`.
        """
        within = Within(
            subject=subject,
            since=None if since is None else moment(since, "since"),
            until=None if until is None else moment(until, "until"),
        )
        return self._recall.recall(
            query,
            within,
            k,
            neighbours=neighbours,
            in_order=in_order,
            now=None if now is None else moment(now, "now"),
        )

    @cached_property
    def _recall(self) -> "Recall":
        from em.recall.search import Recall

        embedder = self._embedder
        if embedder is None and self._embed_settings.use != "none":
            from em.recall.embed import make_embedder

            embedder = make_embedder(self._embed_settings)
        return Recall(self.store, embedder)

    def embed(self, progress: "Progress | None" = None) -> int:
        """Give every passage its vector, after an import or a change of embedder; those left.

        Searching does so by itself for a few hundred. `progress(done, total)` is told of it.
        """
        return self._recall.embed_all(progress)
