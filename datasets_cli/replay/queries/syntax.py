"""The syntax of conditions as text; parsing needs neither trajectories nor torch."""

from __future__ import annotations

import ast
import re

from datasets_cli.errors import UsageError

MAX_LENGTH = 10_000
"""Characters of a condition."""

RETURN = "return_"  # as Python's parser takes it: return is a keyword


def parse_condition(where: str) -> ast.expr:
    """Return the tree of a condition, whose names are not looked up."""
    example = "Expected something such as 'return > 300 and length >= 100'."
    if len(where) > MAX_LENGTH:
        raise UsageError(
            f"Condition too long: {len(where):,} characters, at most {MAX_LENGTH:,} allowed. "
            f"{example}"
        )
    source = re.sub(r"\breturn\b", RETURN, " ".join(where.split()))  # of several lines
    try:
        return ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise UsageError(f"Condition {shown(where)!r} cannot be read. {example}") from error


def shown(text: str) -> str:
    """Return a condition for a message, shortened to 200 characters."""
    return text if len(text) <= 200 else f"{text[:200]}..."
