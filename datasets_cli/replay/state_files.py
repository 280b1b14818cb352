"""State dicts in files, as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from datasets_cli.errors import DamagedDataset
from datasets_cli.replay.arguments import StateDict

STATE = "state.json"


def write_state(path: Path, state: StateDict) -> None:
    """Write a state into a file, whose folder is made; tensors become lists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {name: _plain(value) for name, value in state.items()}
    path.write_text(json.dumps(plain), encoding="utf-8")


def read_state(path: Path) -> StateDict:
    """Return what ``write_state``, or TorchRL, wrote into a file.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedDataset: it is not JSON.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing: no buffer was dumped there, or only a part of one."
        )
    try:
        found: StateDict = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedDataset(f"{path} is not JSON: {error}. Dump the buffer again.") from error
    return found


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value
