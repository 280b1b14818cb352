"""The command that makes a derived dataset, for messages."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from datasets_cli.store.manifest import Manifest

OPTIONS = ("where", "max_trajectories", "num_frames", "chunksize", "per", "seed")
DEFAULTS = (None, "trajectory", 0)


def preprocess_command(
    input: str, fn: str | Mapping[str, Any], id: str, options: Mapping[str, Any]
) -> str:
    """Return a call of ``rlds preprocess`` with a function, or with the steps of a pipeline."""
    chosen = {name: options[name] for name in OPTIONS if options.get(name) not in DEFAULTS}
    words = ["rlds", "preprocess", input, "--out", id.removeprefix("derived/")]
    for name, value in {**({"fn": fn} if isinstance(fn, str) else fn), **chosen}.items():
        flag = f"--{name.replace('_', '-')}"
        for each in value if isinstance(value, list) else [value]:
            words += [flag] if each is True else [flag, str(each)]
    return shlex.join(words)


def command_of(manifest: Manifest) -> str:
    """Return the call that derived a dataset; empty where no command does."""
    parent = manifest.parent or {}
    if "view" in parent and not {"where", "max_trajectories"} & parent.keys():
        return ""  # a view that was made in Python
    function = manifest.function
    fn = function.get("pipeline") or _address_of(str(function.get("name", "")))
    options = {**manifest.arguments, **parent, "seed": manifest.seed}
    return preprocess_command(str(parent["id"]), fn, manifest.id, options) if fn else ""


def _address_of(name: str) -> str:
    """Return ``module:function`` of a function; empty where no import finds it."""
    # One within another, a notebook's, or a callable object.
    module, _, function = name.rpartition(".")
    is_name = all(part.isidentifier() for part in (*module.split("."), function))
    return f"{module}:{function}" if is_name and module != "__main__" else ""
