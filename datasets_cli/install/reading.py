"""Reading with a recipe: whatever its readers raise becomes our error that names the dataset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from datasets_cli.errors import RldsError, SourceError
from datasets_cli.recipe import Block

READERS_RAISE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    EOFError,
    MemoryError,
)
"""What a reader may raise over bytes that it does not expect."""


def read_blocks(id: str, blocks: Iterator[Block]) -> Iterator[Block]:
    """Yield the blocks that a recipe yields."""
    while True:
        with source_errors(id):
            block = next(blocks, None)
        if block is None:
            return
        yield block


@contextmanager
def source_errors(id: str) -> Iterator[None]:
    """Turn what a reader raises over a damaged file into ``SourceError`` naming the dataset."""
    try:
        yield
    except SourceError as error:
        message = str(error)
        raise (error if message.startswith(id) else SourceError(f"{id}: {message}")) from error
    except RldsError:
        raise
    except READERS_RAISE as error:
        raise SourceError(
            f"{id}: its files cannot be read ({type(error).__name__}: {error}). They are damaged, "
            "or not what the recipe expects."
        ) from error
