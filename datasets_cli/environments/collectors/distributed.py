"""Collectors in processes of a cluster of Dask or Ray, under TorchRL's names."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from tensordict import TensorDict

from datasets_cli.core.options import takes_fields
from datasets_cli.environments.collectors.collectors import (
    DataCollector,
    MultiAsyncCollector,
    MultiSyncCollector,
)
from datasets_cli.environments.collectors.options import MultiSyncOptions, split_frames
from datasets_cli.environments.collectors.processes import Processes
from datasets_cli.parallel.engine import Engine, Workers
from datasets_cli.replay.arguments import whole_number
from datasets_cli.torchrl.keywords import accepts_keywords


@dataclass(frozen=True, kw_only=True)
class DistributedOptions(MultiSyncOptions):
    """The arguments of a collector in processes of a cluster.

    Args:
        sync: return batches of all processes, as ``MultiSyncCollector``; False returns batches of
            the process that finishes first, as ``MultiAsyncCollector``.
        engine: ``"local"`` for processes of this machine, or ``"dask"`` or ``"ray"`` for workers
            of a cluster.
        address: the address of the cluster, such as ``tcp://host:8786``; None for Ray's default.
        update_interval: the number of batches between calls of ``update_policy_weights_()``, if
            the policy is a module; None for no calls.
        collector_kwargs: further arguments of this collector, as a mapping.
    """

    sync: bool = False
    engine: Engine = "local"
    address: str | None = None
    update_interval: int | None = None
    collector_kwargs: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.update_interval is not None:
            whole_number("update_interval", self.update_interval, 1)

    def pool(self) -> AbstractContextManager[Executor] | None:
        """Return the cluster, or None for processes of this machine."""
        workers = Workers(engine=self.engine, address=self.address)
        return None if self.engine == "local" else workers.pool()


@dataclass(frozen=True, kw_only=True)
class SyncDistributedOptions(DistributedOptions):
    """The arguments of a collector that waits for all processes of a cluster."""

    sync: bool = True
    update_interval: int | None = 1


@dataclass(frozen=True, kw_only=True)
class RayOptions(DistributedOptions):
    """The arguments of a collector whose processes are Ray actors.

    Args:
        ray_init_config: the arguments of ``ray.init``, which connects to a cluster or starts one
            if this process is not connected.
        remote_configs: the resources of each process, such as ``{"num_cpus": 1}``.
    """

    engine: Engine = "ray"
    ray_init_config: Mapping[str, Any] | None = None
    remote_configs: Mapping[str, Any] | None = None

    def pool(self) -> AbstractContextManager[Executor] | None:
        """Return the cluster, or None for processes of this machine."""
        other = super().pool()  # raises an error if the engine is not installed
        if self.engine != "ray":
            return other
        from datasets_cli.parallel.ray_cluster import ray_pool

        init = {"address": self.address, **(self.ray_init_config or {})}
        return ray_pool(self.address, init, **(self.remote_configs or {}))


@accepts_keywords
class DistributedCollector(MultiAsyncCollector, MultiSyncCollector):
    """Collects in processes of a cluster or of this machine.

    Rows and their order are the same as with ``MultiSyncCollector`` or ``MultiAsyncCollector`` and
    as many processes. Each process runs one actor. Weights are sent to the cluster once an update.

    Raises:
        UsageError: an argument is invalid, or the policy does not return actions.
        RldsError: a process failed, or the cluster is lost or has no free worker.
    """

    _source: Processes

    @takes_fields(DistributedOptions)
    def __init__(self, options: DistributedOptions) -> None:
        self._start(options)

    def _start(self, options: DistributedOptions) -> None:
        if options.collector_kwargs:
            options = replace(options, **options.collector_kwargs, collector_kwargs=None)
        self._is_sync, self._cat_results = options.sync, options.cat_results
        self._update_at_each_batch = options.update_at_each_batch
        is_module = isinstance(options.policy, torch.nn.Module)
        self._interval = options.update_interval if is_module else None
        count = len(options.create_env_fn) if options.sync else 1
        frames = split_frames("frames_per_batch", options.frames[0], count, "processes")
        source = Processes(options, frames, options.pool())
        DataCollector.__init__(self, options, source, source.devices[0])

    def _collect(self) -> TensorDict:
        if self._interval is not None and self._num_batches % self._interval == 0:
            self.update_policy_weights_()
        kind = MultiSyncCollector if self._is_sync else MultiAsyncCollector
        return kind._collect(self)


@accepts_keywords
class DistributedSyncCollector(DistributedCollector):
    """A ``DistributedCollector`` that waits for all processes and updates weights every batch."""

    @takes_fields(SyncDistributedOptions)
    def __init__(self, options: SyncDistributedOptions) -> None:
        self._start(options)


@accepts_keywords
class RayCollector(DistributedCollector):
    """A ``DistributedCollector`` whose processes are Ray actors."""

    @takes_fields(RayOptions)
    def __init__(self, options: RayOptions) -> None:
        self._start(options)
