"""Tags: index terms by which a search is narrowed to a role, a session or a field of one's own.

A tag is a word of the index like any other, so it is found, written and forgotten with its passage,
in the same way in every store. This is apart from `terms` because every command loads it.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

FIELDS = ("role", "speaker", "session", "agent", "run")
_FOLDED = frozenset({"role", "speaker"})


@lru_cache(maxsize=8_192)
def tag(name: str, value: str) -> str:
    """Return the index term that narrows a search to a field's value.

    A tag is a term like any other: it is found, written and forgotten with its passage.
    """
    digest = blake2b(f"{name}\0{value}".encode(errors="surrogatepass"), digest_size=10)
    return f"=t{digest.hexdigest()}"


def as_tagged(name: str, value: Any) -> str:
    """Return a value as it is compared: as text, so that 42 is "42". Names are folded."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).casefold() if name in _FOLDED else str(value)


def field_tags(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tags of what is given as FIELDS and `metadata`; others are passed over."""
    for name in FIELDS:
        if isinstance(value := given.get(name), str):
            yield tag(name, as_tagged(name, value))
    own = given.get("metadata")
    if isinstance(own, Mapping):
        for name, value in own.items():
            for one in value if isinstance(value, list | tuple) else (value,):
                if isinstance(one, str | int | float):
                    yield tag(f"metadata/{name}", as_tagged("metadata", one))
