"""Running functions in processes of their own, forked and spawned."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch


class Child:
    def __init__(self, method: str, function: Callable[..., Any], *arguments: Any) -> None:
        context: Any = multiprocessing.get_context(method)
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_run, args=(other, function, arguments), daemon=True)
        self.process.start()
        other.close()

    def result(self) -> Any:
        found = self.pipe.recv()
        self.process.join(60)
        return found

    def die(self) -> None:
        self.process.join(60)
        assert self.process.exitcode is not None


def _run(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)  # a forked process does not have the threads of its parent
    try:
        pipe.send(function(pipe, *arguments))
    except Exception as error:
        pipe.send(error)
