"""Batches on a GPU: their values, what is waited for, page-locked memory, streams and room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    LazyTensorStorage,
    RandomSampler,
    SliceSampler,
    TensorDictReplayBuffer,
    open_storage,
)
from datasets_cli.errors import UsageError
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from tests.device import needs_gpu
from tests.store.test_compact import pixel_rows, transitions, write

pytestmark = needs_gpu
CASES = [
    (kind, rows, num_slices)
    for kind in (TedWriter, CompactWriter)
    for rows in (pixel_rows([40, 30]), transitions([200, 90], 0))
    for num_slices in (0, 4)
]


def buffer(folder: Path, num_slices: int, prefetch: int | None = None, **options: Any) -> Any:
    storage = open_storage(folder, **options)
    sampler: Any = SliceSampler(num_slices=num_slices) if num_slices else RandomSampler()
    return TensorDictReplayBuffer(
        storage=storage, sampler=sampler, batch_size=32, seed=0, prefetch=prefetch
    )


@contextmanager
def no_waiting() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def check_same(batch: Any, right: Any) -> None:
    ours = {key: leaf.cpu() for key, leaf in batch.items(True, True)}
    torch.testing.assert_close(ours, dict(right.items(True, True)), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("kind", "rows", "num_slices"), CASES)
@pytest.mark.parametrize("options", [{}, {"pin_memory": True}, {"contiguous": True}])
def test_batches_are_those_of_the_cpu_and_nothing_is_waited_for(
    tmp_path: Path, kind: Any, rows: Any, num_slices: int, options: Any
) -> None:
    write(kind, tmp_path, rows)
    ours = buffer(tmp_path, num_slices, device="cuda", **options)
    theirs = buffer(tmp_path, num_slices)
    check_same(ours.sample(), theirs.sample())
    with no_waiting():
        batches = [ours.sample() for _ in range(3)]
    for batch in batches:
        assert all(leaf.is_cuda for leaf in batch.values(True, True))
        check_same(batch, theirs.sample())


@pytest.mark.parametrize(("kind", "rows", "num_slices"), CASES)
@pytest.mark.parametrize("contiguous", [True, False])
def test_without_a_device_every_leaf_is_in_page_locked_memory(
    tmp_path: Path, kind: Any, rows: Any, num_slices: int, contiguous: bool
) -> None:
    write(kind, tmp_path, rows)
    batch = buffer(tmp_path, num_slices, pin_memory=True, contiguous=contiguous).sample()
    for key, leaf in batch.items(True, True):
        assert leaf.is_pinned(), key
        assert leaf.is_contiguous() or not contiguous, key
    check_same(batch, buffer(tmp_path, num_slices).sample())


@pytest.mark.parametrize(("kind", "rows", "num_slices"), CASES)
@pytest.mark.parametrize("options", [{}, {"pin_memory": True}])
def test_prefetched_batches_hold_while_the_learner_is_busy(
    tmp_path: Path, kind: Any, rows: Any, num_slices: int, options: Any
) -> None:
    write(kind, tmp_path, rows)
    ours, theirs = (
        buffer(tmp_path, num_slices, 3, device="cuda", **options),
        buffer(tmp_path, num_slices),
    )
    work = torch.rand(2000, 2000, device="cuda")
    kept = []
    for _ in range(20):
        batch = ours.sample()
        work = (work @ work).clamp(0, 1)  # the caller's stream is behind all the time
        kept.append(batch.apply(torch.clone))
        del batch  # its memory may be given out again
    for batch in kept:
        check_same(batch, theirs.sample())


def test_rows_that_are_written_on_a_device_are_read_there() -> None:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(9, device="cuda"), batch_size=64)
    buffer.extend(TensorDict({"x": torch.arange(14.0)}, [14]))
    batch = buffer.sample()
    assert batch["x"].is_cuda
    held = torch.cat((torch.arange(9.0, 14.0), torch.arange(5.0, 9.0)))
    assert torch.equal(batch["x"].cpu(), held[batch["index"].cpu()])


def test_rows_without_room_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(CompactWriter, tmp_path, transitions([200, 90], 0))
    open_storage(tmp_path, device="cuda")
    kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (-kept + 100, 1 << 40))
    with pytest.raises(UsageError, match="more than the 100 bytes of free memory of cuda"):
        open_storage(tmp_path, device="cuda")
