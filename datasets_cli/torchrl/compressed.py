"""A storage of rows of any kind, whose tensors are kept compressed in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import torch
import zstandard

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows, whole_number
from datasets_cli.replay.storages.description import RowsJson, bytes_of, describe, restore
from datasets_cli.replay.storages.lists import ListStorage
from datasets_cli.replay.torchrl_words import LIST, takes

MOST_LEVEL = 22


class TensorFacts(TypedDict):
    """What is known of a compressed tensor."""

    type: str
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


Compress = Callable[[torch.Tensor], torch.Tensor]
Decompress = Callable[[torch.Tensor, TensorFacts], torch.Tensor]


@dataclass(frozen=True)
class _Compressed:
    """A row: what it is, and its tensors."""

    description: RowsJson
    tensors: list[tuple[torch.Tensor, TensorFacts]]


@takes(**LIST)
class CompressedListStorage(ListStorage):
    """Rows of any kind, one object each, whose tensors are compressed, such as images.

    Tensors of a row are compressed one by one, also those in TensorDicts, lists, tuples and dicts;
    rows of other classes are kept unchanged. What is read is a copy.

    Args:
        max_size: most rows; without a limit by default.
        compression_fn: takes a tensor and returns another; zstandard by default.
        decompression_fn: takes what that returned and a dict with the ``shape``, ``dtype`` and
            ``device`` of the tensor, which it returns.
        compression_level: of zstandard, from 1, the fastest, to 22, the smallest.

    Raises:
        UsageError: a number is out of its range, or one of the two functions is missing.
    """

    def __init__(
        self,
        max_size: int | None = None,
        *,
        compression_fn: Compress | None = None,
        decompression_fn: Decompress | None = None,
        compression_level: int = 3,
    ) -> None:
        super().__init__(max_size)
        if (compression_fn is None) != (decompression_fn is None):
            raise UsageError("Give both compression_fn and decompression_fn, or neither.")
        self.compression_level = whole_number("compression_level", compression_level, 1)
        if self.compression_level > MOST_LEVEL:
            raise UsageError(
                f"compression_level is 1 to {MOST_LEVEL}, not {self.compression_level}."
            )
        self.compression_fn = compression_fn or self._compress
        self.decompression_fn = decompression_fn or _decompress

    def bytes(self) -> int:
        """Return how many bytes the compressed tensors take."""
        rows = [item for item in self._items if isinstance(item, _Compressed)]
        return sum(tensor.nbytes for row in rows for tensor, _ in row.tensors)

    def _kept(self, item: Rows) -> Rows:
        try:
            description, tensors = describe((item,), only_exact=True)
        except UsageError:  # of classes that would not come back
            return item
        compressed = []
        for tensor in tensors:
            facts = TensorFacts(
                type="tensor", shape=tensor.shape, dtype=tensor.dtype, device=tensor.device
            )
            compressed.append((self.compression_fn(tensor), facts))
        return _Compressed(description, compressed)

    def _rows(self, numbers: Iterable[int]) -> list[Rows]:
        return [
            self._whole(row) if isinstance(row, _Compressed) else row
            for row in super()._rows(numbers)
        ]

    def _whole(self, row: _Compressed) -> Rows:
        tensors = [self.decompression_fn(*compressed) for compressed in row.tensors]
        return restore(row.description, tensors)[0]

    def _compress(self, tensor: torch.Tensor) -> torch.Tensor:
        content = bytes_of(tensor.cpu()).data
        packed = zstandard.ZstdCompressor(self.compression_level).compress(content)
        return torch.frombuffer(bytearray(packed), dtype=torch.uint8)


def _decompress(compressed: torch.Tensor, facts: TensorFacts) -> torch.Tensor:
    content = zstandard.ZstdDecompressor().decompress(compressed.numpy().data)
    bits = torch.from_numpy(np.frombuffer(bytearray(content), np.uint8))
    return bits.view(facts["dtype"]).view(facts["shape"]).to(facts["device"])
