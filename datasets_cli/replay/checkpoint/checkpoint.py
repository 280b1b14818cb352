"""Keeping a replay buffer: in a folder, or in a state beside a model's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.batches.reader import BatchReader
from datasets_cli.replay.checkpoint.dump import Hook, plan_dump
from datasets_cli.replay.checkpoint.dump_folder import BUFFER_PARTS, new_dump
from datasets_cli.replay.checkpoint.load import plan_load
from datasets_cli.replay.checkpoint.state import plan_restore, rows_state
from datasets_cli.replay.checkpoint.write_folder import TensorClass
from datasets_cli.replay.writing.row_writer import RowWriter


class Persistence:
    """Dumps and states of a replay buffer."""

    def __init__(self, reader: BatchReader, row_writer: RowWriter) -> None:
        self._reader = reader
        self._row_writer = row_writer
        self.save_hooks: list[Hook] = []
        self.load_hooks: list[Hook] = []

    def dumps(self, path: str | Path) -> None:
        """Write the rows there are, and where sampler and writer stand, into a folder.

        Of a dataset its id and content are written, and no rows. Tensorclasses become TensorDicts.

        Raises:
            UsageError: rows are neither TensorDicts nor tensors in lists, tuples and dicts; or
                TensorDicts with an entry that is neither a tensor nor text, bytes, a number, bool,
                None, or lists, tuples and dicts of these.
        """
        with self._reader.lock:
            write = plan_dump(self._reader, self._row_writer.writer, self.save_hooks)
            with new_dump(Path(path), BUFFER_PARTS.__contains__) as folder:
                write(folder)

    def write(self, folder: Path) -> None:
        """Write the buffer into a new folder, which is a part of another dump."""
        with self._reader.lock:
            plan_dump(self._reader, self._row_writer.writer, self.save_hooks)(folder)

    def loads(self, path: str | Path, *, tensorclass: TensorClass = None) -> None:
        """Read what ``dumps``, or TorchRL 0.14, wrote, in place of the rows there are.

        In a larger storage the rows of a ring begin with the oldest one. Nothing that the folder
        names is imported, and nothing in it is run.

        Args:
            path: the folder.
            tensorclass: the class that rows become; they are TensorDicts by default.

        Raises:
            ImmutableError: rows were dumped, and those there are are a dataset.
            MissingFile: nothing was written there.
            DamagedDataset: a file is missing, too short, or not what it should be.
            UsageError: the storage has no room for the rows, or another kind of sampler or another
                dataset was dumped, or something in the folder is pickled.
        """
        with self._row_writer.lock:
            self.plan_load(path, tensorclass)()

    def plan_load(self, path: str | Path, tensorclass: TensorClass = None) -> Callable[[], None]:
        """Return what does as ``loads``; all that may be refused is refused here."""
        # Who calls it has the reader's lock, until the plan was carried out.
        return plan_load(self._reader, self._row_writer.writer, path, self.load_hooks, tensorclass)

    def state_dict(self) -> StateDict:
        """Return the state of the draws, and copies of the rows where these can be written.

        Loaded into an equal buffer, it continues with the same. Of a dataset it has the id and the
        content, and no rows. ``torch.load`` takes what ``torch.save`` wrote of it, by default.

        Raises:
            UsageError: a row has something else than tensors, text, bytes, numbers, bool, None, and
                lists, tuples, dicts and TensorDicts of these.
        """
        with self._reader.lock:
            return self._reader.draw_state() | rows_state(self._reader, self._row_writer.writer)

    def load_state_dict(self, state: StateDict, *, tensorclass: TensorClass = None) -> None:
        """Continue where ``state`` was taken, with the rows that were there.

        Args:
            state: what ``state_dict`` returned.
            tensorclass: the class that rows become, where they were of one.

        Raises:
            UsageError: it is not a state of such a buffer, or of a storage of another size, or of
                another dataset.
        """
        with self._row_writer.lock:
            self.plan_restore(state, tensorclass)()

    def plan_restore(self, state: StateDict, tensorclass: TensorClass = None) -> Callable[[], None]:
        """Return what does as ``load_state_dict``; all that may be refused is refused here."""
        return plan_restore(self._reader, self._row_writer.writer, state, tensorclass)

    def register_save_hook(self, hook: Hook) -> None:
        """Let ``hook`` change the rows that ``dumps`` writes; it takes them and returns others.

        Raises:
            UsageError: the rows are a dataset, of which no row is ever dumped.
        """
        self._check_dumps_rows()
        self.save_hooks.append(hook)

    def register_load_hook(self, hook: Hook) -> None:
        """Let ``hook`` change the rows that ``loads`` read; it takes them and returns others.

        Raises:
            UsageError: as ``register_save_hook``.
        """
        self._check_dumps_rows()
        self.load_hooks.append(hook)

    def _check_dumps_rows(self) -> None:
        """Check that a dump has the rows, and not the name of their dataset."""
        if dataset := self._reader.storage.reference():
            raise UsageError(
                "A hook changes the rows of a dump, and would never be called here: of "
                f"{dataset['id']} the id and the content are dumped. preprocess() and transforms "
                "change its rows."
            )
