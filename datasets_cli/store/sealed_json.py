"""JSON that finds its own damage: one document, with the sha256 of the file that holds it.

    {
     "content": "9f86…",
     "digest": "2c26…",        sha256 of these bytes, with zeros where these 64 digits are
     …

The digest finds damage, such as a flipped bit, and nothing else: whoever changes the document on
purpose can state another one. A reader must be able to take any bytes for the document, so what
plain JSON readers let pass is refused here: NaN, infinity, a text that UTF-8 does not have, and
nesting that no code below could follow.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

from datasets_cli.core.checked_json import is_deeper

DIGEST = "digest"
MAX_DEPTH = 64
_ZEROS = "0" * 64
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # of a pair that stands for one character, or of none
# One space is the indent of the first level alone, and no text of JSON holds a line break, so that
# this line cannot be anywhere else.
_MARK = b'\n "digest": "'


def seal(document: dict[str, Any]) -> bytes:
    """Return a document as JSON with its digest, for people and programs to read."""
    # What stands for bytes that were no UTF-8, in a publisher's text, becomes a question mark.
    sealed = {**document, DIGEST: _ZEROS}
    text = json.dumps(sealed, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    data = text.encode(errors="replace") + b"\n"
    before, after = _around(data)
    return before + hashlib.sha256(data).hexdigest().encode() + after


def check_seal(data: bytes, document: dict[str, Any]) -> None:
    """Check the digest that a document has."""
    before, after = _around(data)
    digest = hashlib.sha256(before + _ZEROS.encode() + after).hexdigest()
    if digest != (stated := document.get(DIGEST)):
        raise ValueError(
            f"its bytes have the sha256 {digest[:12]}…, and its {DIGEST} says {str(stated)[:12]}…"
        )


def _around(data: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after the 64 digits of the digest."""
    before, mark, after = data.partition(_MARK)
    if not mark or _MARK in after:
        raise ValueError(f"expected one line with its {DIGEST}, found {data.count(_MARK)}")
    return before + mark, after[len(_ZEROS) :]


def parse(data: bytes) -> dict[str, Any]:
    """Return the document that some bytes are, with or without a digest."""
    try:
        text = data.decode()
        document = _DECODER.decode(text)
        if isinstance(document, dict | list) and is_deeper(document, MAX_DEPTH):
            raise RecursionError
        if _HALF.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep") from None
    if not isinstance(document, dict):
        raise ValueError(f"expected an object, found a {type(document).__name__}")
    return document


def _refuse_constant(text: str) -> float:
    raise ValueError(f"it has {text}, which is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isfinite(number):
        return number
    raise ValueError(f"the number {text[:20]} is too large")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
