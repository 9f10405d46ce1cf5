"""Stems of English words: Porter's algorithm, and the forms that no rule finds (went: go).

Porter's, because it never changes: search indexes hold its stems. Snowball revises its English
stemmer, and then an index no longer fits the questions.
"""

import threading
from functools import lru_cache
from typing import Any

_IRREGULAR = {
    form: forms.split()[0]
    for forms in (
        *("arise arose arisen", "become became", "begin began begun", "bite bit bitten"),
        *("blow blew blown", "break broke broken", "bring brought", "build built", "buy bought"),
        *("catch caught", "choose chose chosen", "come came", "deal dealt", "dig dug"),
        *("draw drew drawn", "drink drank drunk", "drive drove driven", "eat ate eaten"),
        *("fall fell fallen", "feed fed", "feel felt", "fight fought", "find found"),
        *("fly flew flown", "forget forgot forgotten", "forgive forgave forgiven"),
        *("freeze froze frozen", "get got gotten", "give gave given", "go went gone goes"),
        *("grow grew grown", "hang hung", "hear heard", "hide hid hidden", "hold held"),
        *("keep kept", "know knew known", "lead led", "lend lent", "light lit", "lose lost"),
        *("make made", "mean meant", "meet met", "pay paid", "ride rode ridden", "ring rang rung"),
        *("rise rose risen", "run ran", "say said", "see seen", "seek sought", "sell sold"),
        *("send sent", "shake shook shaken", "shine shone", "shoot shot", "show shown"),
        *("sing sang sung", "sink sank sunk", "sit sat", "sleep slept", "speak spoke spoken"),
        *("spend spent", "stand stood", "steal stole stolen", "stick stuck", "strike struck"),
        *("swear swore sworn", "swim swam swum", "take took taken", "teach taught", "tell told"),
        *("tear tore torn", "think thought", "throw threw thrown", "understand understood"),
        *("wake woke woken", "wear wore worn", "win won", "write wrote written"),
        *("child children", "man men", "woman women", "person people", "foot feet"),
        *("tooth teeth", "mouse mice", "wife wives", "life lives", "knife knives"),
        *("leaf leaves", "half halves", "shelf shelves"),
        *("rev revved revving", "trek trekked trekking", "yak yakked yakking"),
    )
    for form in forms.split()[1:]
}

_lock = threading.Lock()


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    # Its class, not `snowballstemmer.stemmer`: that takes PyStemmer where it happens to be there.
    from snowballstemmer.porter_stemmer import PorterStemmer

    return PorterStemmer()


def stem(word: str) -> str:
    """Return the stem of a lower-case word; a word with other than Latin letters is its own."""
    word = _IRREGULAR.get(word, word)
    if len(word) < 3 or not word.isascii() or not word.isalpha():
        return word
    with _lock:  # a stemmer holds the word that it works on
        return str(_stemmer().stemWord(word))
