"""What a recipe's readers raise becomes our error, which names the dataset."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from datasets_cli.errors import NetworkError, SourceError
from datasets_cli.install.fetch import read_blocks, source_errors
from datasets_cli.recipe import Block

KINDS = (OSError, ValueError, TypeError, KeyError, IndexError, ZeroDivisionError, OverflowError)


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_reader_raises_over_odd_bytes_is_a_damaged_source(kind: type[Exception]) -> None:
    def blocks() -> Iterator[Block]:
        yield Block({})
        raise kind("odd")

    read = read_blocks("mine/one", blocks())
    next(read)
    with pytest.raises(SourceError) as caught:
        next(read)
    assert caught.value.id == "mine/one" and caught.value.found.startswith(kind.__name__)
    assert caught.value.exit_code == 4


def test_an_error_of_ours_stays_what_it_is() -> None:
    gone = NetworkError("gone")
    with pytest.raises(NetworkError) as caught, source_errors("mine/one"):
        raise gone
    assert caught.value is gone
