"""Keeping a replay buffer: in a folder, or in a state beside a model's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.keeping.dump import Hook, plan_dump
from datasets_cli.replay.keeping.dump_folder import BUFFER_PARTS, new_dump
from datasets_cli.replay.keeping.load import plan_load
from datasets_cli.replay.keeping.state import plan_restore, rows_state
from datasets_cli.replay.keeping.write_folder import TensorClass
from datasets_cli.replay.rows.reader import BatchReader
from datasets_cli.replay.rows.row_writer import RowWriter


class Persistence:
    """Dumps and states of a replay buffer; ``ReplayBuffer`` says what they hold."""

    def __init__(self, reader: BatchReader, row_writer: RowWriter) -> None:
        self._reader = reader
        self._row_writer = row_writer
        self.save_hooks: list[Hook] = []
        self.load_hooks: list[Hook] = []

    def dump(self, path: str | Path) -> None:
        """Write the buffer into a folder; see ``ReplayBuffer.dumps``."""
        with self._reader.lock:
            write = plan_dump(self._reader, self._row_writer.writer, self.save_hooks)
            with new_dump(Path(path), BUFFER_PARTS.__contains__) as folder:
                write(folder)

    def write(self, folder: Path) -> None:
        """Write the buffer into a new folder, which is a part of another dump."""
        with self._reader.lock:
            plan_dump(self._reader, self._row_writer.writer, self.save_hooks)(folder)

    def plan_load(self, path: str | Path, tensorclass: TensorClass = None) -> Callable[[], None]:
        """Return what does as ``ReplayBuffer.loads``; all that may be refused is refused here."""
        # Who calls it has the reader's lock, until the plan was carried out.
        return plan_load(self._reader, self._row_writer.writer, path, self.load_hooks, tensorclass)

    def state(self) -> StateDict:
        """Return the state of the buffer; see ``ReplayBuffer.state_dict``."""
        with self._reader.lock:
            return self._reader.draw_state() | rows_state(self._reader, self._row_writer.writer)

    def plan_restore(self, state: StateDict, tensorclass: TensorClass = None) -> Callable[[], None]:
        """Return what does as ``load_state_dict``; all that may be refused is refused here."""
        return plan_restore(self._reader, self._row_writer.writer, state, tensorclass)
