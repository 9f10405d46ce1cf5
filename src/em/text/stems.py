"""Stems of English words: Porter's algorithm, with the forms that no rule finds (went: go)."""

import re
from functools import lru_cache

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
    )
    for form in forms.split()[1:]
}

_CONSONANT = r"(?:[^aeiouy]|(?<![^aeiou])y|^y)"
_VOWEL = r"(?:[aeiou]|(?<=[^aeiou])y)"
_HAS_VOWEL = re.compile(_VOWEL)
_SEQUENCE = re.compile(rf"{_VOWEL}+{_CONSONANT}+")
_DOUBLE = re.compile(r"([^aeiouylsz])\1$")
_SHORT = re.compile(rf"{_CONSONANT}{_VOWEL}[^aeiouwxy]$")

_STEP_2 = {
    **{"ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize"},
    **{"abli": "able", "alli": "al", "entli": "ent", "eli": "e", "ousli": "ous"},
    **{"ization": "ize", "ation": "ate", "ator": "ate", "alism": "al", "iveness": "ive"},
    **{"fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble"},
}
_STEP_3 = {
    **{"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic"},
    **{"ful": "", "ness": ""},
}
_STEP_4 = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "sion"),
    *("tion", "ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)


def _ending(endings: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(endings, key=len, reverse=True)
    return re.compile(f"(?:{'|'.join(longest_first)})$")


_ENDING_2, _ENDING_3, _ENDING_4 = _ending((*_STEP_2,)), _ending((*_STEP_3,)), _ending(_STEP_4)


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """The stem of a lower-case word; what is not written in Latin letters stays as it is."""
    word = _IRREGULAR.get(word, word)
    if len(word) < 3 or not word.isascii() or not word.isalpha():
        return word
    word = _without_plural(word)
    word = _without_past(word)
    if word.endswith("y") and _HAS_VOWEL.search(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _ENDING_2, _STEP_2)
    word = _replaced(word, _ENDING_3, _STEP_3)
    return _tidied(_without_suffix(word))


def _measure(part: str) -> int:
    return len(_SEQUENCE.findall(part))


def _without_plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _without_past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    for ending in ("ed", "ing"):
        part = word.removesuffix(ending)
        if part != word:
            return _mended(part) if _HAS_VOWEL.search(part) else word
    return word


def _mended(part: str) -> str:
    """What is left of a past form, as its verb is written: hop(p), fil(e), conflat(e)."""
    if part.endswith(("at", "bl", "iz")):
        return part + "e"
    if _DOUBLE.search(part):
        return part[:-1]
    return part + "e" if _measure(part) == 1 and _SHORT.search(part) else part


def _replaced(word: str, ending: re.Pattern[str], by: dict[str, str]) -> str:
    found = ending.search(word)
    if found is None or not _measure(word[: found.start()]):
        return word
    return word[: found.start()] + by[found[0]]


def _without_suffix(word: str) -> str:
    found = _ENDING_4.search(word)
    if found is None:
        return word
    part = word[: found.start()]
    if found[0] in ("sion", "tion"):
        part += found[0][0]
    return part if _measure(part) > 1 else word


def _tidied(word: str) -> str:
    if word.endswith("e"):
        part = word[:-1]
        measure = _measure(part)
        if measure > 1 or (measure == 1 and not _SHORT.search(part)):
            word = part
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
