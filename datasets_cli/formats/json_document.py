"""JSON documents of publishers, bounded in size, number of values and nesting."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from datasets_cli.core.checked_json import is_deeper
from datasets_cli.errors import SourceError
from datasets_cli.formats.limits import beyond, check_limit, limit

VALUE_BYTES = 16
"""The weight of a value against the limit of a document."""


def read_json_file(path: Path) -> Any:
    """Return the values of a JSON file; see ``read_json``."""
    check_limit("json_bytes", path.stat().st_size, path.name)
    return read_json(path.read_bytes(), path.name)


def read_json(data: str | bytes, name: str) -> Any:
    """Return the values of a JSON document; infinity and NaN are accepted.

    Args:
        data: the document.
        name: of the file or its part, for messages.

    Raises:
        SourceError: it is not JSON, or beyond the limits.
    """
    encoded = data.encode(errors="replace") if isinstance(data, str) else data
    # Each value but the first follows one of these characters, which texts may contain too.
    num_values = sum(map(encoded.count, (b"[", b"{", b",")))
    check_limit("json_bytes", max(len(data), VALUE_BYTES * num_values), name)
    try:
        document = json.loads(data)
    except RecursionError as error:
        raise beyond("nesting", math.inf, name) from error
    except ValueError as error:  # also for a number of thousands of digits
        raise SourceError(f"{name} is not JSON ({error}).", path=name) from error
    if isinstance(document, dict | list) and is_deeper(document, limit("nesting")):
        raise beyond("nesting", math.inf, name)
    return document
