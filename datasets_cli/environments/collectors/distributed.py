"""Collectors whose processes are of a cluster, by the names of TorchRL's distributed ones."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.core.options import takes_fields
from datasets_cli.environments.collectors.collectors import (
    DataCollector,
    MultiAsyncCollector,
    MultiSyncCollector,
)
from datasets_cli.environments.collectors.options import JoinedProcesses, share_of
from datasets_cli.environments.collectors.processes import Processes
from datasets_cli.errors import UsageError
from datasets_cli.parallel.engine import Engine, Workers
from datasets_cli.replay.trajectories.seams import COLLECTOR_NUMBER
from datasets_cli.torchrl.keywords import accepts_keywords


@dataclass(frozen=True, kw_only=True)
class DistributedProcesses(JoinedProcesses):
    """What a collector takes whose processes are of a cluster.

    Args:
        sync: give batches of all processes, as ``MultiSyncCollector`` does, else of the one that is
            ready first, as ``MultiAsyncCollector``.
        engine: where processes are: ``"local"``, those that this one starts, or workers of a
            cluster of ``"dask"`` or ``"ray"``.
        address: of the cluster, such as ``tcp://host:8786``; for Ray None is the one at hand.
        update_interval: do ``update_policy_weights_()`` before every so many batches, where the
            policy is a module; None: never.
        collector_kwargs: more arguments of this collector, which all processes have.
    """

    sync: bool = False
    engine: Engine = "local"
    address: str | None = None
    update_interval: int | None = None
    collector_kwargs: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.update_interval is not None and self.update_interval < 1:
            raise UsageError(f"update_interval is 1 or more, not {self.update_interval}.")

    def pool(self) -> AbstractContextManager[Executor] | None:
        """Return the cluster; None for processes of this machine."""
        workers = Workers(engine=self.engine, address=self.address)
        return None if self.engine == "local" else workers.pool()


@dataclass(frozen=True, kw_only=True)
class SyncDistributedProcesses(DistributedProcesses):
    """What a collector takes that waits for all processes of a cluster."""

    sync: bool = True
    update_interval: int | None = 1


@dataclass(frozen=True, kw_only=True)
class RayProcesses(DistributedProcesses):
    """What a collector takes whose processes are actors of Ray.

    Args:
        ray_init_config: arguments of ``ray.init``, which connects this process where it is not
            connected, and starts a cluster where there is none.
        remote_configs: what Ray keeps for each process, such as ``{"num_cpus": 1}``.
    """

    engine: Engine = "ray"
    ray_init_config: Mapping[str, Any] | None = None
    remote_configs: Mapping[str, Any] | None = None

    def pool(self) -> AbstractContextManager[Executor] | None:
        """Return the cluster, which may be of another engine."""
        other = super().pool()  # which tells what to install
        if self.engine != "ray":
            return other
        from datasets_cli.parallel.ray_cluster import ray_pool

        init = {"address": self.address, **(self.ray_init_config or {})}
        return ray_pool(self.address, init, **(self.remote_configs or {}))


@accepts_keywords
class DistributedCollector(MultiAsyncCollector, MultiSyncCollector):
    """Collects rows in processes of a cluster, or of this machine; those that die are made again.

    Rows and their order are those of ``MultiSyncCollector``, or ``MultiAsyncCollector``, with as
    many processes. Each is an actor alone in its process. Weights are put once an update.

    Where a process dies, the trajectories that it was in are given no more rows. Another one begins
    new ones, with other numbers, and with the next seeds where ``set_seed`` gave some. The last
    row of those that ended is marked as truncated in ``replay_buffer``; one that was given already
    is not.

    Raises:
        UsageError: numbers do not fit together, or the policy does not give actions.
        RldsError: a process failed, or the cluster is lost or has no room.
    """

    _source: Processes

    @takes_fields(DistributedProcesses)
    def __init__(self, options: DistributedProcesses) -> None:
        self._begin(options)

    def _begin(self, options: DistributedProcesses) -> None:
        if options.collector_kwargs:
            options = replace(options, **options.collector_kwargs, collector_kwargs=None)
        self._is_sync, self._joined = options.sync, options.cat_results
        self._update_at_each_batch = options.update_at_each_batch
        is_module = isinstance(options.policy, torch.nn.Module)
        self._interval = options.update_interval if is_module else None
        count = len(options.create_env_fn) if options.sync else 1
        frames = share_of("frames_per_batch", options.frames[0], count, "processes")
        source = Processes(options, frames, options.pool(), renewed=True)
        self._written: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # ids and rows of batches
        DataCollector.__init__(self, options, source, source.devices[0])

    def _write(self, batch: TensorDictBase, buffer: Any) -> None:
        """Write rows, after the last ones of trajectories that were cut are marked."""
        cut, self._source.cut = self._source.cut, []
        for number in cut if hasattr(buffer, "set_at_") else []:
            for ids, rows in self._written.values():
                for row in rows[ids == number][-1:]:
                    # Of several dimensions they are those of the batch before.
                    if rows.ndim > 1 or int(buffer[int(row)][COLLECTOR_NUMBER]) == number:
                        end = torch.ones(1, 1, dtype=torch.bool)
                        buffer.set_at_(("next", "truncated"), end, row[None])
                        buffer.set_at_(("next", "done"), end, row[None])
        rows, ids = buffer.extend(batch), batch.get(COLLECTOR_NUMBER, None)
        if ids is not None and not self._options.split_trajs and len(rows) == ids.numel():
            # Of all processes, or of one; in a storage of several dimensions time comes first.
            ids = (ids if rows.ndim == 1 else ids.transpose(0, -1)).flatten()
            self._written[self._source.newest] = (ids, rows)

    def _collect(self) -> TensorDict:
        if self._interval is not None and self._num_batches % self._interval == 0:
            self.update_policy_weights_()
        kind = MultiSyncCollector if self._is_sync else MultiAsyncCollector
        return kind._collect(self)


@accepts_keywords
class DistributedSyncCollector(DistributedCollector):
    """Is a ``DistributedCollector`` that waits for all processes, with new weights each time."""

    @takes_fields(SyncDistributedProcesses)
    def __init__(self, options: SyncDistributedProcesses) -> None:
        self._begin(options)


@accepts_keywords
class RayCollector(DistributedCollector):
    """Is a ``DistributedCollector`` of actors of Ray."""

    @takes_fields(RayProcesses)
    def __init__(self, options: RayProcesses) -> None:
        self._begin(options)
