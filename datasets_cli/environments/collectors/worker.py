"""What runs in a process that collects: it does what it is told, one command after the other."""

from __future__ import annotations

import pickle
import random
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import TensorDict

from datasets_cli.environments.collectors.options import CollectorOptions
from datasets_cli.environments.collectors.source import BatchSource, environment_of
from datasets_cli.errors import RldsError

CLOSED = "closed"
"""The last message of a process, with the actions that were out of bounds."""


@dataclass(frozen=True)
class Job:
    """What a process needs to make a source of batches."""

    pickled: tuple[bytes, ...]  # what makes the environment, its arguments, the policy
    options: CollectorOptions
    frames: int
    number: int
    num_processes: int
    seed: int


class Packed(NamedTuple):
    """A TensorDict in the form that is sent: arrays are pickled ten times as fast as tensors."""

    leaves: dict[Any, Any]
    shape: tuple[int, ...]
    names: list[str | None]


def pack(tensordict: TensorDict) -> Packed:
    """Return what is sent of a TensorDict."""
    leaves = {key: _array(value) for key, value in tensordict.items(True, True)}
    return Packed(leaves, tuple(tensordict.shape), tensordict.names)


def pack_weights(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is sent of a module's weights."""
    return {
        name: _array(value.detach().cpu()) if isinstance(value, torch.Tensor) else value
        for name, value in weights.items()
    }


def _array(tensor: torch.Tensor) -> Any:
    return tensor if tensor.dtype == torch.bfloat16 else tensor.numpy()


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def unpack(packed: Packed) -> TensorDict:
    """Return the TensorDict of which that was sent."""
    leaves = {key: _tensor(value) for key, value in packed.leaves.items()}
    return TensorDict(leaves, packed.shape, names=packed.names)


def send(connection: Connection, message: Any) -> None:
    connection.send_bytes(pickle.dumps(message, protocol=5))


def receive(connection: Connection) -> Any:
    return pickle.loads(connection.recv_bytes())


def work(connection: Connection, job: Job) -> None:
    """Do what the other end of a connection says, until it closes."""
    torch.set_num_threads(1)  # there is a process for each core
    source: BatchSource | None = None
    try:
        source = _source(job)
        send(connection, ("made", source.environment.device))
        while True:
            name, *arguments = receive(connection)
            if name == "close":
                break
            send(connection, (name, _do(source, name, arguments)))
    except (EOFError, ConnectionError):
        pass  # the other process has ended
    except Exception as error:
        with suppress(ConnectionError):  # another process failed first, and all are being ended
            send(connection, ("error", _sendable(error, job.number)))
    finally:
        if source is not None:
            outside = source.close_in_silence()
            with suppress(OSError):  # nobody waits for it any more
                send(connection, (CLOSED, outside))


def _source(job: Job) -> BatchSource:
    random.seed(job.seed)
    np.random.seed(job.seed % 2**32)
    torch.manual_seed(job.seed)
    create, arguments, policy = map(pickle.loads, job.pickled)
    environment = environment_of(create, arguments, job.options)
    return BatchSource(environment, policy, job.options, job.frames, job.number, job.num_processes)


def _sendable(error: Exception, worker: int) -> RldsError:
    if isinstance(error, RldsError):
        return error
    return RldsError(
        f"Collector process {worker} failed: {type(error).__name__}: {error}. In that process:\n"
        f"{''.join(traceback.format_exception(error)).rstrip()}"
    )


def _do(source: BatchSource, name: str, arguments: list[Any]) -> Any:
    """Return what a method of a source gives; it collects with other weights if they came."""
    if name == "update_weights":
        return source.update_weights(_unpacked(*arguments))
    if name != "collect":
        return getattr(source, name)(*arguments)
    is_random, weights = arguments
    if weights is not None:
        source.update_weights(_unpacked(weights))
    return pack(source.collect(random=is_random))


def _unpacked(weights: dict[str, Any]) -> dict[str, Any]:
    return {name: _tensor(value) for name, value in weights.items()}
