"""How a damaged dataset is made again: the command, as its manifest knows it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

MANIFEST_FILENAME = "manifest.json"  # as store.cache_root, which is on a higher floor, has it
MOST_BYTES = 64 << 20
"""Of a manifest that is read for an advice."""


class Provenance(Protocol):
    """What a manifest knows of how its dataset was made."""

    @property
    def id(self) -> str:
        """``family/name``."""

    @property
    def resources(self) -> Sequence[Mapping[str, Any]]:
        """The raw files that were read."""

    @property
    def parent(self) -> Mapping[str, Any] | None:
        """The dataset that it was derived from."""

    @property
    def function(self) -> Mapping[str, Any]:
        """The function that derived it."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of that run."""

    @property
    def seed(self) -> int | None:
        """The seed of that run."""


@dataclass(frozen=True)
class _Read:
    """What could be read of a manifest that may be damaged; see ``Provenance``."""

    id: str
    resources: Sequence[Mapping[str, Any]] = ()
    parent: Mapping[str, Any] | None = None
    function: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None


def reinstall_advice(provenance: Provenance) -> str:
    """Return a sentence with the command that makes a dataset again."""
    if provenance.id.startswith("recorded/"):
        return "Record it again: rlds record, into another --out until this one is deleted"
    if provenance.parent is None and not provenance.id.startswith("derived/"):
        return f"Install it again: {shlex.join(_download(provenance))}"
    delete = shlex.join(["rlds", "delete", provenance.id])
    if command := _preprocess(provenance):
        return f"Make it again: {delete}, then {shlex.join(command)}"
    parent = f" from {provenance.parent['id']}" if provenance.parent else ""
    name = provenance.function.get("name")
    by = f" by the function {name}" if name else " by the call that made it"
    return f"Make it again: {delete}, then derive it{parent}{by}"


_WITHOUT_ID = (
    "Make it again with rlds download --force or rlds preprocess, or copy it again from where it "
    "is whole"
)


def reinstall_advice_at(path: Path) -> str:
    """Return that sentence for the dataset that a path is in; its manifest may be damaged, too."""
    for folder in (path, *path.parents):
        if os.path.lexists(folder / MANIFEST_FILENAME):
            known = _read(folder)
            return reinstall_advice(known) if known else _WITHOUT_ID
    return _WITHOUT_ID


def reinstall_advice_of(id: str) -> str:
    """Return that sentence for an id of which no manifest is left."""
    return reinstall_advice(_Read(id))


def _read(folder: Path) -> _Read | None:
    """Return what a manifest says, or else what the name of its folder does."""
    path = folder / MANIFEST_FILENAME
    try:
        # A named pipe would be waited for.
        document: Any = json.loads(path.read_bytes()) if _is_small_file(path) else {}
        if "format_version" not in document:  # other programs have files of that name
            raise ValueError(f"{path} is no manifest of ours")
        names = ("id", "resources", "parent", "function", "arguments", "seed")
        found = _Read(**{name: document[name] for name in names if name in document})
        reinstall_advice(found)  # raises where a value is of another type
        return found
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        id = _id_of(folder)
        return _Read(id) if id else None


def _is_small_file(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= MOST_BYTES


def _id_of(folder: Path) -> str:
    """Return the id of a dataset below a cache root; empty where it is below none."""
    parts = folder.parts
    if "datasets" not in parts:
        return ""
    # The names after the last folder of that name: <root>/datasets/<family>/<name…>.
    names = parts[len(parts) - parts[::-1].index("datasets") :]
    return "/".join(names) if len(names) > 1 else ""


def _download(provenance: Provenance) -> Iterator[str]:
    yield from ("rlds", "download", "--force", provenance.id)
    if folder := source_folder(provenance):
        yield from ("--source", folder)
    if any(
        str(file.get("checked", "")).startswith("not verified") for file in provenance.resources
    ):
        yield "--no-verify"


def source_folder(provenance: Provenance) -> str | None:
    """Return the folder of this machine that raw files came from; None where they were fetched."""
    first = provenance.resources[0] if provenance.resources else {}
    url, filename = str(first.get("url", "")), str(first.get("filename", ""))
    # What ships with this package, such as the demo's files, is found without a source.
    if not Path(url).is_absolute() or Path(url).is_relative_to(Path(__file__).parent):
        return None
    return url.removesuffix(filename).rstrip("/")


def preprocess_command(
    input: str, fn: str | Mapping[str, Any], id: str, options: Mapping[str, Any]
) -> list[str]:
    """Return the words of a call of ``rlds preprocess``."""
    words = ["rlds", "preprocess", input]
    for name, value in ({"fn": fn} if isinstance(fn, str) else fn).items():
        several = value if isinstance(value, list) else [value]
        words += [word for each in several for word in _flag(name, each)]
    for name in ("where", "max_trajectories"):
        words += _flag(name, options[name]) if options.get(name) is not None else []
    words += ["--out", id.removeprefix("derived/")]
    for name in ("num_frames", "chunksize", "per", "seed"):
        if options.get(name) not in (None, 0, "trajectory"):
            words += _flag(name, options[name])
    return words


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, str(value)]


def _preprocess(provenance: Provenance) -> list[str]:
    """Return the call that derived a dataset; empty where no command does."""
    if provenance.parent is None:
        return []
    chosen = ("where", "max_trajectories")
    if "view" in provenance.parent and not any(name in provenance.parent for name in chosen):
        return []  # a view that was made in Python
    options = {**provenance.arguments, **provenance.parent, "seed": provenance.seed}
    if "pipeline" in provenance.function:
        steps = dict(provenance.function["pipeline"])
        return preprocess_command(str(provenance.parent["id"]), steps, provenance.id, options)
    module, _, name = str(provenance.function.get("name", "")).rpartition(".")
    if not name.isidentifier() or module in ("", "__main__"):
        return []  # a function within another, a notebook's, or a callable object
    if not all(part.isidentifier() for part in module.split(".")):
        return []
    parent = str(provenance.parent["id"])
    return preprocess_command(parent, f"{module}:{name}", provenance.id, options)
