"""Saving a buffer: in a folder, or as a state beside a model's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from datasets_cli.errors import UsageError
from datasets_cli.replay.buffers.checkpoint import restore_rows, rows_state
from datasets_cli.replay.buffers.dump import Hook, dump
from datasets_cli.replay.buffers.load import load
from datasets_cli.replay.buffers.options import ReadOptions
from datasets_cli.replay.buffers.reader import BatchReader
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.writers import Writer


class SavedBuffer(BatchReader):
    """A reader of batches whose rows can be saved: what is between it and a replay buffer.

    Args:
        storage: see ``ReplayBuffer``, as for the others.
        sampler: how rows are drawn.
        reading: how batches are made.
    """

    writer: Writer

    def __init__(
        self, *, storage: Any, sampler: Sampler | None = None, **reading: Unpack[ReadOptions]
    ) -> None:
        super().__init__(storage=storage, sampler=sampler, **reading)
        self._save_hooks: list[Hook] = []
        self._load_hooks: list[Hook] = []

    def dumps(self, path: str | Path) -> None:
        """Write the rows there are, and where sampler and writer stand, into a folder.

        Raises:
            UsageError: rows are not TensorDicts in a tensor storage.
        """
        with self._lock:
            dump(self, path, self._save_hooks)

    def loads(self, path: str | Path) -> None:
        """Read what ``dumps``, or TorchRL 0.14, wrote, in place of the rows there are.

        In a larger storage the rows of a ring begin with the oldest one.

        Raises:
            ImmutableError: the rows there are are a dataset.
            FileNotFoundError: nothing was written there.
            DamagedDataset: a file is missing or too short.
            UsageError: the storage has no room for the rows.
        """
        with self._lock:
            load(self, path, self._load_hooks)

    save = dump = dumps  # TorchRL's other names
    load = loads

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws, and copies of the rows where these can be written.

        Loaded into an equal buffer, it goes on with the same. A dataset's rows are no part of it.
        """
        with self._lock:
            return self.draw_state() | ({} if self._is_constant else rows_state(self))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` was taken, with the rows that were there.

        Raises:
            UsageError: it is no state of such a buffer, or of a storage of another size.
        """
        if not {"sampler", "generator"} <= state.keys():
            raise UsageError(
                "The state of a buffer has sampler and generator; this one has "
                f"{', '.join(map(str, state)) or 'nothing'}. What TorchRL dumped, loads() reads."
            )
        with self._lock:
            if self._prefetch:
                self._prefetch.drop()
            if "rows" in state:
                restore_rows(self, state)
            self.sampler.load_state_dict(state["sampler"])
            self.generator.set_state(state["generator"])

    def register_save_hook(self, hook: Hook) -> None:
        """Let ``hook`` change the rows that ``dumps`` writes; it takes them and returns others."""
        self._save_hooks.append(hook)

    def register_load_hook(self, hook: Hook) -> None:
        """Let ``hook`` change the rows that ``loads`` read; it takes them and returns others."""
        self._load_hooks.append(hook)
