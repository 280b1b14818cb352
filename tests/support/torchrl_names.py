"""The public names that TorchRL has, too, with both objects, and the keywords of each."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from tests.support import public_names

with warnings.catch_warnings():  # TorchRL's own, when it is imported
    warnings.simplefilter("ignore")
    import torchrl.collectors
    import torchrl.collectors.utils
    import torchrl.data.datasets
    import torchrl.data.postprocs
    import torchrl.data.replay_buffers
    import torchrl.data.replay_buffers.scheduler
    import torchrl.envs.transforms
    import torchrl.trainers

MODULES = [
    torchrl.data,
    torchrl.data.replay_buffers.scheduler,
    torchrl.data.replay_buffers,
    torchrl.data.datasets,
    torchrl.data.postprocs,
    torchrl.envs.transforms,
    torchrl.envs,
    torchrl.collectors,
    torchrl.collectors.utils,
    torchrl.trainers,
]


def _pairs() -> Iterator[tuple[str, tuple[Any, Any]]]:
    for name, home in public_names.HOMES.items():
        for module in MODULES if ":" not in home else ():  # not the older names
            if callable(getattr(module, name, None)):
                yield name, (getattr(module, name), public_names.find(name))
                break


PAIRS = dict(_pairs())
"""TorchRL's object and ours, by name."""


def defaults(thing: Any) -> dict[str, Any]:
    """Return the keywords of a function, or of a class and the bases that it hands the rest to."""
    found: dict[str, Any] = {}
    for one in (
        [vars(kind).get("__init__") for kind in inspect.getmro(thing)]
        if inspect.isclass(thing)
        else [thing]
    ):
        if one is None or one is object.__init__:
            continue
        parameters = inspect.signature(one).parameters.values()
        found = {p.name: p.default for p in parameters if p.default is not p.empty} | found
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return {name: default for name, default in found.items() if not name.startswith("_")}


def accepts(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)
