"""What was said."""

from functools import cached_property
from typing import TYPE_CHECKING

from em.memory.base import Opened
from em.store.protocol import Within
from em.values.times import Moment, moment

if TYPE_CHECKING:
    from em.recall.embed import Embed, Progress
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

        return Recall(self.store, self._embed)

    @cached_property
    def _embed(self) -> "Embed | None":
        """The embedder that was given, or that the settings name."""
        if self._embedder is not None or self._embed_settings.use == "none":
            return self._embedder
        from em.recall.embed import make_embedder

        return make_embedder(self._embed_settings)

    def embed(self, progress: "Progress | None" = None) -> int:
        """Give every passage and lesson its vector, after an import or with another embedder.

        How many are left. Searching does so by itself for a few hundred. `progress(done, total)` is
        told of it.
        """
        left = self._recall.embed_all(progress)
        self._embed_lessons(progress)
        return left

    def _embed_lessons(self, progress: "Progress | None") -> None:
        """Lessons are embedded by who keeps them."""
