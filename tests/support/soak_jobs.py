"""What a soak runs and kills: a download, a conversion, a run of ``preprocess``, in a process."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from tensordict import TensorDict

import datasets_cli
from datasets_cli.config import Config, load_config
from datasets_cli.errors import RldsError

DERIVED = "doubled"


def double(rows: TensorDict) -> TensorDict:
    rows["observation"] *= 2
    return rows


@dataclass(frozen=True)
class Job:
    """One piece of work that is killed until it is left alone."""

    kind: str
    id: str
    layout: str = "ted"

    @property
    def result(self) -> str:
        return f"derived/{DERIVED}" if self.kind == "preprocess" else self.id

    def run(self, config: Config) -> None:
        if self.kind == "download":
            datasets_cli.download(self.id, num_workers=0, config=config)
        elif self.kind == "convert":
            datasets_cli.convert(self.id, self.layout, config=config)
        else:
            datasets_cli.preprocess(self.id, double, DERIVED, chunksize=500, config=config)


def child(job: Job, root: Path) -> None:
    """Run a job as the command line does: signals end it in order."""
    os.setpgrp()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for the life of the process
    try:
        job.run(load_config(root=root))
    except (RldsError, KeyboardInterrupt):
        sys.exit(1)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
