"""A text as redaction reads it: one byte for each sign, without what only dresses it up.

A secret is the same secret in colours, behind the line numbers of a program that prints a file,
with full-width signs, escaped for JSON or for a URL, or behind a foreign word for "password". All
this is undone once, here, so that no pattern has to know of it; `span` leads back to the text.
"""

import codecs
import unicodedata
from bisect import bisect_left, bisect_right
from functools import lru_cache

from em.redaction.linear import compiled

PASSWORD, KEY = "\xf0", "\xf1"
"""What a word for a password, or for a key or token, with other letters is read as."""
QUOTES = "\"'`\x01-\x07\x0e-\x12"
"""Quotes, for a class of signs in a pattern. Each way to escape them has signs of its own, so that
a quoted text ends where it ends, and not at a quote inside it."""
FOREIGN = {
    PASSWORD: (
        "парол гасло κωδικ סיסמ 密码 密碼 口令 パスワード パスフレーズ 暗証番号 비밀번호 암호 "
        "패스워드 비번 كلمة·المرور كلمة·السر گذرواژه رمز·عبور पासवर्ड পাসওয়ার্ড รหัสผ่าน პაროლ"
    ).split(),
    KEY: (
        "токен секрет api-ключ ключ·api 密钥 密鑰 令牌 秘密鍵 トークン シークレット 토큰 비밀키"
    ).split(),
}
"""Words for secrets that are not written in Latin letters, up to where their endings differ."""
_FIRST_FOREIGN = "\u0370"
_ESCAPED = {b"\\": (1, 2), b"\\\\\\": (3, 4), b"%": (5, 6), b"&": (7, 14)}
_HEX_QUOTES = (15, 16)
_ENTITIES = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b"\x07"}
_CONTROLS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"/": b"/", b"=": b"=", b":": b":"}


@lru_cache(maxsize=1)
def _signs() -> dict[int, str]:
    """Return what is written with other signs than ASCII has, and means the same."""
    latin = {}
    for code in (*range(0xC0, 0x250), *range(0x1E00, 0x1F00)):
        base = unicodedata.normalize("NFD", chr(code))[0]
        latin[code] = base if base.isascii() else "\xff"
    latin |= dict(zip(map(ord, "łŁøØđĐıßæŒœ"), "lLoOdDisaOo", strict=True))
    full_width = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    spaces = dict.fromkeys((0xA0, 0x3000, 0x202F, 0x205F, *range(0x2000, 0x200B)), " ")
    quotes = dict(zip(map(ord, "“”„‟‘’‚‛"), '""""' + "''''", strict=True))
    unseen = dict.fromkeys((0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF), "\x1c")
    bars = dict.fromkeys(map(ord, "│┃║"), "|") | dict.fromkeys(map(ord, "─━═"), "-")
    return {**latin, **bars, **full_width, **spaces, **quotes, **unseen, 0x2192: "\x1a"}


_DRESS = (
    r"(?P<drop>\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1c"
    r"|(?m:^)[ \t]{0,8}\d{1,7}\x1a|(?m:^) {1,8}\d{1,7}\t"
    r"|[\"'][ \t]{0,40}[+][ \t]{0,4}(?:\r?\n)?[ \t]{0,40}[\"'])"
    r"|(?P<slash>\\+)(?:(?P<sign>[\"'nrt/=:])|(?:u00|x)(?P<code>[2-7][0-9a-fA-F]))"
    r"|%(?:25)?(?P<percent>2[027]|3[aAdD]|7[bBdD]|0[aAdD])"
    r"|&(?:(?P<entity>quot|apos|amp|lt|gt)|#(?P<number>34|39)|#x(?P<hex>2[27]));"
    r"|(?P<equals>=3[dD])"
)


_DRESS_SIGNS = r"[\\%&\t\x1a\x1b\x1c]|=3|[\"'][ \t]*\+"
"""What stands in every text with something to undo."""


def _unknown(error: UnicodeError) -> tuple[bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    return b"\xff" * (error.end - error.start), error.end


codecs.register_error("em-one-byte", _unknown)


def folded(text: str) -> bytes:
    """Return a byte for each sign of a text, with one sign for foreign words for secrets."""
    if text.isascii():
        return text.encode()
    plain = text.translate(_signs()).encode("ascii", "em-one-byte")
    if max(text) < _FIRST_FOREIGN:
        return plain
    lowered, data = text.lower(), bytearray(plain)
    if len(lowered) != len(text):
        lowered = text
    for sign, words in FOREIGN.items():
        for word in (word.replace("·", " ") for word in words):
            at = lowered.find(word)
            while at >= 0:
                end = at + len(word)
                while end < len(data) and data[end] == 0xFF and ord(word[-1]) < 0x600:
                    end += 1  # the ending of a Russian or Greek word
                data[at:end] = sign.encode("latin-1") * (end - at)
                at = lowered.find(word, end)
    return bytes(data)


class View:
    """A text to be searched. `data` is what patterns read; `span` leads back to the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.data = folded(text)
        self._starts: list[int] = []  # in the view, of what was changed
        self._ends: list[int] = []
        self._shifts: list[int] = []  # how much further to the right it is in the text, behind it
        if compiled(_DRESS_SIGNS).search(self.data):
            self._undress()

    def _undress(self) -> None:
        kept: list[bytes] = []
        at = size = 0
        for found in compiled(_DRESS).finditer(self.data):
            sign = _meant(found.group())
            if sign is None:
                continue
            start, end = found.span()
            kept += (self.data[at:start], sign)
            self._starts.append(size + start - at)
            size += start - at + len(sign)
            self._ends.append(size)
            self._shifts.append(end - size)
            at = end
        self.data = b"".join([*kept, self.data[at:]])

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return where something stands in the text itself."""
        before, within = bisect_right(self._ends, start), bisect_left(self._starts, end)
        return (
            start + (self._shifts[before - 1] if before else 0),
            end + (self._shifts[within - 1] if within else 0),
        )

    def original(self, start: int, end: int) -> str:
        """Return what stands there in the text itself."""
        start, end = self.span(start, end)
        return self.text[start:end]


@lru_cache(maxsize=4096)
def _meant(dress: bytes) -> bytes | None:
    """Return the sign that is meant by an escape, nothing for dress; None to leave it as it is."""
    found = compiled(_DRESS).fullmatch(dress)
    kind: str = found.lastgroup.decode()
    value: bytes = found.group(found.lastindex)
    slashes = found.group(b"slash")
    if kind == "drop":
        sign: bytes | None = b""
    elif kind == "sign" and value in _CONTROLS:
        sign = _CONTROLS[value]
    elif kind == "sign":
        pair = _ESCAPED[min(slashes, b"\\\\\\", key=len)] if len(slashes) % 2 else None
        sign = pair and bytes([pair[value == b"'"]])
    elif kind == "entity":
        sign = _ENTITIES.get(value, b"\x0e")
    elif kind == "equals":
        sign = b"="
    elif kind in ("number", "hex"):
        sign = bytes([_ESCAPED[b"&"][value in (b"39", b"27")]])
    else:
        code, pair = int(value, 16), _ESCAPED[b"%"] if kind == "percent" else _HEX_QUOTES
        sign = bytes([pair[code == 0x27] if code in (0x22, 0x27) else code])
    return sign
