"""Structs: prepare them before threads use them."""

from contextlib import suppress

import msgspec


def prepare_structs() -> None:
    """Prepare every Struct that is loaded for decoding.

    msgspec prepares one when it is first decoded, and crashes the process when two threads do so at
    the same time (seen with 0.22): call this once before threads decode.
    """
    waiting: list[type[msgspec.Struct]] = [msgspec.Struct]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            with suppress(TypeError, NameError):  # one that is never decoded
                msgspec.json.Decoder(kind)
