"""Dumps and states of a replay buffer.

PATH/buffer.pt    a dump: the state, as ``torch.save`` writes it
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from datasets_cli.errors import RldsError, Unsupported, WrongState
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.batches.reader import BatchReader
from datasets_cli.replay.checkpoint.state import Hook, TensorClass, buffer_state, plan_restore
from datasets_cli.replay.checkpoint.torchrl_folder import SEAL, read_torchrl_folder
from datasets_cli.replay.state_file import read_state_file, write_state_file
from datasets_cli.replay.writing.row_writer import RowWriter

DUMP = "buffer.pt"


class Persistence:
    """Dumps and states of a replay buffer."""

    def __init__(self, reader: BatchReader, row_writer: RowWriter) -> None:
        self._reader = reader
        self._row_writer = row_writer
        self.save_hooks: list[Hook] = []
        self.load_hooks: list[Hook] = []

    def dumps(self, path: str | Path) -> None:
        """Write the state into the file ``buffer.pt`` of a folder.

        It replaces an older dump as a whole. Of a dataset the id and the content are written, not
        the rows. Tensorclasses become TensorDicts.

        Args:
            path: the folder, which is created if it does not exist.

        Raises:
            UsageError: a row is not made of tensors, text, bytes, numbers, bool, None, and lists,
                tuples, dicts and TensorDicts of these.
        """
        write_dump(path, self.dump_state())

    def dump_state(self) -> StateDict:
        """Return the state as ``dumps`` writes it: after the hooks, without torch's generator."""
        with self._reader.lock:
            state = buffer_state(self._reader, self._row_writer.writer, self.save_hooks)
            return state if self._owns_generator() else state | {"generator": None}

    def loads(self, path: str | Path, *, tensorclass: TensorClass = None) -> None:
        """Load a dump of ``dumps``, or of TorchRL 0.14, in place of the rows of the buffer.

        In a larger storage the rows of a ring begin with the oldest one. No code in the folder is
        run, and no class that it names is imported.

        Args:
            path: the folder.
            tensorclass: the class of the loaded rows; TensorDict by default.

        Raises:
            ImmutableError: the dump contains rows, and the rows of this buffer are a dataset.
            MissingFile: the folder does not contain a dump.
            DamagedDataset: a file is damaged or incomplete.
            WrongState: the dump is of another kind of sampler or writer, or of another dataset.
            WrongSize: the storage is too small for the rows.
            UsageError: the rows do not fit the rows of this buffer, or a file contains a pickle.
        """
        with self._row_writer.lock, error_path(path):
            reader = self._reader
            state = read_dump(path)
            if state is None:
                state = read_torchrl_folder(Path(path), reader.storage.ndim, reader.sampler)
            self.plan_load(state, tensorclass)()

    def plan_load(self, state: StateDict, tensorclass: TensorClass = None) -> Callable[[], None]:
        """Return the change that ``loads`` makes; every error is raised here."""
        # The caller holds the lock until the change is made.
        if not self._owns_generator():
            state = state | {"generator": None}
        parts = self._reader, self._row_writer.writer
        return plan_restore(*parts, state, tensorclass, self.load_hooks)

    def _owns_generator(self) -> bool:
        """Return whether dumps contain the generator: torch's own only for a dataset."""
        is_dataset = self._reader.storage.reference() is not None
        return is_dataset or self._reader.generator is not torch.default_generator

    def state_dict(self) -> StateDict:
        """Return the state of the draws, and copies of the rows if the storage is writable.

        A buffer of the same kind that loads it continues with the same batches. Of a dataset the
        state contains the id and the content, not the rows. ``torch.load`` reads with its defaults
        the file that ``torch.save`` writes of it.

        Raises:
            UsageError: a row is not made of tensors, text, bytes, numbers, bool, None, and lists,
                tuples, dicts and TensorDicts of these.
        """
        with self._reader.lock:
            return buffer_state(self._reader, self._row_writer.writer)

    def load_state_dict(self, state: StateDict, *, tensorclass: TensorClass = None) -> None:
        """Continue with the rows and the draws of a state.

        Args:
            state: a result of ``state_dict``.
            tensorclass: the class of the loaded rows; TensorDict by default.

        Raises:
            WrongState: the state is of another kind of sampler or writer, or of another dataset.
            WrongSize: the storage is too small for the rows.
            UsageError: the rows do not fit the rows of this buffer.
        """
        with self._row_writer.lock:
            self.plan_restore(state, tensorclass)()

    def plan_restore(self, state: StateDict, tensorclass: TensorClass = None) -> Callable[[], None]:
        """Return the change that ``load_state_dict`` makes; every error is raised here."""
        return plan_restore(self._reader, self._row_writer.writer, state, tensorclass)

    def register_save_hook(self, hook: Hook) -> None:
        """Apply ``hook`` to the rows that ``dumps`` writes; it takes rows and returns rows.

        Raises:
            Unsupported: the rows are a dataset, whose dumps never contain rows.
        """
        self._check_dumps_rows()
        self.save_hooks.append(hook)

    def register_load_hook(self, hook: Hook) -> None:
        """Apply ``hook`` to the rows that ``loads`` reads; it takes rows and returns rows.

        Raises:
            Unsupported: the rows are a dataset, whose dumps never contain rows.
        """
        self._check_dumps_rows()
        self.load_hooks.append(hook)

    def _check_dumps_rows(self) -> None:
        if dataset := self._reader.storage.reference():
            raise Unsupported(
                f"Dumps of {dataset['id']} contain its id and content, not its rows, so a hook on "
                "the rows would never be called.",
                id=dataset["id"],
                advice="Change the rows by preprocess() or by transforms.",
            )


def write_dump(folder: str | Path, state: StateDict) -> None:
    """Write a state into the folder of a dump."""
    write_state_file(Path(folder) / DUMP, state)
    (Path(folder) / SEAL).unlink(missing_ok=True)  # an older dump of TorchRL's is replaced, too


def read_dump(folder: str | Path) -> StateDict | None:
    """Return the state in the folder of a dump; None if only TorchRL dumped a buffer there."""
    path, seal = Path(folder) / DUMP, Path(folder) / SEAL
    if not os.path.lexists(seal):
        return read_state_file(path)
    if os.path.lexists(path):
        raise WrongState(
            f"{folder} contains two dumps, {DUMP} and one of TorchRL ({SEAL}).",
            path=folder,
            advice="Delete the older of these two files.",
        )
    return None


@contextmanager
def error_path(path: str | Path) -> Iterator[None]:
    """Add the path of a dump to errors that do not name it."""
    try:
        yield
    except RldsError as error:
        if str(path) not in str(error):
            error.prepend(f"{path}: ")
        error.path = error.path or path
        raise
