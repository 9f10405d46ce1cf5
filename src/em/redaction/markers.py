"""Putting hidden values back into what somebody returned who saw only markers.

A hidden value goes back only to where it came from, with nothing around it changed: a model that
was talked into it must not be able to move a card number into a URL.
"""

import re
from typing import Any

import msgspec

from em.redaction.redactor import MARKER
from em.values.leaves import texts

Json = dict[str, Any]
"""As in models, which stands beside this part and is not imported."""
ANY_MARKER = re.compile(rf"<private:[^<>]*>|{MARKER.pattern}")
_encode = msgspec.json.Encoder(order="sorted").encode


class MarkerMoved(Exception):
    """What came back has a marker where there was none."""


def put_back(answer: Any, shown: Any, real: Any) -> Any:
    """The answer, with the real value wherever it has just what was shown. Raises MarkerMoved."""
    return _put_back(answer, shown, real)


def refuse_markers(value: Any) -> Any:
    """A value in which nothing stands for something hidden. Raises MarkerMoved."""
    for text in texts(value, names=True):
        if marker := ANY_MARKER.search(text):
            raise MarkerMoved(f"{marker.group()} stands where its value may not go")
    return value


def _put_back(answer: Any, shown: Any, real: Any) -> Any:
    if _encode(answer) == _encode(shown):  # as JSON: Python finds 1 and True equal
        return real
    if isinstance(answer, dict) and isinstance(shown, dict) and isinstance(real, dict):
        known = dict(zip(shown, real.items(), strict=True))
        clean: dict[str, Any] = {}
        for name, item in answer.items():
            if name in known:
                real_name, real_item = known[name]
                clean[real_name] = _put_back(item, shown[name], real_item)
            else:
                refuse_markers(name)
                clean[name] = refuse_markers(item)
        return clean
    return refuse_markers(answer)
