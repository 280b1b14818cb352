"""JSON with a digest: one document that contains the sha256 of its file.

    {
     "content": "9f86…",
     "digest": "2c26…",        sha256 of these bytes, with zeros where these 64 digits are
     …

The digest detects damage, such as a flipped bit, but not intent: an attacker can compute a new
digest. The bytes are untrusted. So values that other JSON readers accept are rejected here: NaN,
infinity, unpaired surrogates, and nesting deeper than ``MAX_DEPTH``.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

from datasets_cli.core.checked_json import WrongValue, is_deeper

DIGEST = "digest"
MAX_DEPTH = 64
_ZEROS = "0" * 64
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # half of a surrogate pair, or an unpaired one
# Unique: only the first level is indented by one space, and JSON texts contain no line breaks.
_MARK = b'\n "digest": "'


def seal(document: dict[str, Any]) -> bytes:
    """Return a document as JSON with its digest, readable by people and programs."""
    # Surrogates, for bytes of a publisher's text that are not UTF-8, become question marks.
    sealed = {**document, DIGEST: _ZEROS}
    text = json.dumps(sealed, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    data = text.encode(errors="replace") + b"\n"
    before, after = _around(data)
    return before + hashlib.sha256(data).hexdigest().encode() + after


def check_seal(data: bytes, document: dict[str, Any]) -> None:
    """Check the digest of a document."""
    before, after = _around(data)
    digest = hashlib.sha256(before + _ZEROS.encode() + after).hexdigest()
    if digest != (stated := document.get(DIGEST)):
        raise WrongValue(DIGEST, f"{digest}, the sha256 of the file", stated)


def _around(data: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after the 64 digits of the digest."""
    before, mark, after = data.partition(_MARK)
    if not mark or _MARK in after:
        raise WrongValue(DIGEST, "one line", data.count(_MARK))
    return before + mark, after[len(_ZEROS) :]


def parse(data: bytes) -> dict[str, Any]:
    """Parse a document, with or without a digest."""
    try:
        text = data.decode()
        document = _DECODER.decode(text)
        if isinstance(document, dict | list) and is_deeper(document, MAX_DEPTH):
            raise RecursionError
        if _HALF.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise WrongValue("", f"at most {MAX_DEPTH} nested levels", "more") from None
    if not isinstance(document, dict):
        raise WrongValue("", "an object", document)
    return document


def _refuse_constant(text: str) -> float:
    raise WrongValue("", "JSON", text)


def _finite(text: str) -> float:
    number = float(text)
    if math.isfinite(number):
        return number
    raise WrongValue("", "a number that fits float64", text)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
