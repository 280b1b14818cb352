"""Reads and writes Minari's folders: one HDF5 group for each episode, with T + 1 observations."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from datasets_cli.catalogue.entries import load_recipe
from datasets_cli.core.progress import Progress, Rows
from datasets_cli.errors import NoRewards, UnknownKey, UsageError, WrongRows, argument
from datasets_cli.exchange.flat import COMPUTED, FLAGS, key_runs
from datasets_cli.exchange.format import (
    ColumnMap,
    Recognised,
    recognise_source,
    source_blocks,
)
from datasets_cli.exchange.steps import StepColumns
from datasets_cli.formats.hdf5_columns import as_bytes, new_hdf5
from datasets_cli.formats.limits import read_json_file
from datasets_cli.install.fetch import Folder
from datasets_cli.recipe import Source
from datasets_cli.schema.columns import (
    EPISODE,
    NUMPY_TYPES,
    REWARD,
    Key,
    show_key,
    successor_of,
)
from datasets_cli.schema.texts import TEXT, AnyColumn, is_text
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.manifest import Manifest

METADATA = "metadata.json"
DATA = "main_data.hdf5"
ROOTS = {"observation": "observations", "action": "actions", "info": "infos"}
NUMBERS = dict(zip((REWARD, *FLAGS), ("rewards", "terminations", "truncations"), strict=True))
UNNAMEABLE = re.compile(r"\.{1,2}|_index_\d+|.*[/\0].*", re.DOTALL)
"""Names with another meaning in HDF5 or in Minari."""
COLUMNS_OF_INFOS = "rlds_columns"
"""The field of ``metadata.json`` with the columns outside ``info`` that are stored as infos."""
LISTS = ("author", "author_email", "requirements", "combined_datasets")


class _Array(NamedTuple):
    """An array of every episode, with ``T + 1`` rows if it has a successor."""

    key: Key
    path: str
    dtype: str
    shape: tuple[int, ...]
    successor: Key | None = None


def recognise(path: Path) -> Recognised | None:
    """Return the columns of a folder, read from its first steps; see ``Format``."""
    if (source := _source(path)) is None:
        return None
    found = recognise_source(path, "minari", source, METADATA, "each episode is a group")
    moved = found.info.get(COLUMNS_OF_INFOS, [])
    infos = {f"info.{key}": key for key in moved} if isinstance(moved, list) else {}
    info = {name: value for name, value in found.info.items() if name != COLUMNS_OF_INFOS}
    return replace(found, map={infos.get(name, name): name for name in found.columns}, info=info)


def blocks(path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
    source = _source(path)
    assert source is not None, "it was recognised"
    ends = "the groups of Minari's files are the episodes"
    return source_blocks(path, "minari", source, columns, ends)


def _source(path: Path) -> Source | None:
    """Return the files of one of Minari's folders or of its parent; None for other folders."""
    folder = path / "data" if (path / "data" / METADATA).is_file() else path
    has_data = (folder / DATA).is_file() or (folder / "0").is_dir()
    if not (has_data and (folder / METADATA).is_file()):
        return None
    metadata = read_json_file(folder / METADATA)
    has_id = isinstance(metadata, dict) and "dataset_id" in metadata
    name = str(metadata["dataset_id"]) if has_id else path.name
    recipe = load_recipe("minari")
    if recipe.resources_at is not None:
        recipe.resources_at(
            name, Folder(folder, path.name)
        )  # checks the optional dependency that reads the files
    files = {each.relative_to(folder).as_posix(): each for each in folder.rglob("*")}
    return Source(name, {name: file for name, file in files.items() if file.is_file()})


def losses(manifest: Manifest) -> list[str]:
    arrays, lost = _arrays(manifest)
    written, counts = _metadata(manifest, arrays, 0), _counts(manifest, 0)
    stored = ((name, value) for name, value in manifest.metadata.items() if value)
    others = [name for name, value in stored if name not in counts and written.get(name) != value]
    note = (
        [f"metadata of the dataset: {', '.join(others)} (not in Minari's form)"] if others else []
    )
    return [*(f"{show_key(key)}: {why}" for key, why in lost.items()), *note]


def write(dataset: DatasetArrays, path: Path, progress: Progress, out: Path) -> str:
    """Write a folder, run after run of rows; see ``Format``."""
    arrays, lost = _arrays(manifest := dataset.manifest)
    _check_needed(arrays, lost, dataset.id)
    keys = {key for each in arrays for key in (each.key, each.successor) if key}
    starts, first = dataset.starts, 0
    before: StepColumns = {}
    id, folder = _local_id(out.resolve()), path if out.name == "data" else path / "data"
    folder.mkdir(parents=True)
    with new_hdf5(folder / DATA) as (file, disk):
        for run in key_runs(dataset, keys):
            stop = first + len(run[REWARD])
            here = range(*np.searchsorted(starts, (first + 1, stop)) - (1, 0))
            _check_chains(arrays, run, before, starts[here] - first, first)
            before = {key: rows[-1:] for key, rows in run.items()}
            run |= {key: as_bytes(key, rows) for key, rows in run.items() if is_text(rows)}
            for number in here:
                _write_steps(file, number, arrays, run, starts, first)
            disk.check()
            first = stop
            progress(Rows(dataset.id, stop, len(dataset)))
    text, size = "", (folder / DATA).stat().st_size
    for _ in range(2):  # the size includes this document
        document = _metadata(manifest, arrays, size + len(text))
        text = json.dumps(document | ({"dataset_id": id} if id else {}))
    (folder / METADATA).write_text(text, encoding="utf-8")
    where = out / folder.relative_to(path)
    return f"minari.load_dataset({id!r})" if id else f"minari.MinariDataset({str(where)!r})"


def _local_id(out: Path) -> str:
    """Return Minari's id of a folder, its path below Minari's root; empty outside the root."""
    place = os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets"
    root, folder = Path(place).expanduser().resolve(), out.parent if out.name == "data" else out
    if folder == root or not folder.is_relative_to(root):
        return ""
    id = folder.relative_to(root).as_posix()
    if not re.fullmatch(r"[-\w/]+-v\d+", id):
        raise UsageError(
            f"{argument('path')} {out} would be Minari's dataset {id}. Expected an id that ends in "
            "a version, such as mine/walk-v0.",
            argument="path",
            path=out,
            expected="an id that ends in a version",
            found=id,
            advice="Choose another folder.",
        )
    return id


def _write_steps(
    file: h5py.File, number: int, arrays: list[_Array], run: StepColumns, starts: Any, first: int
) -> None:
    """Write the rows of one episode in a run; the first row of the run has the number ``first``."""
    # rows of the dataset        start ........ stop      the episode
    #                    first ........ first + n         the run
    #                            begin .. end             the written rows
    start, stop = (int(row) for row in starts[number : number + 2])
    begin, end = max(start, first), min(stop, first + len(run[REWARD]))
    group = file.require_group(f"episode_{number}")
    if is_new := begin == start:
        group.attrs.update({"id": number, "total_steps": stop - start})
        group.create_group("infos")
    for array in arrays:
        rows = run[array.key][begin - first : end - first].reshape(end - begin, *array.shape)
        if array.successor and end == stop:
            rows = np.concatenate([rows, run[array.successor][end - first - 1 : end - first]])
        shape = (stop - start + bool(array.successor), *array.shape)
        dtype = h5py.string_dtype() if array.dtype == TEXT else array.dtype
        data = group.create_dataset(array.path, shape, dtype) if is_new else group[array.path]
        if rows.size:
            data[begin - start : begin - start + len(rows)] = rows


def _check_chains(
    arrays: list[_Array], run: StepColumns, before: StepColumns, begins: np.ndarray, first: int
) -> None:
    """Check that each row equals the successor of the row before it in the same trajectory."""
    # begins: the positions in the run of the first rows of trajectories.
    for array in arrays:
        if array.successor is None:
            continue
        rows, following = run[array.key], run[array.successor]
        expected = np.concatenate([before.get(array.successor, following[:1]), following[:-1]])
        differs = (_bits(expected) != _bits(rows)).any(1)
        differs[begins[begins >= 0]] = False
        if (wrong := np.flatnonzero(differs)).size:
            row = first + int(wrong[0])
            raise WrongRows(
                f"Row {row:,}: {show_key(array.key)} differs from {show_key(array.successor)} of "
                f"row {row - 1:,} in the same trajectory. Minari stores the two as one.",
                key=array.key,
                row=row,
                advice="Choose a format that stores both.",
            )


def _bits(rows: np.ndarray) -> np.ndarray:
    """Return rows ``[n, ...]`` as bytes ``[n, m]`` (text as text), to compare NaN and -0.0."""
    flat = np.ascontiguousarray(rows.reshape(len(rows), -1))
    return flat if rows.dtype == object or not rows.size else flat.view(np.uint8)


def _arrays(manifest: Manifest) -> tuple[list[_Array], dict[Key, str]]:
    """Return the arrays of an episode, and the reason for each omitted column."""
    columns = {each.key: each for each in manifest.all_columns}
    forms = {key: (each.dtype, each.shape) for key, each in columns.items()}
    arrays, lost = [], {}
    for key, column in columns.items():
        following = successor_of(key) if forms.get(successor_of(key)) == forms[key] else None
        is_successor = key[:2] in (("next", "observation"), ("next", "info"))
        if key in COMPUTED or key == EPISODE or (is_successor and forms.get(key[1:]) == forms[key]):
            continue  # the array of the steps contains the successors
        if why := _problem(key, column, following, columns):
            lost[key] = why
        elif key in NUMBERS:
            arrays.append(_Array(key, NUMBERS[key], column.dtype, ()))
        else:
            root, *below = ("info", *key) if _is_moved(key) else key
            path = "/".join((ROOTS[root], *below))
            following = None if _is_moved(key) else following
            arrays.append(_Array(key, path, column.dtype, column.shape, following))
    return arrays, lost


def _is_moved(key: Key) -> bool:
    """Return whether a column is outside Minari's arrays, and is stored as an info."""
    return key[0] not in (*ROOTS, "next")


def _problem(key: Key, column: AnyColumn, following: Key | None, others: Collection[Key]) -> str:
    """Return the reason why a column cannot be an array of an episode; empty if it can."""
    dtype, shape, root = column.dtype, column.shape, key[0]
    has_space = not dtype.startswith("complex") and (dtype != TEXT or not shape)
    is_moved, infos = _is_moved(key), [other[1:] for other in others if other[0] == "info"]
    problems = {
        "Minari cannot store it": root == "next" and key not in NUMBERS,
        "an info has its name": is_moved
        and any(each[: len(key)] == key[: len(each)] for each in infos),
        "one of its names has a dot": is_moved and "." in "".join(key),
        "Minari needs a name for an info": key == ("info",),
        "one of its names has another meaning in Minari": any(map(UNNAMEABLE.fullmatch, key)),
        f"numpy has no {dtype}": dtype != TEXT and dtype not in NUMPY_TYPES,
        f"Minari has no space of {dtype} {list(shape)}": root in ("observation", "action")
        and not has_space,
        "it is not one number for each step": key in NUMBERS and shape not in ((), (1,)),
        "its successor is unknown": root == "observation" and not following,
    }
    return next((why for why, holds in problems.items() if holds), "")


def _check_needed(arrays: list[_Array], lost: Mapping[Key, str], id: str) -> None:
    for needed in (("observation",), ("action",), *NUMBERS):
        if not any(each.key[: len(needed)] == needed for each in arrays):
            why = next((why for key, why in lost.items() if key[: len(needed)] == needed), "")
            kind = NoRewards if needed == REWARD else UnknownKey
            raise kind(
                f"{id} cannot be a Minari dataset, which needs {show_key(needed)}: "
                f"{why or 'the column is missing'}.",
                id=id,
                key=needed,
            )


def _metadata(manifest: Manifest, arrays: list[_Array], size_bytes: int) -> dict[str, Any]:
    document = {
        name: value
        for name, value in manifest.metadata.items()
        if (name not in LISTS or isinstance(value, list))
        and (not name.endswith("env_spec") or '"additional_wrappers"' in str(value))
    }
    for root in ("observation", "action"):
        space = _space({each.key[1:]: each for each in arrays if each.key[0] == root})
        document[f"{root}_space"] = _published_or(document.get(f"{root}_space"), space)
    if moved := [show_key(each.key) for each in arrays if _is_moved(each.key)]:
        document[COLUMNS_OF_INFOS] = moved
    return document | _counts(manifest, size_bytes)


def _counts(manifest: Manifest, size_bytes: int) -> dict[str, Any]:
    name = re.sub(r"[^-\w/]", "-", manifest.id.removeprefix("minari/"))
    return {
        "total_episodes": manifest.num_trajectories,
        "total_steps": manifest.num_transitions,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "dataset_id": name if re.search(r"-v\d+$", name) else f"{name}-v0",
        "minari_version": "0.5.0",  # the oldest version with this form; later versions read it
        "dataset_size": round(size_bytes / 1e6, 1),
    }


def _space(leaves: Mapping[Key, _Array]) -> dict[str, Any]:
    """Return the space of arrays in Minari's form; ``leaves`` are by key below a root."""
    if () not in leaves:
        below: dict[str, dict[Key, _Array]] = {}
        for (name, *rest), each in leaves.items():
            below.setdefault(name, {})[*rest,] = each
        return {"type": "Dict", "subspaces": {name: _space(each) for name, each in below.items()}}
    dtype, shape = leaves[()].dtype, leaves[()].shape
    if dtype == TEXT:  # its characters and its lengths are unknown
        return {"type": "Text", "min_length": 0, "max_length": 1 << 20, "charset": "?"}
    low, high = (False, True) if dtype == "bool" else (-np.inf, np.inf)
    if dtype != "bool" and not dtype.startswith("float"):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    bounds = {name: np.full(shape, x).tolist() for name, x in (("low", low), ("high", high))}
    return {"type": "Box", "dtype": dtype, "shape": list(shape), **bounds}


def _published_or(published: Any, space: dict[str, Any]) -> str:
    """Return the publisher's space, as text, if it fits the arrays; ``space`` otherwise."""
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        if _form(json.loads(published)) == _form(space):
            return str(published)
    return json.dumps(space)


def _form(space: Any) -> Any:
    """Return the names, types and shapes of a space, without bounds."""
    if space["type"] == "Dict":
        return {name: _form(below) for name, below in space["subspaces"].items()}
    if space["type"] == "Discrete":
        return ["Box", "int64", []]
    return [space.get(name) for name in ("type", "dtype", "shape")]
