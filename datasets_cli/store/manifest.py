"""The manifest of a dataset: a folder is a dataset if it contains this file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from datasets_cli.core.checked_json import Check, JsonForm, WrongValue, decode, has
from datasets_cli.core.quantities import counted, human_bytes, recorded_steps
from datasets_cli.core.system_errors import MANIFEST_FILENAME, damaged, missing_dataset
from datasets_cli.errors import DamagedDataset, NoRewards
from datasets_cli.schema.columns import LARGEST, REWARD, Column, Count, Key, is_of_final, show_key
from datasets_cli.schema.texts import AnyColumn, RecordedColumn, TextColumn
from datasets_cli.sources.regular_file import read_bounded
from datasets_cli.store.content import content_of, derived_origin, recipe_origin
from datasets_cli.store.sealed_json import check_seal, parse, seal

FORMAT_VERSION = 2
LAYOUTS = ("ted", "compact")
UNVERIFIED = "not verified"
OWN = "own"
"""``RawFile.checked`` of a user's own data: the values were passed to this program."""
UNCHECKED = frozenset({"size", "nothing"})
"""Values of ``RawFile.checked`` for a file without a published checksum."""
MAX_MANIFEST_BYTES = 64 << 20
MAX_NAME_BYTES = 255

STATES = ("installed", "unchecked", "unverified")
"""States of an undamaged dataset; see ``Manifest.state``."""

Digest = Annotated[str, Check("64 hexadecimal digits", re.compile("[0-9a-f]{64}").fullmatch)]
_State = Annotated[str, Check(f"one of {', '.join(STATES)}", STATES.__contains__)]
_Text = str | None
_Number = float | None

# Entries stay JSON objects, and may have further names. The types of the names below are checked
# only here.
_Object = Mapping[str, Any]
_is_function = has(
    {"name": str, "digest": Digest}, **{"pipeline": _Object, "parts": Mapping[str, str]}
)

_Files = Mapping[str, Annotated[_Object, has({"bytes": Count, "sha256": Digest})]]
_Resource = Annotated[
    _Object,
    has(
        {"filename": str},
        **{"bytes": Count, "sha256": Digest, "columns_sha256": Digest},
        **{"url": str, "validator": _Text, "checked": str, "describes": bool},
    ),
]
_Recipe = Annotated[
    _Object,
    has(
        {},
        **{"family": str, "version": int | None, "identity": tuple[str, ...]},
        **{"licence": _Text, "citation": _Text, "homepage": _Text},
    ),
]
_Successors = Annotated[_Object, has({}, rule=str, version=int, unflagged_end=bool)]
Metadata = Annotated[
    _Object,
    has(
        {},
        **{"notes": tuple[str, ...], "licence": _Text, "citation": _Text},
        **{"ref_min_score": _Number, "ref_max_score": _Number},
    ),
]
"""The publisher's metadata."""
_Splits = Mapping[str, Annotated[_Object, has({"trajectories": Count, "transitions": Count})]]
_Parent = Annotated[
    _Object,
    has(
        {"id": str},
        **{"content": Digest, "manifest_sha256": Digest, "state": _State, "view": str},
        **{"layout": str, "where": str, "max_trajectories": Count, "dropped": str},
    ),
]
_Function = Annotated[  # empty unless derived
    _Object, Check("an object", lambda value: not value or _is_function.holds(value))
]
_Statistics = Mapping[str, Mapping[str, _Number]]
_Arguments = Mapping[str, int | str | None]


@dataclass(frozen=True)
class Manifest(JsonForm):
    """Everything known about one dataset, as written in ``manifest.json``.

    Args:
        id: ``family/name``.
        layout: ``"ted"`` or ``"compact"``.
        num_transitions: rows N.
        num_trajectories: trajectories K.
        columns: every leaf.
        files: ``{relative path: {"bytes": size, "sha256": digest}}`` of every other file.
        resources: the source files: name, URL, size, sha256, validator, and ``checked``, the way
            each was checked against the catalogue; for your own data also ``columns_sha256``, the
            sha256 of the columns.
        recipe: family, version, licence, citation and homepage of the recipe.
        successors: the rule that gave ``next.observation``; ``unflagged_end`` if the last step of
            the source has neither flag, although every successor is recorded.
        metadata: the publisher's metadata: spaces, reference scores, known traps, and so on.
        statistics: return, length and reward statistics over all trajectories.
        record: the layout of columns in records, for the ``compact`` layout.
        texts: every column of text.
        final_steps: the number of recorded steps without a known successor: not transitions.
        recorded: the source's columns of all recorded steps, in its order; empty if their names are
            not known, or a function changed the rows.
        final_steps_alone: the number of final steps that are a trajectory of their own.
        splits: the numbers of trajectories and transitions of each of the publisher's splits.
        parent: id, content and state of the dataset that this one was derived from.
        function: name and digest of the function that derived it.
        arguments: the selection of rows and the chunk size for the function.
        seed: the seed of that run.
        tool: name and version of the program that wrote the dataset.
        content: the identity, 64 hexadecimal digits, equal for every layout of the same data;
            computed by default.
        format_version: the version of the file format.
    """

    id: str
    layout: Annotated[str, Check(f"one of {', '.join(LAYOUTS)}", LAYOUTS.__contains__)]
    num_transitions: Count
    num_trajectories: Count
    columns: tuple[Column, ...]
    files: _Files
    resources: tuple[_Resource, ...] = ()
    recipe: _Recipe = field(default_factory=dict)
    successors: _Successors = field(default_factory=dict)
    metadata: Metadata = field(default_factory=dict)
    statistics: _Statistics = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    texts: tuple[TextColumn, ...] = ()
    final_steps: Count = 0
    recorded: tuple[RecordedColumn, ...] = ()
    final_steps_alone: Count = 0
    splits: _Splits = field(default_factory=dict)
    parent: _Parent | None = None
    function: _Function = field(default_factory=dict)
    arguments: _Arguments = field(default_factory=dict)
    seed: int | None = None
    tool: str = ""
    content: Digest = ""
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        if not self.content:
            object.__setattr__(self, "content", self.computed_content())

    def __repr__(self) -> str:
        # `to_json` of a long run would be 80,000 characters.
        return (
            f"{type(self).__name__}({self.id}, {self.layout}, {self.state}: "
            f"{counted(self.num_transitions, 'transition')} in "
            f"{counted(self.num_trajectories, 'trajectory')}, "
            f"{counted(len(self.columns), 'column')}, {counted(len(self.files), 'file')}, "
            f"{human_bytes(self.size_bytes)}, content {self.content[:16]})"
        )

    @property
    def all_columns(self) -> tuple[AnyColumn, ...]:
        """Every leaf, followed by every column of text."""
        return (*self.columns, *self.texts)

    @property
    def final_texts(self) -> tuple[TextColumn, ...]:
        """The columns of text of the final steps."""
        return tuple(text for text in self.texts if is_of_final(text.key))

    @property
    def size_bytes(self) -> int:
        """Total size of the dataset's files in bytes."""
        return sum(int(entry["bytes"]) for entry in self.files.values())

    @property
    def has_rewards(self) -> bool:
        """Whether rows have rewards; demonstrations may lack them."""
        return any(column.key[:2] == REWARD for column in self.columns)

    def check_rewards(self, what: str) -> None:
        """Raise ``NoRewards`` for the operation ``what`` if rows have no rewards."""
        if not self.has_rewards:
            raise NoRewards.of(what, self.id)

    @property
    def recorded_steps(self) -> str:
        """A sentence with the recorded steps, if some are not transitions; else empty."""
        counts = self.num_transitions, self.final_steps, self.final_steps_alone
        return recorded_steps(*counts) if self.final_steps else ""

    @property
    def unverified(self) -> list[str]:
        """The distinct reasons why files may differ from the publisher's."""
        checks = [str(resource.get("checked", "")) for resource in self.resources]
        if self.parent and self.parent.get("state") == "unverified":
            checks.append(f"{UNVERIFIED}: it is derived from {self.parent['id']}")
        return list(dict.fromkeys(text for text in checks if text.startswith(UNVERIFIED)))

    @property
    def state(self) -> str:
        """The trust in the raw files: ``"installed"``, ``"unchecked"`` or ``"unverified"``.

        ``"unverified"``: a file was not checked, or differs from the publisher's. ``"unchecked"``:
        a file has no published checksum. A derived dataset has the state of its parent.
        """
        if self.unverified:
            return "unverified"
        if self.parent:
            return str(self.parent.get("state", "unchecked"))
        is_unchecked = any(file.get("checked", "nothing") in UNCHECKED for file in self.resources)
        return "unchecked" if is_unchecked else "installed"

    def computed_content(self) -> str:
        """Compute the identity of the data."""
        if self.parent is None:
            origin = recipe_origin(self.recipe, self.successors, self.resources, self.metadata)
        else:
            origin = derived_origin(self.parent, self.function, self.arguments, self.seed)
        size = self.num_transitions, self.num_trajectories
        return content_of(self.id, origin, *size, self.all_columns)

    def json_fields(self) -> dict[str, Any]:
        """Return the entries of the file, without empty ones that most datasets lack."""
        entries = super().json_fields()
        entries["columns"] = [column.entry(self.num_transitions) for column in self.columns]
        if not self.has_rewards:
            entries["rewards"] = "none"
        optional = ("texts", "final_steps", "final_steps_alone", "recorded", "splits")
        absent = {name for name in optional if not entries[name]}
        return {name: entry for name, entry in entries.items() if name not in absent}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write ``manifest.json`` into ``folder``."""
    (folder / MANIFEST_FILENAME).write_bytes(seal(manifest.to_json()))


def read_manifest(folder: Path) -> Manifest:
    """Read and validate the manifest of a dataset folder."""
    path = folder / MANIFEST_FILENAME
    try:
        data = read_bounded(path, MAX_MANIFEST_BYTES)
        document = parse(data)
        version = _format_version(document)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise missing_dataset(folder) from error
    except DamagedDataset:
        raise
    except OSError as error:
        raise _damaged(path, f"it cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _damaged(path, error) from error
    if version != FORMAT_VERSION:
        raise _of_another_version(path, version)
    try:
        check_seal(data, document)
        return _from_document(document)
    except ValueError as error:
        raise _damaged(path, error) from error


def _format_version(document: Mapping[str, Any]) -> int:
    version = document.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise WrongValue("format_version", "a number of 1 or more", version)
    return version


def _from_document(document: dict[str, Any]) -> Manifest:
    """Validate a JSON object, and return it as a manifest."""
    if "content" not in document:
        raise WrongValue("content", "64 hexadecimal digits")
    manifest = decode(Manifest, document)
    _check_columns(manifest)
    _check_filenames(manifest.files)
    return manifest


def _check_columns(manifest: Manifest) -> None:
    """Check that columns have distinct keys, and fewer than 2**48 values each."""
    columns = (*manifest.columns, *(text.codes for text in manifest.texts))
    for column in columns:
        # Without dimensions of 0: torch multiplies the sizes around them, too.
        num_rows = max(manifest.num_transitions, manifest.final_steps)
        values = num_rows * math.prod(filter(None, column.shape))
        if values >= LARGEST:
            expected = f"fewer than 2**48 values of {show_key(column.key)}"
            raise WrongValue("columns", expected, values)
    _check_keys([column.key for column in columns])
    stored = {
        each.key: (math.prod(each.shape), each in manifest.texts) for each in manifest.all_columns
    }
    for each in manifest.recorded:
        if stored.get(each.key) != (math.prod(each.shape), each.dtype[1] in "OSU"):
            expected = "the key, size and kind of a column"
            raise WrongValue("recorded", expected, show_key(each.key))


def _check_keys(keys: list[Key]) -> None:
    """Check that there are keys, that they are distinct, and that no leaf is also a group."""
    known = set(keys)
    if not keys or len(known) != len(keys):
        raise WrongValue("columns", "one or more distinct keys", [*map(show_key, keys)])
    above = {key[:depth]: key for key in keys for depth in range(1, len(key))}
    for key in above.keys() & known:
        names = [show_key(key), show_key(above[key])]
        raise WrongValue("columns", "a leaf or a group of a name, not both", names)


def _check_filenames(names: Iterable[str]) -> None:
    """Reject invalid file names; ``check_sizes`` rejects files outside the folder."""
    for name in names:
        is_short = len(name.encode()) <= MAX_NAME_BYTES
        if "\0" in name or not (is_short or _has_short_parts(name)):
            expected = f"names of at most {MAX_NAME_BYTES} bytes, none of them zero"
            raise WrongValue("files", expected, name)


def _has_short_parts(name: str) -> bool:
    longest = max(len(part.encode()) for part in name.split("/"))
    return longest <= MAX_NAME_BYTES and len(name) <= MAX_NAME_BYTES * 8


def _of_another_version(path: Path, version: int) -> DamagedDataset:
    what = f"{path} has format version {str(version)[:20]}, but this program reads {FORMAT_VERSION}"
    if version < FORMAT_VERSION:
        return damaged(path, what, expected=FORMAT_VERSION, found=version)
    error = DamagedDataset(
        f"{what}. It may be intact: a newer version of rlds wrote it.",
        path=path,
        expected=FORMAT_VERSION,
        found=version,
        advice="Upgrade: install a newer clone of the project.",
    )
    error.newer = True
    return error


def _damaged(path: Path, problem: object) -> DamagedDataset:
    # A quoted value may be long, and contain line breaks.
    plain = "".join(char if char.isprintable() else "?" for char in str(problem)[:300])
    details = problem.details if isinstance(problem, WrongValue) else {}
    return damaged(path, f"{path} is not a valid manifest: {plain}", **details)
