"""The examples of TorchRL's pages on collectors and the trainer, with our buffers.

Environments, collectors and the trainer are TorchRL's own; its ``SyncDataCollector`` is called
``Collector`` today, and ``MultiSyncDataCollector`` ``MultiSyncCollector``. The examples stand as
the pages have them, but a collector that never ends is left after its first batch. What a page
prints is compared as keys, shapes, element types and batch sizes, which are all the page's.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    LazyMemmapStorage,
    LazyTensorStorage,
    PrioritizedSampler,
    ReplayBuffer,
    SliceSampler,
    TensorDictReplayBuffer,
)
from tests.support.interpreters import preloaded
from tests.support.pages import printed
from tests.support.paths import PROJECT

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl import data as theirs
    from torchrl.collectors import Collector as SyncDataCollector
    from torchrl.collectors import MultiSyncCollector as MultiSyncDataCollector
    from torchrl.envs import GymEnv, ParallelEnv, SerialEnv
    from torchrl.envs.utils import RandomPolicy
    from torchrl.trainers import ReplayBufferTrainer, Trainer


def make_env() -> GymEnv:
    return GymEnv("CartPole-v1")


def test_the_tutorial(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    env = GymEnv("CartPole-v1")
    env.set_seed(0)
    policy = RandomPolicy(env.action_spec)
    collector = SyncDataCollector(env, policy, frames_per_batch=200, total_frames=-1)
    for data in collector:
        print(data)
        break
    assert printed(capsys.readouterr().out) == page_of_cartpole(200)

    buffer = ReplayBuffer(storage=LazyMemmapStorage(max_size=1000))
    indices = buffer.extend(data)
    assert len(buffer) == collector.frames_per_batch
    assert torch.equal(indices, torch.arange(200))
    sample = buffer.sample(batch_size=30)
    print(sample)
    assert printed(capsys.readouterr().out) == page_of_cartpole(30)
    # "build a buffer and indicate its batch-size in the constructor, then try to iterate over it"
    rb = ReplayBuffer(storage=buffer.storage, batch_size=30)
    assert [len(batch) for batch, _ in zip(rb, range(3), strict=False)] == [30, 30, 30]
    collector.shutdown()


def page_of_cartpole(rows: int) -> dict[str, str]:
    flag, state, whole = f"bool [{rows}, 1]", f"float32 [{rows}, 4]", f"[{rows}]"
    found = {"": whole, "next": whole, "collector": whole}
    for at in ("", "next."):
        found |= {f"{at}{name}": flag for name in ("done", "terminated", "truncated")}
        found[f"{at}observation"] = state
    return found | {
        "action": f"int64 [{rows}, 2]",
        "collector.traj_ids": f"int64 [{rows}]",
        "next.reward": f"float32 [{rows}, 1]",
    }


def test_single_transitions_are_flattened_by_a_transform() -> None:
    # What is sampled is flattened, as TorchRL does: its page says that what is written would be.
    N, policy = 200, None  # noqa: N806 (the page's name)
    collector = SyncDataCollector(
        SerialEnv(4, make_env), policy, frames_per_batch=N, total_frames=N
    )
    memory = ReplayBuffer(storage=LazyTensorStorage(N), transform=lambda data: data.reshape(-1))
    oracle = theirs.ReplayBuffer(
        storage=theirs.LazyTensorStorage(N), transform=lambda data: data.reshape(-1)
    )
    for data in collector:
        memory.extend(data)
        oracle.extend(data)
    assert len(memory) == len(oracle) == 4
    assert memory.sample(3).shape == oracle.sample(3).shape == (150,)


def memory_of(size: int, ndim: int = 1) -> ReplayBuffer:
    return ReplayBuffer(
        storage=LazyTensorStorage(size, ndim=ndim),
        sampler=SliceSampler(num_slices=4, trajectory_key=("collector", "traj_ids")),
    )


def test_slices_of_one_environment() -> None:
    N, policy = 200, None  # noqa: N806
    env = make_env()
    # Single environment: no need for a multi-dimensional buffer
    memory = memory_of(N)
    collector = SyncDataCollector(env, policy, frames_per_batch=N, total_frames=-1)
    check_slices(memory, collector)


def slices_of_several_processes() -> None:
    """The examples of the page whose environments or collectors are processes."""
    N, policy = 200, None  # noqa: N806
    # Batched environments: a multi-dim buffer is required
    memory = memory_of(N, ndim=2)
    env = ParallelEnv(4, make_env)
    collector = SyncDataCollector(env, policy, frames_per_batch=N, total_frames=-1)
    check_slices(memory, collector)
    # MultiSyncDataCollector + regular env: behaves like a ParallelEnv if cat_results="stack"
    memory = memory_of(N, ndim=2)
    collector = MultiSyncDataCollector(
        [make_env] * 4, policy, frames_per_batch=N, total_frames=-1, cat_results="stack"
    )
    check_slices(memory, collector)
    # MultiSyncDataCollector + parallel env: the ndim must be adapted accordingly
    memory = memory_of(N, ndim=3)
    collector = MultiSyncDataCollector(
        [ParallelEnv(2, make_env)] * 4,
        policy,
        frames_per_batch=N,
        total_frames=-1,
        cat_results="stack",
    )
    check_slices(memory, collector)
    print("all three")


def check_slices(memory: ReplayBuffer, collector: Any) -> None:
    """Check slices of the first batch of a collector that never ends."""
    data = next(iter(collector))
    memory.extend(data)
    assert len(memory) == data.numel() == 200
    slices = memory.sample(16).reshape(4, 4)
    joined = slices["next", "observation"][:, :-1] == slices["observation"][:, 1:]
    assert bool(joined.all())
    assert all(len(ids.unique()) == 1 for ids in slices["collector", "traj_ids"])
    collector.shutdown()


def test_slices_of_several_environments_and_collectors() -> None:
    # In a process of its own, which has no threads yet, so that it can be forked 17 times.
    code = """
import torch
torch.set_num_threads(1)
torch.multiprocessing.set_start_method("fork")
from tests.torchrl import test_seed_collectors as page
page.slices_of_several_processes()
"""
    done = preloaded("-c", code, folder=PROJECT)
    assert done.stdout.splitlines()[-1:] == ["all three"], done.stderr


class Regression(torch.nn.Module):
    """A loss that leaves an error for every row, as a trainer's loss does."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4))

    def forward(self, batch: TensorDict) -> TensorDict:
        error = batch["observation"] @ self.weight - batch["next", "reward"].squeeze(-1)
        batch["td_error"] = error.detach()
        return TensorDict({"loss": error.square().mean()})


@pytest.mark.filterwarnings("ignore:The '.*' hook stage will be replaced:FutureWarning")
@pytest.mark.parametrize("placed", ["as on the page", "at the default locations"])
def test_a_trainer_uses_the_buffer(placed: str) -> None:
    N, loss = 16, Regression()  # noqa: N806
    trainer = Trainer(
        collector=SyncDataCollector(make_env(), None, frames_per_batch=50, total_frames=200),
        total_frames=200,
        frame_skip=1,
        optim_steps_per_batch=3,
        loss_module=loss,
        optimizer=torch.optim.SGD(loss.parameters(), 0.1),
        progress_bar=False,
    )
    replay_buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(1000), sampler=PrioritizedSampler(1000, 0.7, 0.5)
    )
    rb_trainer = ReplayBufferTrainer(replay_buffer=replay_buffer, batch_size=N)
    if placed == "as on the page":
        trainer.register_op("batch_process", rb_trainer.extend)
        trainer.register_op("process_optim_batch", rb_trainer.sample)
        trainer.register_op("post_loss", rb_trainer.update_priority)
    else:
        rb_trainer.register(trainer)
    trainer.train()
    assert len(replay_buffer) == 200
    state = rb_trainer.state_dict()
    priorities = state["replay_buffer"]["sampler"]["priorities"]
    assert len(priorities) == 200 and 12 < len(priorities.unique()) <= 1 + 12 * N
    drawn = replay_buffer.sample(N)["index"]
    rb_trainer.load_state_dict(state)
    assert torch.equal(replay_buffer.sample(N)["index"], drawn)
