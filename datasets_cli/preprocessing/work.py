"""The folder of a run: its tasks write there until the new dataset is renamed into place.

<dest's parent>/.<dest's name>.<plan>.partial/    plan.json, data/ at full size, parts/<k>.done,
                                                  text and frames of each part in parts/<k>/;
                                                  closed/, data without the gaps of dropped rows;
                                                  packed/, committed in the compact layout
<dest's parent>/.<dest's name>.lock               while a process works on the destination
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from datasets_cli.preprocessing.frames import Frames, begin_frames, bytes_of_one
from datasets_cli.preprocessing.origin import DerivedOrigin
from datasets_cli.preprocessing.returned import ResultColumns
from datasets_cli.schema.columns import one_file_each
from datasets_cli.sources.disk import allocate, check_free_space, disk_errors
from datasets_cli.store.cache_root import runs_to

PLAN = "plan.json"


def result_bytes(columns: ResultColumns, num_rows: int, first_frames: Frames) -> int:
    """Return the approximate bytes of a number of rows, without text."""
    sizes = [column.row_bytes for column in columns.leaves]
    sizes += [bytes_of_one(field, first_frames[field.column.key]) for field in columns.frames]
    return num_rows * sum(sizes)


class Work:
    """The folder of a run and its files."""

    def __init__(self, dest: Path, plan: bytes) -> None:
        self.dest = dest
        digest = hashlib.sha256(plan).hexdigest()[:16]
        self.folder = dest.parent / f".{dest.name}.{digest}.partial"
        self.data = self.folder / "data"
        self.closed = self.folder / "closed"
        self.packed = self.folder / "packed"
        self._plan = plan
        # A folder that the caller made may be temporary: no later call could find what is beside
        # it.
        self._is_kept = not dest.is_dir() or any(dest.iterdir())

    @property
    def kept(self) -> str:
        """The sentence of error messages about what an interrupted run keeps."""
        if self._is_kept:
            return f"What is done is kept in {self.folder}; the same call continues from there."
        return f"Nothing is kept, because the folder {self.dest} existed before."

    def mark(self, number: int) -> Path:
        """Return the file that marks a task as done."""
        return self.folder / "parts" / f"{number}.done"

    def part(self, number: int) -> Path:
        """Return the folder for the text and the frames of a task's rows."""
        return self.folder / "parts" / str(number)

    def prepare(
        self, columns: ResultColumns, num_rows: int, first_frames: Callable[[], Frames]
    ) -> None:
        """Create the folder, or keep that of a killed run of the same plan; delete other runs."""
        # Only runs of this destination: the lock of out does not protect those of out.v2.
        for other in runs_to(self.dest):
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)
        plan = self.folder / PLAN
        if plan.is_file() and plan.read_bytes() == self._plan:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        frames = first_frames()
        total = result_bytes(columns, num_rows, frames)
        # Packed files are written beside the files that they are made of.
        needed = total if columns.layout == "ted" else 2 * total
        check_free_space(self.dest.parent, needed, str(self.dest))
        with disk_errors(self.folder):
            self.mark(0).parent.mkdir(parents=True)
            if frames:
                begin_frames(self.packed, columns.frames, frames)
            for column in columns.leaves:
                if column.row_bytes:
                    path = self.data / column.filename
                    with one_file_each(path, column.key):
                        path.parent.mkdir(parents=True, exist_ok=True)
                        allocate(path, column.row_bytes * num_rows)
            plan.write_bytes(self._plan)

    def discard_unusable(self) -> None:
        """Delete the folder of a failed run, unless a later call can continue it."""
        if not self._is_kept or not any(self.folder.glob("parts/*.done")):
            shutil.rmtree(self.folder, ignore_errors=True)


def make_plan(origin: DerivedOrigin, columns: ResultColumns) -> bytes:
    """Return everything that decides the bytes of the result, as JSON."""
    plan = {
        "source": origin.parent["content"],
        "function": origin.function.digest,
        "columns": [column.entry(origin.arguments["num_frames"]) for column in columns.numbers],
        "texts": [column.to_json() for column in columns.texts],
        "arguments": origin.arguments,
        "seed": origin.seed,
        "layout": columns.layout,
    }
    return json.dumps(plan).encode()
