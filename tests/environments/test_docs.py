"""What docs/collectors.md says is so."""

from __future__ import annotations

import re
from typing import Any

from datasets_cli import Collector, GymEnv, LazyTensorStorage, ReplayBuffer, SerialEnv
from tests.support.paths import PROJECT

TEXT = (PROJECT / "docs" / "collectors.md").read_text(encoding="utf-8")


def test_the_code_of_the_page_runs() -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(block, names)
    slices, rollout = names["slices"], names["rollout"]
    joined = slices["next", "observation"][:, :-1] == slices["observation"][:, 1:]
    assert bool(joined.all()) and names["batch"].shape == (4, 50)
    assert len(rollout) <= 50 and not rollout["next", "done"][:-1].any()


def test_a_transform_flattens_what_is_sampled_or_what_is_written() -> None:
    batch = Collector(SerialEnv(4, lambda: GymEnv("CartPole-v1")), frames_per_batch=200).next()
    sampled = ReplayBuffer(storage=LazyTensorStorage(200), transform=lambda data: data.reshape(-1))
    sampled.extend(batch)
    assert len(sampled) == 4
    written = ReplayBuffer(storage=LazyTensorStorage(200))
    written.append_transform(lambda data: data.reshape(-1), invert=True)
    written.extend(batch)
    assert len(written) == 200
