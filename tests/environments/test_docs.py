"""What docs/collectors.md says is so."""

from __future__ import annotations

from datasets_cli import Collector, GymEnv, LazyTensorStorage, ReplayBuffer, SerialEnv


def test_a_transform_flattens_what_is_sampled_or_what_is_written() -> None:
    batch = Collector(SerialEnv(4, lambda: GymEnv("CartPole-v1")), frames_per_batch=200).next()
    sampled = ReplayBuffer(storage=LazyTensorStorage(200), transform=lambda data: data.reshape(-1))
    sampled.extend(batch)
    assert len(sampled) == 4
    written = ReplayBuffer(storage=LazyTensorStorage(200))
    written.append_transform(lambda data: data.reshape(-1), invert=True)
    written.extend(batch)
    assert len(written) == 200
