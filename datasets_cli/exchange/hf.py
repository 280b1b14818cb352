"""Reads folders of ``save_to_disk`` of Hugging Face's ``datasets``: Arrow streams and a list."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from datasets_cli.errors import SourceError, UsageError, WrongRows
from datasets_cli.exchange.format import ColumnMap, Recognised
from datasets_cli.exchange.steps import StepColumns
from datasets_cli.formats.limits import check_limit
from datasets_cli.schema.columns import rows_per_block
from datasets_cli.sources.regular_file import kind_of, open_regular, read_bounded

LIST, SPLITS = "state.json", "dataset_dict.json"
MOST_LIST_BYTES = 16 << 20


def recognise(path: Path) -> Recognised | None:
    if (path / SPLITS).is_file() and not (path / LIST).exists():
        parts = [each.parent.name for each in sorted(path.glob(f"*/{LIST}"))]
        raise UsageError(
            f"{path} has several datasets: {', '.join(parts)}.",
            argument="path",
            path=path,
            found=parts,
            advice="Import the folder of one of them.",
        )
    if not (path / LIST).is_file():
        return None
    from datasets_cli.exchange import arrow_table

    with arrow_table.damage(path.name):
        return arrow_table.recognise_table(next(_streams(path)).schema)


def blocks(path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
    from datasets_cli.exchange import arrow_table

    with arrow_table.damage(path.name):
        schema = next(_streams(path)).schema

    def batches(names: list[str]) -> Iterable[Any]:
        num_rows = 0
        for stream in _streams(path):
            if stream.schema != schema:
                raise WrongRows(
                    f"{path.name} has files with different columns.",
                    path=path,
                    expected=str(schema),
                    found=str(stream.schema),
                    advice="Write them as one dataset.",
                )
            for batch in stream:
                check_limit("table_bytes", batch.nbytes, f"{path.name}: a batch of rows")
                check_limit("rows", num_rows := num_rows + batch.num_rows, path.name)
                batch.validate(full=True)  # offsets may point out of their arrays
                step = rows_per_block(batch.nbytes // max(1, batch.num_rows))
                yield from (batch.slice(row, step) for row in range(0, batch.num_rows, step))

    return arrow_table.table_steps(columns, schema, batches, path.name)


def _streams(path: Path) -> Iterator[Any]:
    """Yield the files of the list, in its order."""
    import pyarrow as pa

    _check_regular(path / LIST)
    document = json.loads(read_bounded(path / LIST, MOST_LIST_BYTES))
    try:
        names = [str(each["filename"]) for each in document["_data_files"]]
    except (KeyError, TypeError):
        names = []
    if not names or any(Path(name).name != name for name in names):
        raise SourceError(
            f"{path / LIST} lists the files {names}. Expected names of files in the same folder.",
            path=path / LIST,
            expected="names of files in the same folder",
            found=names,
        )
    for name in names:
        _check_regular(path / name)
        with open_regular(path / name) as file:
            yield pa.ipc.open_stream(file)


def _check_regular(path: Path) -> None:
    if not stat.S_ISREG(mode := path.lstat().st_mode):
        raise SourceError(
            f"{path} is {kind_of(mode)}. Expected a regular file.",
            path=path,
            expected="a regular file",
            found=kind_of(mode),
            advice="Copy the file there.",
        )
