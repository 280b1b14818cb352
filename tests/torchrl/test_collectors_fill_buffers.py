"""TorchRL's collectors of several processes, which write into a buffer of ours."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torchrl.data import Composite, Unbounded
from torchrl.envs import EnvBase

from datasets_cli import LazyMemmapStorage, LazyTensorStorage, ReplayBuffer, TensorDictReplayBuffer

with warnings.catch_warnings():  # TorchRL's modules use what TorchRL deprecates
    warnings.simplefilter("ignore")
    from torchrl.collectors import MultiAsyncCollector, MultiSyncCollector

LENGTH, FRAMES = 7, 60


class Counting(EnvBase):  # type: ignore[misc]
    """Each step counts one up; a trajectory has seven."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_spec = Composite(step=Unbounded((1,), dtype=torch.int64))
        self.action_spec = Unbounded((1,))
        self.reward_spec = Unbounded((1,))
        self.count = 0

    def _reset(self, tensordict: Any = None, **_: Any) -> TensorDict:
        self.count = 0
        return TensorDict({"step": torch.zeros(1, dtype=torch.int64)}, [])

    def _step(self, tensordict: TensorDict) -> TensorDict:
        self.count += 1
        done = torch.tensor([self.count == LENGTH])
        following = {"step": torch.tensor([self.count]), "reward": torch.tensor([1.0 * self.count])}
        return TensorDict(following | {"done": done, "terminated": done.clone()}, [])

    def _set_seed(self, seed: int | None) -> None:
        torch.manual_seed(seed or 0)


@pytest.mark.filterwarnings("ignore")  # TorchRL's own
@pytest.mark.parametrize(
    ("collector", "kind"),
    [
        (MultiSyncCollector, LazyTensorStorage),
        pytest.param(MultiAsyncCollector, LazyMemmapStorage, marks=pytest.mark.slow),
    ],
)
def test_torchrls_collectors_fill_a_buffer_of_ours(
    collector: Any, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(ReplayBuffer, "_storage"):  # which the collector asks whether it has rows
        monkeypatch.setattr(
            ReplayBuffer, "_storage", property(lambda buffer: buffer.storage), raising=False
        )
    buffer = TensorDictReplayBuffer(storage=kind(40), batch_size=8)
    filling = collector(
        [Counting, Counting],
        None,  # random actions
        frames_per_batch=20,
        total_frames=FRAMES,
        replay_buffer=buffer,
    )
    try:
        sizes = [len(buffer) for _ in filling]
    finally:
        filling.shutdown()
    assert len(sizes) == 3 and sizes[-1] == len(buffer) == 40  # a ring that is full
    assert buffer.shared and buffer.writer.write_count >= FRAMES
    rows = buffer[:]
    assert torch.equal(rows["next", "step"], rows["step"] + 1)
    assert torch.equal(rows["next", "reward"], rows["next", "step"].float())
    assert torch.equal(rows["next", "done"], rows["next", "step"] == LENGTH)
    assert set(rows["step"].flatten().tolist()) == {*range(LENGTH)}
    assert len(set(rows["collector", "traj_ids"].tolist())) > 4
