"""The request of a run: what was asked for, so that another process can ask again.

It stands beside the plan in the folder of the run, under a root that others may write into. What is
read is checked field by field, and is never a reason to import or to run something: whoever resumes
a run looks up the function by its name and compares its digest.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.preprocessing.functions import split_function, where_from
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.pipelines.pipeline import Pipeline, pipeline_of
from datasets_cli.preprocessing.task import Mapped
from datasets_cli.sources.disk import open_regular, replace_file
from datasets_cli.store.cache_root import check_id
from datasets_cli.store.sealed_json import parse

REQUEST = "request.json"
PLAN = "plan.json"
MAX_BYTES = 1 << 20

_KINDS: dict[str, tuple[type, ...]] = {
    "input": (str,),
    "fn": (str, dict),
    "folder": (str,),
    "replaces": (bool,),
}
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Request:
    """What a run was asked for."""

    input: str
    fn: str | Pipeline
    folder: str
    options: PreprocessOptions
    replaces: bool = False

    def save(self, folder: Path) -> None:
        """Write it into the folder of the run, in place of an older one."""
        new = folder / f".{REQUEST}.{os.getpid()}"
        new.write_text(json.dumps(self.to_json(), indent=1), encoding="ascii")
        replace_file(new, folder / REQUEST)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        fn = self.fn.to_json() if isinstance(self.fn, Pipeline) else self.fn
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return found | {"fn": fn, "options": asdict(self.options)}


def request_of(input: str, function: Mapped, options: PreprocessOptions, replaces: bool) -> Request:
    """Return the request of a run."""
    if isinstance(function, Pipeline):
        return Request(input, function, "", options, replaces)
    fn, folder = where_from(function) or ("", "")
    return Request(input, fn, folder, options, replaces)


def read_request(folder: Path) -> Request:
    """Return the request of the run in a folder, which may hold anything."""
    found = _read(folder / REQUEST)
    if found.keys() != {field.name for field in fields(Request)}:
        raise ValueError(f"{REQUEST} has the fields {', '.join(sorted(found)) or 'of nothing'}")
    options = found["options"]
    expected = {field.name: field for field in fields(PreprocessOptions)}
    if not isinstance(options, dict) or options.keys() != expected.keys():
        raise ValueError(f"the options in {REQUEST} are not those of a run")
    for name, value in options.items():
        may_be_none = expected[name].default is None
        kind = str if name in ("per", "where") else int
        if type(value) not in ((kind, type(None)) if may_be_none else (kind,)):
            raise ValueError(f"{name} in {REQUEST} is a {type(value).__name__}")
    for name, kinds in _KINDS.items():
        if type(found[name]) not in kinds:
            raise ValueError(f"{name} in {REQUEST} is a {type(found[name]).__name__}")
    try:
        check_id(found["input"])
        if isinstance(found["fn"], dict):
            found["fn"] = pipeline_of(found["fn"])
        elif found["fn"]:
            split_function(found["fn"])
        return Request(**{**found, "options": PreprocessOptions(**options)})
    except UsageError as error:
        raise ValueError(f"{REQUEST}: {error}") from error


def read_function_digest(folder: Path) -> str:
    """Return the digest of the function that the run in a folder is of."""
    digest = _read(folder / PLAN).get("function")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError(f"{PLAN} does not have the digest of a function")
    return digest


def _read(path: Path) -> dict[str, Any]:
    try:
        with open_regular(path) as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, DamagedDataset) as error:
        raise ValueError(f"{path.name} cannot be read ({error})") from error
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path.name} has more than {MAX_BYTES:,} bytes")
    return parse(data)
