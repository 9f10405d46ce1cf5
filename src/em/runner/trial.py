"""Trial: how a learnt routine did on a trace that it was not learnt from."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from em.values.canonical import Json

Verdict = Literal["right", "handed over", "wrong"]


TOO_FEW = "leaving one out leaves too few to learn from; one more trace would be enough"
"""The reason of a trial that could not be made."""
ENOUGH_TRIALS = 4
"""From this many trials on, a routine that was right in none of them is not kept."""
OWN_TRACES = "on the traces that its model was shown"


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """How what was learnt from other traces did on this one."""

    trace: str
    verdict: Verdict
    reason: str = ""


class Trials(msgspec.Struct, frozen=True, omit_defaults=True):
    """All trials of a routine. Empty if there were none.

    is_outdated: the routine was changed after the trials.
    were_shown: the model that wrote the routine was shown these traces. It was not written again
    without each of them, so these trials don't show what it does with others.
    """

    made: Sequence[Trial] = ()
    is_outdated: bool = False
    were_shown: bool = False

    def __len__(self) -> int:
        return len(self.made)

    def count(self, verdict: Verdict) -> int:
        """Return how many trials ended so."""
        return sum(one.verdict == verdict for one in self.made)

    @property
    def right_share(self) -> float:
        """The share of trials that did what was recorded; 0 without trials."""
        return self.count("right") / len(self.made) if self.made else 0.0

    @property
    def are_too_few(self) -> bool:
        """Whether no trial could be made: all traces are needed to learn the routine."""
        return bool(self.made) and all(one.reason == TOO_FEW for one in self.made)

    @property
    def summary(self) -> str:
        """How often it was right, in words; empty without trials."""
        if not self.made:
            return ""
        changed = f" ({OWN_TRACES})" if self.were_shown else ""
        changed += " (before the routine was changed)" if self.is_outdated else ""
        if self.are_too_few:
            return f"not tried: {TOO_FEW}{changed}"
        return (
            f"right in {self.count('right')} of {len(self.made)}, handed over in"
            f" {self.count('handed over')}, wrong in {self.count('wrong')}{changed}"
        )

    @property
    def warning(self) -> str:
        """What everybody must see before they run it; empty if there is nothing to fear."""
        wrong, every = self.count("wrong"), len(self.made)
        if wrong:
            return (
                f"WARNING: this routine did the WRONG thing in {wrong} of {every} trials. It was"
                " stored by force."
            )
        if every and not self.count("right") and not self.are_too_few:
            return (
                f"WARNING: this routine did what was recorded in NONE of {every} trials. Nothing"
                " shows that it does the right thing."
            )
        return ""

    def __str__(self) -> str:
        if self.are_too_few:
            return self.summary
        if self.were_shown:
            return f"tried: {self.summary}"
        return f"tried on traces that it was not learnt from: {self.summary}"

    def as_dict(self) -> Json | None:
        """Return the counts and the summary, for programs; None without trials."""
        if not self.made:
            return None
        shown: dict[str, Any] = {
            "right": self.count("right"),
            "handed_over": self.count("handed over"),
            "wrong": self.count("wrong"),
            "summary": self.summary,
        }
        return {**shown, "warning": self.warning} if self.warning else shown

    def reasons(self, verdict: str = "") -> list[str]:
        """Return why trials were not right, one sentence each; or only of one verdict."""
        if self.are_too_few:
            return []  # the summary says it
        return [
            f"{one.trace}: {one.verdict}: {one.reason}"
            for one in self.made
            if one.reason and verdict in ("", one.verdict)
        ]
