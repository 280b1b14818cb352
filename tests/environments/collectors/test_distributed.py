"""Collectors of a cluster: the rows of ``MultiSyncCollector``, and processes that die."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from datasets_cli import (
    GymEnv,
    MultiSyncCollector,
    RldsError,
    UsageError,
)
from datasets_cli.environments import DistributedCollector, RayCollector
from datasets_cli.environments.collectors.options import MultiProcessOptions
from datasets_cli.environments.collectors.processes import Processes
from datasets_cli.parallel import dask_cluster
from datasets_cli.parallel.cluster import Call, Cluster
from datasets_cli.parallel.tasks import LostCluster, LostWorker
from datasets_cli.replay.trajectories.seams import COLLECTOR_NUMBER
from tests.support.clusters import DaskCluster, ray_cluster
from tests.support.refusals import refused


def make_env() -> GymEnv:
    return GymEnv("Pendulum-v1")


def linear() -> TensorDictModule:
    module = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.constant_(module.weight, 0.1)
    return TensorDictModule(module, ["observation"], ["action"])


def rows(kind: Any, **arguments: Any) -> TensorDict:
    """Return 4 batches ``[2, 80]`` of two processes, random first, with new weights each time."""
    policy = linear()
    torch.manual_seed(1)
    collector = kind(
        [make_env] * 2, policy, frames_per_batch=40, total_frames=160, init_random_frames=40,
        max_frames_per_traj=15, **arguments,
    )  # fmt: skip
    collector.set_seed(3)
    batches = []
    for batch in collector:
        batches.append(batch)
        torch.nn.init.constant_(policy.module.weight, 0.1 * len(batches))
        collector.update_policy_weights_()
    collector.shutdown()
    found = torch.cat(batches, 1)
    found[COLLECTOR_NUMBER] -= found[COLLECTOR_NUMBER].min()  # of this collector's block
    return found


@functools.cache
def expected() -> TensorDict:
    """Not a module's fixture: the processes of one would begin before they are preloaded."""
    return rows(MultiSyncCollector)


def test_processes_of_this_machine_give_the_rows_of_a_sync_collector() -> None:
    assert bool((rows(DistributedCollector, sync=True) == expected()).all())


class InThisProcess(Cluster):
    """A cluster whose actors are objects of this process."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = [*failures]
        self.workers: list[Any] = []
        self.seconds = 0.0
        """The duration of each command."""

    def actor(self, kind: type, argument: Any) -> Call:
        worker = kind(argument)
        self.workers.append(worker)

        def tell(message: bytes) -> bytes:
            time.sleep(self.seconds)
            if self.failures:
                raise self.failures.pop()
            answer: bytes = worker.call(message)
            return answer

        return tell

    def begin(self, task: Callable[[], Any]) -> Future[Any]:
        raise NotImplementedError


def processes_of(cluster: Cluster, num: int, policy: Any = None) -> Processes:
    options = MultiProcessOptions([make_env] * num, policy, frames_per_batch=10)
    return Processes(options, 10, nullcontext(cluster))


def test_workers_of_a_cluster_have_the_updated_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda num: None)
    cluster, policy = InThisProcess(), linear()
    processes = processes_of(cluster, 2, policy)
    torch.nn.init.constant_(policy.module.weight, 0.2)
    processes.update_weights(None)
    torch.nn.init.constant_(policy.module.weight, 0.3)  # without an update
    for worker in (0, 1):
        processes.request(worker, random=False)
    for worker in (1, 0):
        batch = processes.batch(worker)
        expected = 0.2 * batch["observation"].sum(-1, keepdim=True)
        assert torch.allclose(batch["action"], expected)
    processes.close()


def test_a_worker_of_a_cluster_closes_its_environment_after_the_command_that_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda num: None)
    cluster = InThisProcess()
    processes = processes_of(cluster, 1)
    cluster.seconds = 0.2
    processes.request(0, random=True)
    processes.close()
    assert [worker.is_closed for worker in cluster.workers] == [True]


@pytest.mark.parametrize(
    ("failures", "found"),
    [
        ([LostWorker("at tcp://host died")], "at tcp://host died"),
        ([LostCluster("All of it is gone.")], "All of it is gone."),
        ([ModuleNotFoundError("No module named 'mine'")], "No module named 'mine'"),
    ],
)
def test_a_worker_that_is_lost_is_an_error(failures: list[Exception], found: str) -> None:
    with refused(RldsError, found=found):
        processes_of(InThisProcess(*failures), 1)


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"backend": "nccl"}, "backend"),
        ({"update_interval": 0}, "update_interval"),
        ({"collector_kwargs": {"init_random_frames": -2}}, "init_random_frames"),
    ],
)
def test_invalid_arguments_are_refused_by_name(arguments: dict[str, Any], argument: str) -> None:
    with refused(UsageError, argument=argument):
        DistributedCollector([make_env] * 2, **{"frames_per_batch": 10, **arguments})


@pytest.mark.parametrize("engine", ["dask", "slurm"])
def test_an_engine_without_a_cluster_is_refused(engine: Any) -> None:
    with pytest.raises(UsageError, match=engine):
        DistributedCollector([make_env] * 2, frames_per_batch=10, engine=engine)


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with DaskCluster(tmp_path_factory.mktemp("dask"), 3) as cluster:
        yield cluster


@pytest.mark.slow
def test_workers_of_dask_give_the_same_rows(dask: DaskCluster) -> None:
    engine: Any = {"engine": "dask", "address": dask.address}
    assert bool((rows(DistributedCollector, sync=True, **engine) == expected()).all())


@pytest.mark.slow
def test_a_cluster_of_dask_without_room_and_one_that_is_lost_are_errors(
    dask: DaskCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "ACTOR_SECONDS", 0.5)
    with pytest.raises(RldsError, match="Dask had no free worker"):
        DistributedCollector(
            [make_env] * 4, frames_per_batch=10, engine="dask", address=dask.address
        )
    collector = DistributedCollector(
        [make_env], frames_per_batch=10, engine="dask", address=dask.address
    )
    collector.next()
    dask.kill()
    # The scheduler and its workers end together: either may be missed first.
    with pytest.raises(
        RldsError, match=r"The scheduler of Dask at .* was lost|process 0 at .* died"
    ):
        for _ in range(3):
            collector.next()
    collector.shutdown()


@pytest.mark.slow
def test_actors_of_ray_give_the_same_rows() -> None:
    with ray_cluster():
        assert bool((rows(RayCollector, sync=True) == expected()).all())
