"""Trial: how a routine did on a recording. The file `proof.json` has all trials of a routine."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Literal, get_args

import msgspec

Verdict = Literal["right", "handed over", "wrong"]


ENOUGH_TRIALS = 4
"""From this many recordings left out, a routine that was right on none of them is refused."""
OWN_TRACES = "on the traces that its model was shown"


AS_RECORDED = "as recorded"
LEFT_OUT = "left out"
"""The trials in which a recording is not learnt from."""
ENOUGH = 3
"""Times that a routine must be right on recordings that it was not learnt from."""
OPEN_WORLD = "web"
"""The source of recordings that had read what anybody may have written."""


OPEN_SHOWN = 5
"""Open values that a reason names."""


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a routine did on one recording. is_unrecorded: it needed a read that was not made."""

    trace: str
    verdict: Verdict
    reason: str = ""
    is_unrecorded: bool = False


def _counted(made: Sequence[Trial]) -> str:
    """Say how often trials ended so."""
    right, handed_over, wrong = (
        sum(one.verdict == verdict for one in made) for verdict in get_args(Verdict)
    )
    return f"right in {right} of {len(made)}, handed over in {handed_over}, wrong in {wrong}"


class TrialCounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a routine did on traces that it was not learnt from, in numbers and in words.

    warning: there if a trial did the wrong thing, and the routine was stored by force.
    """

    right: int
    handed_over: int
    wrong: int
    summary: str
    warning: str = ""


class Trials(msgspec.Struct, frozen=True, omit_defaults=True):
    """All trials of a routine. Empty if there were none.

    is_outdated: the routine was changed after the trials.
    were_shown: the model that wrote the routine was shown these traces. It was not written again
    without each of them, so these trials don't show what it does with others.
    read_openly: how many recordings acted on what they had read in the open.
    """

    made: Sequence[Trial] = ()
    is_outdated: bool = False
    were_shown: bool = False
    read_openly: int = 0

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
    def summary(self) -> str:
        """How often it was right, in words; empty without trials."""
        if not self.made:
            return ""
        changed = f" ({OWN_TRACES})" if self.were_shown else ""
        changed += " (before the routine was changed)" if self.is_outdated else ""
        if self.read_openly:
            changed += f" ({self.read_openly} had read what anybody may have written)"
        return f"{_counted(self.made)}{changed}"

    @property
    def warning(self) -> str:
        """What everybody must see before they run it; empty if there is nothing to fear."""
        wrong, every = self.count("wrong"), len(self.made)
        if wrong:
            return (
                f"WARNING: what the other recordings teach did the WRONG thing in {wrong} of"
                f" {every} trials. More recordings may be needed."
            )
        if every and not self.count("right"):
            return (
                f"WARNING: this routine did what was recorded in NONE of {every} trials. Nothing"
                " shows that it does the right thing."
            )
        return ""

    @property
    def counts(self) -> TrialCounts | None:
        """The counts and the summary; None without trials."""
        if not self.made:
            return None
        return TrialCounts(
            right=self.count("right"),
            handed_over=self.count("handed over"),
            wrong=self.count("wrong"),
            summary=self.summary,
            warning=self.warning,
        )

    def reasons(self, verdict: str = "") -> list[str]:
        """Return why trials were not right, one sentence each; or only of one verdict."""
        return [
            f"{one.trace}: {one.verdict}: {one.reason}"
            for one in self.made
            if one.reason and verdict in ("", one.verdict)
        ]


class Proof(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The file `proof.json`: what was tried, and when.

    routine: the hash of the routine.yaml that was tried. trials: by how the recordings were
    replayed. were_shown: as of `Trials`.
    open: constants that few recordings show, and inputs that nothing explains.
    sources: how many recordings come from where, each from the least trusted of what it has read.
    """

    at: datetime
    routine: str
    trials: Mapping[str, Sequence[Trial]]
    were_shown: bool = False
    open: Sequence[str] = ()
    sources: Mapping[str, int] = {}

    @property
    def is_proved(self) -> bool:
        """Whether it does nothing on its own recordings but what was recorded there.

        It may hand some of them over, not all. A recording that lacks a read which the routine
        makes shows nothing against it. What fewer recordings teach may still be wrong, but of
        enough of them one must be right: otherwise it only knows the recordings by heart.
        """
        own = self.trials.get(AS_RECORDED, ())
        is_kept = any(one.verdict == "right" or one.is_unrecorded for one in own)
        does_no_harm = self.count("wrong") == self.count("wrong", LEFT_OUT)
        return is_kept and does_no_harm and not self.is_by_heart

    @property
    def is_by_heart(self) -> bool:
        """Whether enough recordings were left out, and it was right on none of them."""
        tried = [one for one in self.trials.get(LEFT_OUT, ()) if not one.is_unrecorded]
        return len(tried) >= ENOUGH_TRIALS and not any(one.verdict == "right" for one in tried)

    @property
    def why_not_alone(self) -> str:
        """Why it may not be used without a person's word, with the figures; empty if it may."""
        wrong, every = self.count("wrong"), sum(map(len, self.trials.values()))
        if wrong:
            return f"it was wrong in {wrong} of {every} trials"
        own = self.trials.get(AS_RECORDED, ())
        if not self.count("right", AS_RECORDED):
            return f"it did what was recorded in none of its {len(own)} recordings"
        right, left_out = self.count("right", LEFT_OUT), len(self.trials.get(LEFT_OUT, ()))
        if right < ENOUGH:
            return (
                f"it was right on {right} of {left_out} recordings left out, and {ENOUGH} are"
                " needed"
            )
        if self.open:
            shown = ", ".join(self.open[:OPEN_SHOWN])
            more = f" and {len(self.open) - OPEN_SHOWN} more" if self.open[OPEN_SHOWN:] else ""
            return f"its {len(own)} recordings leave open: {shown}{more}"
        if self.sources and set(self.sources) == {OPEN_WORLD}:
            return (
                "all of its recordings acted on what they had read, which anybody may have written"
            )
        return ""

    def count(self, verdict: Verdict, how: str = "") -> int:
        """Return how many trials of one sort, or of all, ended so."""
        chosen = [self.trials.get(how, ())] if how else self.trials.values()
        return sum(one.verdict == verdict for trials in chosen for one in trials)

    @property
    def sentences(self) -> list[str]:
        """The trials in one sentence for each sort."""
        made = [f"{how}: {_counted(trials)}" for how, trials in self.trials.items() if trials]
        if set(self.sources) - {"own"}:
            shown = ", ".join(f"{count} {source}" for source, count in self.sources.items())
            made.append(f"recorded by: {shown}")
        return made

    def reasons(self, verdict: Verdict) -> list[str]:
        """Return why trials ended so, one sentence each."""
        return [
            f"{one.trace}, {how}: {one.reason}"
            for how, trials in self.trials.items()
            for one in trials
            if one.verdict == verdict and one.reason
        ]

    def left_out(self, routine: str) -> Trials:
        """Return the trials on recordings that were left out. routine: the text as it is now."""
        return Trials(
            self.trials.get(LEFT_OUT, ()),
            is_outdated=self.routine != hash_of(routine),
            were_shown=self.were_shown,
            read_openly=self.sources.get(OPEN_WORLD, 0),
        )


def hash_of(routine: str) -> str:
    """Return the hash of the text of a routine.yaml."""
    return sha256(routine.encode()).hexdigest()


def render_proof(proof: Proof) -> str:
    """Return the text of `proof.json`."""
    return msgspec.json.format(msgspec.json.encode(proof), indent=2).decode() + "\n"


def read_proof(text: str) -> Proof:
    """Parse `proof.json`. Raise msgspec.ValidationError if it is no proof."""
    return msgspec.json.decode(text, type=Proof)
