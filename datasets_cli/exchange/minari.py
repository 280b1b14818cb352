"""Minari's folders: a group of HDF5 an episode, with the observation after its last step."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from datasets_cli.catalogue.registry import load_recipe
from datasets_cli.core.progress import Progress
from datasets_cli.errors import UsageError, argument
from datasets_cli.exchange.flat import FLAGS, MADE_AGAIN, key_runs
from datasets_cli.exchange.format import ColumnMap, Recognised
from datasets_cli.exchange.hdf5_columns import as_bytes, described, new_hdf5
from datasets_cli.exchange.mapping import ENDS
from datasets_cli.exchange.steps import StepColumns
from datasets_cli.formats.limits import read_json_file
from datasets_cli.install.fetch import Folder, read_blocks, source_errors
from datasets_cli.recipe import Source
from datasets_cli.schema.columns import EPISODE, REWARD, TRAJECTORY_END, Key, show_key, successor_of
from datasets_cli.schema.element_types import NUMPY_TYPES
from datasets_cli.schema.texts import TEXT, AnyColumn, as_text, is_text
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.manifest import Manifest

METADATA = "metadata.json"
DATA = "main_data.hdf5"
MOST_INFO_BYTES = 100_000
ROOTS = {"observation": "observations", "action": "actions", "info": "infos"}
NUMBERS = dict(zip((REWARD, *FLAGS), ("rewards", "terminations", "truncations"), strict=True))
UNNAMEABLE = re.compile(r"\.{1,2}|_index_\d+|.*[/\0].*", re.DOTALL)
"""Names that mean something else in HDF5, or to Minari."""
LISTS = ("author", "author_email", "requirements", "combined_datasets")


class _Array(NamedTuple):
    """An array that every episode has; of ``T + 1`` rows where it has a successor."""

    key: Key
    path: str
    dtype: str
    shape: tuple[int, ...]
    successor: Key | None = None


def recognise(path: Path) -> Recognised | None:
    """Return what a folder holds, from its first steps; see ``Format``."""
    if (source := _source(path)) is None:
        return None
    recipe = load_recipe("minari")
    with source_errors(path.name):
        told = recipe.describe(source)
        first = next(recipe.blocks(source), None)
    if first is None:
        raise UsageError(f"{path.name} has no step. Expected one episode or more.")
    said = told.metadata
    large = {key for key, value in said.items() if len(json.dumps(value)) > MOST_INFO_BYTES}
    names = [*map(show_key, first.columns)]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UsageError(
            f"{path.name} has two columns that are {twice} by their names. Rename one."
        )
    columns = {show_key(key): described(rows) for key, rows in first.columns.items()}
    del columns[show_key(TRAJECTORY_END)]
    return Recognised(
        columns,
        {name: name for name in columns},
        {f"{key} of {METADATA}": f"it has over {MOST_INFO_BYTES:,} bytes" for key in large},
        {key: value for key, value in said.items() if key not in large},
        "each episode is a group of its own",
        told.notes,
    )


def blocks(path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
    """Yield all steps; see ``Format``."""
    if told := [key for key in ENDS if key in columns]:
        raise UsageError(
            f"{argument('map')} {told[0]}: Minari's files say where episodes end. Leave it out."
        )
    source = _source(path)
    assert source is not None, "it was recognised"
    for block in read_blocks(path.name, load_recipe("minari").blocks(source)):
        names = {show_key(key): key for key in block.columns}
        steps = {TRAJECTORY_END: block.columns[TRAJECTORY_END]}
        for name, theirs in columns.items():
            key, rows = names.get(name, tuple(name.split("."))), block.columns[names[theirs]]
            steps[key] = as_text(key, rows) if is_text(rows) else rows
        yield steps


def _source(path: Path) -> Source | None:
    """Return the files of a folder of Minari's, or of the one above; None for any other."""
    folder = path / "data" if (path / "data" / METADATA).is_file() else path
    has_data = (folder / DATA).is_file() or (folder / "0").is_dir()
    if not (has_data and (folder / METADATA).is_file()):
        return None
    said = read_json_file(folder / METADATA)
    name = str(said.get("dataset_id", path.name)) if isinstance(said, dict) else path.name
    recipe = load_recipe("minari")
    if recipe.resources_at is not None:
        recipe.resources_at(name, Folder(folder, path.name))  # which checks what reads its form
    files = {each.relative_to(folder).as_posix(): each for each in folder.rglob("*")}
    return Source(name, {name: file for name, file in files.items() if file.is_file()})


def losses(manifest: Manifest) -> list[str]:
    """Return what Minari's files cannot hold; see ``Format``."""
    arrays, lost = _arrays(manifest)
    written, counts = _metadata(manifest, arrays, 0), _counts(manifest, 0)
    said = ((name, value) for name, value in manifest.metadata.items() if value)
    others = [name for name, value in said if name not in counts and written.get(name) != value]
    told = [f"what is said of the data in another form than Minari's: {', '.join(others)}"]
    return [*(f"{show_key(key)}: {why}" for key, why in lost.items()), *(told if others else [])]


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
            progress.writing(first := stop)
    text, size = "", (folder / DATA).stat().st_size
    for _ in range(2):  # Minari counts this document, too
        said = _metadata(manifest, arrays, size + len(text))
        text = json.dumps(said | ({"dataset_id": id} if id else {}))
    (folder / METADATA).write_text(text, encoding="utf-8")
    where = out / folder.relative_to(path)
    return f"minari.load_dataset({id!r})" if id else f"minari.MinariDataset({str(where)!r})"


def _local_id(out: Path) -> str:
    """Return Minari's id of a folder, its path below Minari's root; empty where it is elsewhere."""
    place = os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets"
    root, folder = Path(place).expanduser().resolve(), out.parent if out.name == "data" else out
    if folder == root or not folder.is_relative_to(root):
        return ""
    id = folder.relative_to(root).as_posix()
    if not re.fullmatch(r"[-\w/]+-v\d+", id):
        raise UsageError(
            f"{argument('path')} {out} would be Minari's dataset {id}. Expected an id that ends in "
            "a version, such as mine/walk-v0. Choose another folder."
        )
    return id


def _write_steps(
    file: h5py.File, number: int, arrays: list[_Array], run: StepColumns, starts: Any, first: int
) -> None:
    """Write the rows of a run, whose first one is told, that are of one episode."""
    # rows of the dataset        start ........ stop      the episode
    #                    first ........ first + n         the run
    #                            begin .. end             what is written
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
        kept = group.create_dataset(array.path, shape, dtype) if is_new else group[array.path]
        if rows.size:
            kept[begin - start : begin - start + len(rows)] = rows


def _check_chains(
    arrays: list[_Array], run: StepColumns, before: StepColumns, begins: np.ndarray, first: int
) -> None:
    """Check that each row is what the one before it, in its trajectory, says comes next."""
    # begins: the first rows of trajectories, by their numbers in the run.
    for array in arrays:
        if array.successor is None:
            continue
        own, following = run[array.key], run[array.successor]
        told = np.concatenate([before.get(array.successor, following[:1]), following[:-1]])
        differs = (_bits(told) != _bits(own)).any(1)
        differs[begins[begins >= 0]] = False
        if (wrong := np.flatnonzero(differs)).size:
            row = first + int(wrong[0])
            raise UsageError(
                f"Row {row:,}: {show_key(array.key)} is not the {show_key(array.successor)} of row "
                f"{row - 1:,}, in the same trajectory. Minari has each of an episode's once, as "
                "the successor of the one before it. Choose a format that has both."
            )


def _bits(rows: np.ndarray) -> np.ndarray:
    """Return rows ``[n, ...]`` as what is equal where they are, NaN and -0.0 too: ``[n, m]``."""
    flat = np.ascontiguousarray(rows.reshape(len(rows), -1))
    return flat if rows.dtype == object or not rows.size else flat.view(np.uint8)


def _arrays(manifest: Manifest) -> tuple[list[_Array], dict[Key, str]]:
    """Return the arrays of an episode, and why the other columns are none."""
    columns = {each.key: each for each in manifest.all_columns}
    forms = {key: (each.dtype, each.shape) for key, each in columns.items()}
    arrays, lost = [], {}
    for key, column in columns.items():
        following = successor_of(key) if forms.get(successor_of(key)) == forms[key] else None
        is_told = key[:2] in (("next", "observation"), ("next", "info"))
        if key in MADE_AGAIN or key == EPISODE or (is_told and forms.get(key[1:]) == forms[key]):
            continue  # the array of the steps has what is told of the next one
        if why := _problem(key, column, following):
            lost[key] = why
        elif key in NUMBERS:
            arrays.append(_Array(key, NUMBERS[key], column.dtype, ()))
        else:
            path = "/".join((ROOTS[key[0]], *key[1:]))
            arrays.append(_Array(key, path, column.dtype, column.shape, following))
    return arrays, lost


def _problem(key: Key, column: AnyColumn, following: Key | None) -> str:
    """Return why a column is no array of an episode; empty where it is one."""
    dtype, shape, root = column.dtype, column.shape, key[0]
    has_space = not dtype.startswith("complex") and (dtype != TEXT or not shape)
    problems = {
        "Minari has no place for it": root not in ROOTS and key not in NUMBERS,
        "Minari needs a name for an info": key == ("info",),
        "a name in it means something else there": any(map(UNNAMEABLE.fullmatch, key)),
        f"numpy has no {dtype}": dtype != TEXT and dtype not in NUMPY_TYPES,
        f"Minari has no space of {dtype} {list(shape)}": root != "info" and not has_space,
        "it is not one number a step": key in NUMBERS and shape not in ((), (1,)),
        "its successor is not known": root == "observation" and not following,
    }
    return next((why for why, holds in problems.items() if holds), "")


def _check_needed(arrays: list[_Array], lost: Mapping[Key, str], id: str) -> None:
    for needed in (("observation",), ("action",), *NUMBERS):
        if not any(each.key[: len(needed)] == needed for each in arrays):
            why = next((why for key, why in lost.items() if key[: len(needed)] == needed), "")
            raise UsageError(
                f"{id} cannot be a Minari dataset, which needs {show_key(needed)}: "
                f"{why or 'there is none'}."
            )


def _metadata(manifest: Manifest, arrays: list[_Array], size_bytes: int) -> dict[str, Any]:
    """Return ``metadata.json``."""
    said = {
        name: value
        for name, value in manifest.metadata.items()
        if (name not in LISTS or isinstance(value, list))
        and (not name.endswith("env_spec") or '"additional_wrappers"' in str(value))
    }
    for root in ("observation", "action"):
        space = _space({each.key[1:]: each for each in arrays if each.key[0] == root})
        said[f"{root}_space"] = _stated(said.get(f"{root}_space"), space)
    return said | _counts(manifest, size_bytes)


def _counts(manifest: Manifest, size_bytes: int) -> dict[str, Any]:
    """Return what ``metadata.json`` says of its own files, and not of the data."""
    name = re.sub(r"[^-\w/]", "-", manifest.id.removeprefix("minari/"))
    return {
        "total_episodes": manifest.num_trajectories,
        "total_steps": manifest.num_transitions,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "dataset_id": name if re.search(r"-v\d+$", name) else f"{name}-v0",
        "minari_version": "0.5.0",  # the oldest whose folders are these: later ones read them
        "dataset_size": round(size_bytes / 1e6, 1),
    }


def _space(leaves: Mapping[Key, _Array]) -> dict[str, Any]:
    """Return the space of arrays by their keys below a root, in the form of Minari."""
    if () not in leaves:
        below: dict[str, dict[Key, _Array]] = {}
        for (name, *rest), each in leaves.items():
            below.setdefault(name, {})[*rest,] = each
        return {"type": "Dict", "subspaces": {name: _space(each) for name, each in below.items()}}
    dtype, shape = leaves[()].dtype, leaves[()].shape
    if dtype == TEXT:  # which characters there are, and how many, is not known
        return {"type": "Text", "min_length": 0, "max_length": 1 << 20, "charset": "?"}
    low, high = (False, True) if dtype == "bool" else (-np.inf, np.inf)
    if dtype != "bool" and not dtype.startswith("float"):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    bounds = {name: np.full(shape, x).tolist() for name, x in (("low", low), ("high", high))}
    return {"type": "Box", "dtype": dtype, "shape": list(shape), **bounds}


def _stated(stated: Any, space: dict[str, Any]) -> str:
    """Return the space that the publisher states where it is one of the arrays, as text."""
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        if _form(json.loads(stated)) == _form(space):
            return str(stated)
    return json.dumps(space)


def _form(space: Any) -> Any:
    """Return the names, types and shapes of a space, without bounds."""
    if space["type"] == "Dict":
        return {name: _form(below) for name, below in space["subspaces"].items()}
    if space["type"] == "Discrete":
        return ["Box", "int64", []]
    return [space.get(name) for name in ("type", "dtype", "shape")]
