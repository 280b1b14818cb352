"""Reads folders of TensorFlow Datasets in Google's RLDS format, by the recipe ``tfds``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from datasets_cli.errors import UsageError
from datasets_cli.exchange.format import (
    ColumnMap,
    Recognised,
    recognise_source,
    source_blocks,
)
from datasets_cli.exchange.steps import StepColumns
from datasets_cli.recipe import Source

FAMILY = "tfds"
FEATURES, DATASET_INFO = "features.json", "dataset_info.json"
ENDS = "each record of the files is an episode"


def recognise(path: Path) -> Recognised | None:
    """Return the columns of a folder, all of whose records are checked; see ``Format``."""
    if (source := _source(path)) is None:
        return None
    return recognise_source(path, FAMILY, source, DATASET_INFO, ENDS)


def blocks(path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
    source = _source(path)
    assert source is not None, "it was recognised"
    return source_blocks(path, FAMILY, source, columns, ENDS)


def _source(path: Path) -> Source | None:
    """Return the files of a folder of one version, or of its parent; None for other folders."""
    if path.is_file():
        is_part = ".tfrecord" in path.name or path.name in (FEATURES, DATASET_INFO)
        if is_part and _is_dataset(path.parent):
            raise UsageError(
                f"{path} is one file of a dataset of TensorFlow Datasets; expected its folder.",
                argument="path",
                path=path,
                expected="a folder",
                advice=f"Import the folder {path.parent}.",
            )
        return None
    versions = [path] if _is_dataset(path) else sorted(filter(_is_dataset, path.glob("*/")))
    if len(versions) > 1:
        raise UsageError(
            f"{path} contains {len(versions)} versions of a dataset of TensorFlow Datasets: "
            f"{', '.join(each.name for each in versions)}.",
            argument="path",
            path=path,
            expected="one version",
            found=[each.name for each in versions],
            advice=f"Import one of them, such as {versions[-1]}.",
        )
    if not versions:
        return None
    # Without the folder's name, which may be that of RL Unplugged's files in their own form.
    return Source("", {each.name: each for each in versions[0].iterdir() if each.is_file()})


def _is_dataset(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (FEATURES, DATASET_INFO))
