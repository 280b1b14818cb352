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

DIGEST = "digest"
MAX_DEPTH = 64
_ZEROS = "0" * 64
# One space is the indent of the first level alone, and no text of JSON holds a line break, so that
# this line cannot be anywhere else.
_LINE = re.compile(rb'^ "digest": "([0-9a-f]{64})",?$', re.MULTILINE)


def seal(document: dict[str, Any]) -> bytes:
    """Return a document as JSON with its digest, for people and programs to read.

    What stands for bytes that were no UTF-8, in a publisher's text, becomes a question mark.
    """
    sealed = {**document, DIGEST: _ZEROS}
    text = json.dumps(sealed, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    data = text.encode(errors="replace") + b"\n"
    (match,) = _LINE.finditer(data)
    digest = hashlib.sha256(data).hexdigest().encode()
    return data[: match.start(1)] + digest + data[match.end(1) :]


def check_seal(data: bytes, document: dict[str, Any]) -> None:
    """Check the digest that a document has.

    Args:
        data: the file.
        document: what ``parse`` made of it.

    Raises:
        ValueError: there is no digest, or it is not that of the file.
    """
    found = list(_LINE.finditer(data))
    if len(found) != 1 or document.get(DIGEST) != found[0][1].decode():
        raise ValueError(f"expected one line with its {DIGEST}, found {len(found)}")
    start, end = found[0].span(1)
    digest = hashlib.sha256(data[:start] + _ZEROS.encode() + data[end:]).hexdigest()
    if digest != document[DIGEST]:
        raise ValueError(
            f"its bytes have the sha256 {digest[:12]}…, and its {DIGEST} says "
            f"{document[DIGEST][:12]}…"
        )


def parse(data: bytes) -> dict[str, Any]:
    """Return the document that some bytes are, with or without a digest.

    Raises:
        ValueError: they are not a JSON object, or one that our other code could not follow.
    """
    try:
        document = json.loads(data, parse_constant=_refuse_constant, parse_float=_finite)
        _check_values(document)
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


def _check_values(document: Any) -> None:
    """Refuse texts that cannot be written or printed, and what is nested too deep."""
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, str):
                if not value.isascii():
                    value.encode()  # raises for half of a surrogate pair, which JSON can state
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, dict):
                inner += [*value, *value.values()]
        if not inner:
            return
        level = inner
    raise RecursionError
