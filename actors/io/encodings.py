"""Detection of text encodings.

A byte order mark decides. So does valid UTF-8: text in another encoding is hardly ever valid UTF-8. UTF-16 without a
mark has zeros at every other position. Then the declaration of the page or its server counts. The rest is old: mostly
ASCII with a few other bytes is Windows-1252, which contains Latin-1. If a fifth or more of a large enough sample is
beyond ASCII, the text is in another script. Then charset-normalizer (extra `docs`) guesses well. For Latin letters it
guesses badly, hence the rule.
"""

from __future__ import annotations

import codecs
import re

HEAD = 8192
"""Bytes that are examined to distinguish text from binary data."""

SAMPLE = 64 * 1024
ENOUGH = 16

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is a prefix of this one
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CODECS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks with codecs for the data after them; the codecs in `_MARKS` write a mark themselves."""

_BINARY = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF"),
    (b"RIFF", "RIFF data (image, sound or film)"),
    (b"\x7fELF", "a program"),
    (b"\xcf\xfa\xed\xfe", "a program"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"OggS", "Ogg data (sound or film)"),
    (b"ID3", "an MP3 file"),
)
_ODD = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))
"""Control characters that do not occur in text."""

_DECLARED = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([A-Za-z0-9_.:-]{2,40})""", re.IGNORECASE)
_NO_CHARSETS = frozenset(("idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "utf-7"))
"""Python codecs that are not text encodings: some fail even with `replace`, others take forever."""


def image_type(data: bytes) -> str:
    """Return the media type of an image by its first bytes; empty for other or unknown data."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES.items() if data.startswith(magic)), "")


_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


def binary(data: bytes) -> str:
    """Return a description of binary data; empty for text."""
    head = data[:HEAD]
    for magic, name in _BINARY:
        if head.startswith(magic) and (b"\0" in head or not _is_utf8(head)):
            return name
    if any(head.startswith(mark) for mark, _ in _MARKS) or _sixteen(head):
        return ""
    if b"\0" in head:
        return "binary data"
    odd = len(head) - len(head.translate(None, _ODD))
    return "binary data" if odd * 50 > len(head) else ""


def decoded(data: bytes, declared: str = "") -> str:
    """Decode a text, with `\\n` as its line ends.

    Args:
        declared: encoding stated by the source; the bytes themselves take precedence.
    """
    return cleaned(_decoded(data, declared))


def lossless(data: bytes) -> tuple[bytes, str, str]:
    """Return the byte order mark, codec and error handler with which these bytes survive decoding and encoding
    unchanged.

    The codec decodes the data after the mark. Bytes that are not UTF-8 are Windows-1252 or else Latin-1. Exception: if
    most of the text beyond ASCII is UTF-8, its few broken bytes become surrogates.
    """
    for mark, encoding in _CODECS:
        if data.startswith(mark) and _survives(data[len(mark) :], encoding):
            return mark, encoding, "strict"
    if (sixteen := _sixteen(data[:HEAD])) and _survives(data, sixteen):
        return b"", sixteen, "strict"
    if _survives(data, "utf-8"):
        return b"", "utf-8", "strict"
    mended = data.decode("utf-8", "replace")
    if mended.count("\ufffd") * 4 < sum(1 for letter in mended if letter > "\x7f"):
        return b"", "utf-8", "surrogateescape"
    return b"", "cp1252" if _survives(data, "cp1252") else "latin-1", "strict"


def declared_inside(data: bytes) -> str:
    """Return the encoding that an HTML or XML page declares; empty if there is none."""
    found = _DECLARED.search(data[:2048])
    return found[1].decode("ascii") if found else ""


def cleaned(text: str) -> str:
    """Normalise line ends, remove NUL, and replace the lone surrogates that JSON permits by `?`."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    return text.encode("utf-8", "replace").decode("utf-8")


def _decoded(data: bytes, declared: str) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    if sixteen := _sixteen(data[:HEAD]):
        return data.decode(sixteen, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    if (said := _strictly(data, declared)) is not None:
        return said
    beyond = sum(1 for byte in data[:SAMPLE] if byte > 127)
    mended = data[:SAMPLE].decode("utf-8", "replace")
    if mended.count("\ufffd") * 4 < sum(1 for letter in mended if letter > "\x7f"):
        return data.decode("utf-8", "replace")  # UTF-8 with a few broken bytes
    if beyond >= ENOUGH and beyond * 5 >= len(data[:SAMPLE]) and (guess := _guessed(data)):
        return data.decode(guess, "replace")
    return data.decode("cp1252", "replace")


def _survives(data: bytes, encoding: str) -> bool:
    try:
        return data.decode(encoding).encode(encoding) == data
    except UnicodeError:
        return False


def _sixteen(head: bytes) -> str:
    """Recognise UTF-16 without a mark by its zeros; empty for other data."""
    if len(head) < 4 or b"\0" not in head:
        return ""
    half = len(head) // 2
    even, odd = head[0::2].count(0) / half, head[1::2].count(0) / half
    if max(even, odd) < 0.4 or min(even, odd) > 0.05:
        return ""
    encoding = "utf-16-le" if odd > even else "utf-16-be"
    text = head.decode(encoding, "ignore")
    return "" if any(letter < " " and letter not in "\t\n\r\f" for letter in text) else encoding


def _strictly(data: bytes, encoding: str) -> str | None:
    try:
        if not encoding or codecs.lookup(encoding).name in _NO_CHARSETS:
            return None
        return data.decode(encoding)
    except (LookupError, ValueError):  # unknown, not a text encoding, or a wrong declaration
        return None


def _guessed(data: bytes) -> str:
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return ""
    best = from_bytes(data[:SAMPLE]).best()
    return best.encoding if best is not None else ""


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
