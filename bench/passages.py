"""Made-up talk for measuring speed: words as frequent as in a language, stop words among them."""

from collections.abc import Iterator
from itertools import accumulate
from random import Random

from em.text.terms import STOP_WORDS

VOCABULARY = 50_000


class Talk:
    """Passages and questions; the same each time."""

    def __init__(self, seed: int = 7) -> None:
        self._random = Random(seed)
        stop = sorted(STOP_WORDS)
        self._words = stop + [_word(n) for n in range(VOCABULARY)]
        self._weights = list(accumulate(1 / (rank + 2.7) for rank in range(len(self._words))))

    def passages(self, count: int) -> Iterator[str]:
        """Texts of some 23 words, as turns of a conversation have."""
        for _ in range(count):
            length = self._random.randint(6, 40)
            yield " ".join(self._random.choices(self._words, cum_weights=self._weights, k=length))

    def questions(self, texts: list[str], count: int) -> list[str]:
        """Three or four content words of a passage, and five stop words around them."""
        asked = []
        while len(asked) < count:
            words = self._random.choice(texts).split()
            content = [word for word in words if word not in STOP_WORDS]
            if len(content) < 4:
                continue
            picked = self._random.sample(content, self._random.randint(3, 4))
            asked.append(" ".join(["what", "did", "they", "of", "the", *picked]))
        return asked


def _word(number: int) -> str:
    """A word that no stemmer changes."""
    letters = ""
    number += 100
    while number:
        number, rest = divmod(number, 100)
        letters += "bdfgklmnprtvz"[rest % 13] + "aou"[rest % 3] + "kmt"[rest // 40]
    return letters
