"""Reads and writes one Parquet file: one row for each step, vectors as lists of a fixed size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets_cli.core.progress import Progress, Rows
from datasets_cli.exchange.flat import flat_names, key_runs, lost_columns
from datasets_cli.exchange.format import ColumnMap, Recognised
from datasets_cli.exchange.steps import StepColumns
from datasets_cli.schema.columns import rows_per_block, show_key
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.manifest import Manifest

MAGIC = b"PAR1"
BUFFER_BYTES = 1 << 20
"""The read buffer of a column; without it pyarrow reads a whole row group, or the file."""


def recognise(path: Path) -> Recognised | None:
    if path.is_dir() or not (path.suffix == ".parquet" or _has_magic(path)):
        return None
    from datasets_cli.exchange import arrow_table

    with arrow_table.damage(path.name):
        return arrow_table.recognise_table(_opened(path)[1])


def blocks(path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
    from datasets_cli.exchange import arrow_table

    with arrow_table.damage(path.name):
        file, schema, step = _opened(path)

    def batches(names: list[str]) -> Any:
        # A name with a dot may also select other columns, which are ignored.
        return file.iter_batches(step, columns=names)

    return arrow_table.table_steps(columns, schema, batches, path.name)


def losses(manifest: Manifest) -> list[str]:
    from datasets_cli.exchange.arrow_table import storable

    lost = (each for each in manifest.all_columns if not storable(each))
    why = "and the column is left out"
    return [
        *(f"{show_key(c.key)}: Arrow has no {c.dtype} {list(c.shape)}, {why}" for c in lost),
        *lost_columns(manifest),
    ]


def write(dataset: DatasetArrays, path: Path, progress: Progress, out: Path) -> str:
    """Write a file with one row group for each run of rows; see ``Format``."""
    import pyarrow.parquet as pq

    from datasets_cli.exchange import arrow_table

    manifest = dataset.manifest
    stored = {each.key: each for each in manifest.all_columns if arrow_table.storable(each)}
    names = {name: key for key, name in flat_names(manifest).items() if key in stored}
    schema = arrow_table.schema_of(
        {name: stored[key] for name, key in names.items()}, manifest.metadata
    )
    # Only text has dictionaries: numbers rarely repeat, and their dictionaries are slow.
    depths = {each.key: len(each.shape) for each in manifest.texts}
    texts = {name: depths[key] for name, key in names.items() if key in depths}
    paths = [f"{name}{'.list.element' * depth}" for name, depth in texts.items()]
    with pq.ParquetWriter(path, schema, use_dictionary=paths or False) as writer:
        num_rows = 0
        for run in key_runs(dataset, names.values()):
            batch = arrow_table.batch_of(run, names, schema)
            writer.write_batch(batch, row_group_size=batch.num_rows)
            num_rows += batch.num_rows
            progress(Rows(dataset.id, num_rows, len(dataset)))
    return f"pandas.read_parquet({str(out)!r})"


def _has_magic(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _opened(path: Path) -> tuple[Any, Any, int]:
    """Return a file, its schema and the number of its rows to read at once."""
    from datasets_cli.formats.arrow import open_parquet_file, row_bytes, rows_at_once
    from datasets_cli.formats.limits import check_limit

    file, schema = open_parquet_file(path, buffer_size=BUFFER_BYTES, pre_buffer=False)
    check_limit("rows", file.metadata.num_rows, path.name)
    return file, schema, min(rows_at_once(file), rows_per_block(row_bytes(file)))
