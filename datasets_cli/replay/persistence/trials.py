"""Trying a state before anything is changed: a sampler or a writer takes it, or it is refused."""

from __future__ import annotations

from typing import Any

from datasets_cli.errors import RldsError
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.writers.protocol import Writer

WRONG_STATE = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RuntimeError),
)
"""What a part may raise that is given a state of other types or sizes than its own."""


def try_state(
    part: Sampler | Writer, state: Any, what: str, kind: type[RldsError], remedy: str
) -> None:
    """Check that a sampler or writer takes a state; it stays as it was."""
    before = part.state_dict()
    try:
        part.load_state_dict(state)
    except WRONG_STATE as error:
        raise wrong_state(part, error, what, kind, remedy) from error
    finally:
        part.load_state_dict(before)


def wrong_state(
    part: Sampler | Writer, error: Exception, what: str, kind: type[RldsError], remedy: str
) -> RldsError:
    """Return the error of a state that a part did not take; see ``try_state``."""
    reason = str(error) if isinstance(error, RldsError) else f"{error!r}."
    if isinstance(error, KeyError):
        reason = f"it has no {error}."
    return kind(f"{what} is not the state of a {type(part).__name__}: {reason} {remedy}")
