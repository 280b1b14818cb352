"""Rows that are kept compressed come back as TorchRL's do, and as they were."""

from __future__ import annotations

import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
import zstandard
from tensordict import NonTensorData, TensorDict

from datasets_cli import ReplayBuffer, TensorDictReplayBuffer
from datasets_cli.errors import UsageError
from datasets_cli.torchrl import CompressedListStorage
from tests.support.parity import ours, theirs


def rows(count: int = 6) -> TensorDict:
    images = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1).expand(-1, 40, 40).clone()
    return TensorDict({"obs": images, "next": {"obs": images + 1}, "n": torch.arange(count)}, count)


def packed(tensor: torch.Tensor) -> torch.Tensor:
    return torch.frombuffer(bytearray(zlib.compress(tensor.numpy().tobytes())), dtype=torch.uint8)


def unpacked(content: torch.Tensor, facts: Any) -> torch.Tensor:
    plain = bytearray(zlib.decompress(content.numpy().tobytes()))
    return torch.frombuffer(plain, dtype=facts["dtype"]).reshape(facts["shape"])


@pytest.mark.parametrize(
    "words", [{}, {"compression_fn": packed, "decompression_fn": unpacked}], ids=["zstd", "own"]
)
@pytest.mark.parametrize("data", [rows(), torch.arange(30.0).view(6, 5)], ids=["dicts", "tensors"])
def test_what_is_written_is_read_as_torchrl_reads_it(data: Any, words: Any) -> None:
    buffers = [
        library.ReplayBuffer(storage=library.CompressedListStorage(4, **words), batch_size=50)
        for library in (ours, theirs)
    ]
    for buffer in buffers:
        assert buffer.extend(data).tolist() == [0, 1, 2, 3, 0, 1]
        ring = data[[4, 5, 2, 3]]
        assert bool((buffer[:] == ring).all()) and bool((buffer[2] == data[2]).all())
        batch, info = buffer.sample(return_info=True)
        assert bool((batch == ring[torch.as_tensor(info["index"])]).all())


def test_tensors_take_the_bytes_of_their_compressed_form() -> None:
    storage = CompressedListStorage(9, compression_level=19)
    ReplayBuffer(storage=storage).extend(rows(3))
    leaves = [leaf for row in rows(3).unbind(0) for leaf in row.values(True, True)]
    right = [zstandard.compress(leaf.numpy().tobytes(), 19) for leaf in leaves]
    assert storage.bytes() == sum(map(len, right)) < 3 * 2 * 1600


def test_rows_of_any_kind_come_back_and_no_memory_is_shared(tmp_path: Path) -> None:
    given = torch.ones(2, dtype=torch.bfloat16)
    items = [(given, {"k": torch.zeros(0, 3)}), "text", TensorDict({"t": NonTensorData("x")}, [])]
    buffer = ReplayBuffer(storage=CompressedListStorage(), collate_fn=list, batch_size=3)
    buffer.extend(items)
    given += 1
    for same in (buffer, pickle.loads(pickle.dumps(buffer))):
        (tensor, others), text, named = (same[number] for number in range(3))
        assert tensor.dtype == torch.bfloat16 and tensor.tolist() == [1.0, 1.0]
        assert others["k"].shape == (0, 3) and text == "text" and named["t"] == "x"


def test_a_dump_and_a_state_have_the_rows(tmp_path: Path) -> None:
    buffer = TensorDictReplayBuffer(storage=CompressedListStorage(8), batch_size=2)
    buffer.extend(rows())
    buffer.dumps(tmp_path / "dump")
    by_dump, by_state = (TensorDictReplayBuffer(storage=CompressedListStorage(8)) for _ in "ab")
    by_dump.loads(tmp_path / "dump")
    by_state.load_state_dict(buffer.state_dict())
    for other in (by_dump, by_state):
        assert bool((other[:] == rows()).all()) and other["n"].tolist() == [*range(6)]


@pytest.mark.parametrize(
    "words", [{"compression_level": 23}, {"compression_level": 0}, {"compression_fn": packed}]
)
def test_what_cannot_be_compressed_with_is_refused(words: Any) -> None:
    with pytest.raises(UsageError):
        CompressedListStorage(5, **words)
