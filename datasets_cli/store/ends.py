"""Reading the first and the last row of a dataset, as opening it does but without torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from datasets_cli.schema.mapped_bytes import TrajectoryTable, map_array
from datasets_cli.schema.trajectory_file import FILENAME as TRAJECTORIES
from datasets_cli.store.layouts.frames import FrameReader
from datasets_cli.store.layouts.records import ROW_MAP, Record, check_rows, row_map_dtype
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.text_rows import TextRows


def read_ends(folder: Path, manifest: Manifest, record: Record) -> None:
    """Read what says where things are, and by it the text and frames of the outer rows."""
    # The digests vouch for every byte. Numbers are any bytes; offsets may be written wrong.
    num_rows, files = manifest.num_transitions, manifest.files
    TrajectoryTable(f"{folder}/{TRAJECTORIES}", num_rows, manifest.num_trajectories).read()
    rows = np.array([0, num_rows - 1])
    if manifest.texts:
        TextRows(folder, manifest.texts, files, num_rows).gather(rows)
    if manifest.layout != "compact":
        return
    records = map_array(folder / ROW_MAP, row_map_dtype(record.num_records), (num_rows,))[rows]
    check_rows(folder / ROW_MAP, rows.tolist(), records.tolist(), record.num_records - 2)
    for field in record.frames:
        reader = FrameReader.of(field, folder, files, record.num_records)
        reader.read(np.concatenate((records, records + 1)))
