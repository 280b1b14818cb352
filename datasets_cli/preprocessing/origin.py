"""The origin of a derived dataset: its input, function and arguments; and the call for it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

from datasets_cli.core.options import parameters_of
from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.preprocessing.function import FunctionIdentity
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.schema.columns import rows_per_block
from datasets_cli.sources.disk import MAX_NAME_BYTES, short_names
from datasets_cli.store.cache_root import has_manifest
from datasets_cli.store.check import check_sizes
from datasets_cli.store.manifest import Manifest, read_manifest
from datasets_cli.store.selection import Selection


@dataclass(frozen=True)
class DerivedOrigin:
    """The input, function and arguments that decide the values of a derived dataset."""

    parent: Mapping[str, Any]
    function: FunctionIdentity
    arguments: Mapping[str, Any]
    seed: int
    layout: str | None = None

    def differences(self, manifest: Manifest) -> list[str]:
        """Return how the origin in a manifest differs, one text for each difference."""
        parent = manifest.parent or {}
        differences: list[str] = []
        if parent.get("content") != self.parent["content"]:
            differences.append(
                f"the data of {parent.get('id')}, now other data of {self.parent['id']}"
            )
        differences += self.function.changes(manifest.function)
        # Chunks do not matter if a call gets one trajectory, or all rows.
        takes_one = self.arguments["per"] == "trajectory"
        sizes = manifest.arguments.get("num_frames"), self.arguments["num_frames"]
        for name in sorted({*self.arguments, *manifest.arguments}):
            was, now = manifest.arguments.get(name), self.arguments.get(name)
            if was != now and name == "view":
                views = (known.get("view", "all") for known in (parent, self.parent))
                differences.append("the rows {}, now {}".format(*views))
            elif was != now and not (name == "chunksize" and (takes_one or (was, now) == sizes)):
                differences.append(f"the argument {name}={was}, now {now}")
        if manifest.seed != self.seed:
            differences.append(f"the seed {manifest.seed}, now {self.seed}")
        if self.layout not in (None, manifest.layout):
            differences.append(f"the layout {manifest.layout}, now {self.layout}")
        return differences


def origin_of(
    manifest: Manifest,
    function: FunctionIdentity,
    options: PreprocessOptions,
    selection: Selection | None = None,
) -> DerivedOrigin:
    """Return the origin of the dataset that a run would make."""
    rows = manifest.num_transitions if selection is None else int(selection.lengths.sum())
    num_rows = options.num_rows(rows)
    # A run of fewer rows than a chunk is one call.
    chunksize = 0 if options.chunksize == 0 else rows_of_task(manifest, options, num_rows)
    arguments: dict[str, Any] = {"num_frames": num_rows, "chunksize": chunksize, "per": options.per}
    parent: dict[str, Any] = {
        "id": manifest.id,
        "content": manifest.content,
        "state": manifest.state,
        "layout": manifest.layout,
    }
    if selection is not None:  # its rows decide, and not how they were chosen
        arguments["view"] = selection.digest
        parent["view"] = ".".join(selection.steps)
        chosen = {"where": options.where, "max_trajectories": options.max_trajectories}
        parent |= {name: value for name, value in chosen.items() if value is not None}
    return DerivedOrigin(parent, function, arguments, options.seed, options.layout)


def rows_of_task(manifest: Manifest, options: PreprocessOptions, num_rows: int) -> int:
    """Return the rows of a task of a run that reads ``num_rows``."""
    row_bytes = sum(column.row_bytes for column in manifest.columns)
    return options.task_rows(num_rows, rows_per_block(row_bytes))


def existing_result(dest: Path, origin: DerivedOrigin, replaces: bool = False) -> Manifest | None:
    """Return the manifest of a destination if it has the result of a run already."""
    if not has_manifest(dest):
        check_destination(dest)
        return None
    manifest = read_manifest(dest)
    if manifest.parent is None:
        refuse_used(dest)
    differences = origin.differences(manifest)
    if differences and replaces:
        return None
    if differences:
        raise UsageError(
            f"{dest} already contains {manifest.id}, created with different settings: "
            f"{'; '.join(differences)}.",
            id=manifest.id,
            path=dest,
            found=differences,
            advice="Choose another destination, or delete it first: "
            f"{_deleting(dest, manifest.id)}",
        )
    try:
        check_sizes(dest, manifest)
    except DamagedDataset:
        if replaces:
            return None
        raise
    return manifest


def _deleting(dest: Path, id: str) -> str:
    """Return the command that deletes a dataset, or the folder of one outside a cache root."""
    is_in_root = dest.as_posix().endswith(f"/datasets/{id}")
    return f"rlds delete {id}" if is_in_root else f"rm -r {shlex.quote(str(dest))}"


def check_destination(dest: Path) -> None:
    """Refuse a destination that is not empty, or is within a dataset."""
    if (size := len(os.fsencode(dest.name))) > MAX_NAME_BYTES:
        raise UsageError(
            f"{dest} cannot be a dataset's folder: its name has {size} bytes; expected "
            f"{MAX_NAME_BYTES} or fewer. Choose a shorter one.",
            path=dest,
            expected=MAX_NAME_BYTES,
            found=size,
        )
    with short_names(dest):
        if dest.exists() and any(dest.iterdir()):
            refuse_used(dest)
    for parent in dest.parents:
        if has_manifest(parent):
            raise UsageError(
                f"{dest} is within the dataset {parent}.",
                path=dest,
                found=parent,
                advice="Choose another destination.",
            )


def refuse_used(dest: Path) -> NoReturn:
    """Raise the error of a destination that is not empty."""
    raise UsageError(
        f"{dest} is not empty.",
        path=dest,
        advice="Choose another destination, or move its files away.",
    )


FLAGS = {
    each.name: each.metadata["flag"][-1]
    for each in fields(PreprocessOptions)
    if "flag" in each.metadata
}
"""The flags of the command line that are not named as the argument in Python."""


def preprocess_command(
    input: str, fn: str | Mapping[str, Any], id: str, options: Mapping[str, Any]
) -> str:
    """Return the command line of ``rlds preprocess`` with a function or a pipeline."""
    chosen = {
        each.name: options[each.name]
        for each in parameters_of(PreprocessOptions)
        if options.get(each.name) not in (None, each.default)
    }
    words = ["rlds", "preprocess", input, "--name", id.removeprefix("derived/")]
    for name, value in {**({"fn": fn} if isinstance(fn, str) else fn), **chosen}.items():
        flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
        for each in value if isinstance(value, list) else [value]:
            words += [flag] if each is True else [flag, str(each)]
    return shlex.join(words)


def command_of(manifest: Manifest) -> str:
    """Return the command line that derived a dataset; empty if only Python can derive it."""
    parent = manifest.parent or {}
    if "view" in parent and not {"where", "max_trajectories"} & parent.keys():
        return ""  # of a view made in Python
    function = manifest.function
    fn = function.get("pipeline") or _address_of(str(function.get("name", "")))
    was = parent.get("layout", manifest.layout)
    layout = None if manifest.layout == was else manifest.layout
    options = {**manifest.arguments, **parent, "seed": manifest.seed, "layout": layout}
    return preprocess_command(str(parent["id"]), fn, manifest.id, options) if fn else ""


def _address_of(name: str) -> str:
    """Return ``module:function`` of a function; empty if an import does not find it."""
    # As that of a function within another, of a notebook, or of a callable object.
    module, _, function = name.rpartition(".")
    is_name = all(part.isidentifier() for part in (*module.split("."), function))
    return f"{module}:{function}" if is_name and module != "__main__" else ""
