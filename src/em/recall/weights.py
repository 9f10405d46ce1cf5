"""What counts how much in ranking. The figures behind each are in docs/recall.md."""

import msgspec


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the ranking; `bench/recall.py` measures what each is worth."""

    previous: float = 0.5
    """A word in the passage before counts so much here; further away it fades."""
    following: float = 0.4
    fade: float = 0.7
    answer: float = 0.6
    """How much more the passage before counts when it is a question."""
    saturation: float = 0.7
    """The higher, the more a word gains from being there again in the neighbourhood."""
    length: float = 0.3
    """How much a word in a long passage counts less, as `b` in BM25."""
    substance: float = 0.2
    """How much a long passage is preferred as an answer."""
    other_speaker: float = 0.7
    """What a passage keeps if the question names a speaker and somebody else said it."""
    time: float = 1.0
    """What a named time counts, beside a word of the same rarity."""
    vector: float = 0.3
    """What meaning counts, beside all words together."""
    vector_neighbours: float = 0.3

    def shares(self, nearest: float) -> tuple[float, float, float]:
        """How much a word counts for the passages one, two and three away."""
        return nearest, nearest * self.fade, nearest * self.fade**2


TYPICAL_LENGTH = 12.0
"""Content words of a passage of middle length."""
ROLES = {"assistant": 0.95, "tool": 0.8, "system": 0.8}
"""What a passage of a role keeps; any other keeps all. Chosen, not measured."""
