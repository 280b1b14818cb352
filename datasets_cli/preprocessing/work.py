"""The folder of a run: what is done stays there until the new dataset has its name.

<dest's parent>/.<dest's name>.<plan>.partial/    plan.json, data/ at full size, parts/<k>.done,
                                                  text and frames of each part in parts/<k>/;
                                                  closed/, data without the gaps of dropped rows;
                                                  packed/, in the compact layout what is committed;
                                                  request.json where both ends are in the root
<dest's parent>/.<dest's name>.lock               while a process works on the destination

The request says what was asked for, so that another process can ask again. It stands under a root
that others may write into. What is read is checked field by field, and is never a reason to import
or to run something: whoever resumes a run looks up the function by its name and compares its
digest.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets_cli.core.checked_json import JsonForm, decode
from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.parallel.functions import split_function, where_from
from datasets_cli.preprocessing.frames import Frames, begin_frames, bytes_of_one
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.origin import DerivedOrigin
from datasets_cli.preprocessing.pipeline import Pipeline
from datasets_cli.preprocessing.returned import ResultColumns
from datasets_cli.preprocessing.task import Mapped
from datasets_cli.schema.columns import one_file_each
from datasets_cli.sources.disk import allocate, check_free_space, disk_errors
from datasets_cli.sources.new_files import replacing
from datasets_cli.sources.regular_file import read_bounded
from datasets_cli.store.cache_root import check_id, runs_to
from datasets_cli.store.manifest import Digest
from datasets_cli.store.sealed_json import parse

REQUEST = "request.json"
PLAN = "plan.json"
MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Request(JsonForm):
    """What a run was asked for."""

    CLOSED = True

    input: str
    fn: str | Pipeline
    folder: str
    options: PreprocessOptions
    replaces: bool = False

    def save(self, folder: Path) -> None:
        """Write it into the folder of the run, in place of an older one."""
        with replacing(folder / REQUEST) as new:
            new.write_text(json.dumps(self.to_json(), indent=1), encoding="ascii")


def request_of(input: str, function: Mapped, options: PreprocessOptions, replaces: bool) -> Request:
    """Return the request of a run."""
    if isinstance(function, Pipeline):
        return Request(input, function, "", options, replaces)
    fn, folder = where_from(function) or ("", "")
    return Request(input, fn, folder, options, replaces)


def read_request(folder: Path) -> Request:
    """Return the request of the run in a folder, which may hold anything."""
    try:
        document = _read(folder / REQUEST)
        request = decode(Request, document, REQUEST)
        if request.to_json() != document:
            raise UsageError("it is not as a run writes it")
        check_id(request.input)
        if isinstance(request.fn, str) and request.fn:
            split_function(request.fn)
    except UsageError as error:
        raise ValueError(f"{REQUEST}: {error}") from error
    return request


@dataclass(frozen=True)
class _Plan:
    """What is read of a plan."""

    function: Digest


def read_function_digest(folder: Path) -> str:
    """Return the digest of the function that the run in a folder is of."""
    return decode(_Plan, _read(folder / PLAN), PLAN).function


def _read(path: Path) -> dict[str, Any]:
    try:
        return parse(read_bounded(path, MAX_BYTES))
    except (OSError, DamagedDataset) as error:
        raise ValueError(f"{path.name} cannot be read ({error})") from error
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def result_bytes(columns: ResultColumns, num_rows: int, first_frames: Frames) -> int:
    """Return about how many bytes so many rows take, without text; packed ones take fewer."""
    sizes = [column.row_bytes for column in columns.leaves]
    sizes += [bytes_of_one(field, first_frames[field.column.key]) for field in columns.frames]
    return num_rows * sum(sizes)


class Work:
    """Where the files of a run are."""

    def __init__(self, dest: Path, plan: bytes, request: Request | None = None) -> None:
        self.dest = dest
        digest = hashlib.sha256(plan).hexdigest()[:16]
        self.folder = dest.parent / f".{dest.name}.{digest}.partial"
        self.data = self.folder / "data"
        self.closed = self.folder / "closed"
        self.packed = self.folder / "packed"
        self._plan = plan
        self._request = request
        # A folder that a caller made, as a temporary one, goes with its name: no later call could
        # find what stays beside it.
        self._is_kept = not dest.is_dir() or any(dest.iterdir())

    @property
    def kept(self) -> str:
        """A sentence that says what a run that breaks leaves."""
        if self._is_kept:
            return f"What is done is kept in {self.folder}; the same call continues from there."
        return f"Nothing of it is kept, because the folder {self.dest} was there before."

    def mark(self, number: int) -> Path:
        """Return the file that says that a task is done."""
        return self.folder / "parts" / f"{number}.done"

    def part(self, number: int) -> Path:
        """Return the folder for the text and the frames of a task's rows."""
        return self.folder / "parts" / str(number)

    def prepare(
        self, columns: ResultColumns, num_rows: int, first_frames: Callable[[], Frames]
    ) -> None:
        """Make the folder, or keep that of a killed run of the same plan; sweep those of others."""
        # Exactly those of this destination: the lock of out does not protect those of out.v2.
        for other in runs_to(self.dest):
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)
        plan = self.folder / PLAN
        if plan.is_file() and plan.read_bytes() == self._plan:
            self._save_request()  # the function may be in another folder by now
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        frames = first_frames()
        total = result_bytes(columns, num_rows, frames)
        # What is packed is written beside what it is made of.
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
            self._save_request()
            plan.write_bytes(self._plan)

    def _save_request(self) -> None:
        if self._request is not None:
            self._request.save(self.folder)

    def sweep_what_is_of_no_use(self) -> None:
        """Delete the folder of a run that failed, unless a later call can continue there."""
        if not self._is_kept or not any(self.folder.glob("parts/*.done")):
            shutil.rmtree(self.folder, ignore_errors=True)


def make_plan(origin: DerivedOrigin, columns: ResultColumns) -> bytes:
    """Return what decides the bytes of the result, as JSON."""
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
