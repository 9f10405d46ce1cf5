"""What models cost. Only what the provider's own pages say, and only where one price holds for all.

Models whose price depends on the size of the request (OpenAI's and Google's current ones) are left
out: em.yaml sets a price, and a cost is None rather than a guess.
"""

from em.llm.interface import Tokens
from em.settings import Price

PRICES = {
    "claude-fable-5-1": Price(10, 50),
    "claude-haiku-4-5": Price(1, 5),
    "claude-opus-5": Price(5, 25, 0.5),
    "claude-opus-5-5": Price(4, 20),
    "claude-sonnet-5": Price(2, 10, 0.2),
    "claude-sonnet-5-5": Price(2, 10, 0.2),
}
"""USD per million tokens: the model pages of platform.claude.com, read in November 2026."""


def cost_of(price: Price | None, usage: Tokens | None) -> float | None:
    """What an answer cost; None where the price or the count is not known."""
    if price is None or usage is None:
        return None
    if usage.cached and price.cached is None:
        return None
    fresh = usage.input - usage.cached
    total = fresh * price.input + usage.cached * (price.cached or 0) + usage.output * price.output
    return total / 1e6
