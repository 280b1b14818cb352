"""The share of offline rows, against TorchRL's buffer of the same purpose (pytorch/rl#3900)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchrl.data as theirs
from tensordict import TensorDict

from datasets_cli import OfflineToOnline, UsageError
from datasets_cli.replay import LinearAnneal
from tests.support.parity import ours

NUMBERS = torch.arange(100)


def filled(library: Any, kind: str) -> Any:
    made = getattr(library, kind)(storage=library.LazyTensorStorage(100))
    made.extend(TensorDict({"number": NUMBERS}, [100]))
    return made


def of_torchrl(fraction: float) -> Any:
    made = theirs.OfflineToOnlineReplayBuffer(
        filled(theirs, "ReplayBuffer"), online_capacity=100, offline_fraction=fraction
    )
    made.extend(TensorDict({"number": 100 + NUMBERS}, [100]))
    return made


def of_ours(**arguments: Any) -> OfflineToOnline:
    online = ours.TensorDictReplayBuffer(storage=ours.LazyTensorStorage(100))
    online.extend(TensorDict({"number": 100 + NUMBERS}, [100]))
    return OfflineToOnline(filled(ours, "TensorDictReplayBuffer"), online, **arguments)


def num_offline(buffer: Any, batch_size: int, num_batches: int = 1) -> int:
    return sum(int((buffer.sample(batch_size)["number"] < 100).sum()) for _ in range(num_batches))


def test_whole_shares_are_those_of_torchrl() -> None:
    for fraction, size in ((0.5, 64), (0.25, 8), (0.75, 12)):
        assert num_offline(of_torchrl(fraction), size) == num_offline(
            of_ours(fraction=fraction), size
        )


@pytest.mark.parametrize(("fraction", "size"), [(0.1, 4), (0.3, 5), (0.95, 8)])
def test_a_share_that_torchrl_rounds_in_each_batch_is_kept_over_many(
    fraction: float, size: int
) -> None:
    right = 100 * size * fraction
    assert num_offline(of_torchrl(fraction), size, 100) != pytest.approx(right, abs=0.5)
    assert num_offline(of_ours(fraction=fraction), size, 100) == pytest.approx(right, abs=0.5)


def test_an_annealed_share_follows_the_rows_written_without_a_call_in_the_loop() -> None:
    """TorchRL's moves when ``anneal`` is called with the step, which a resumed loop must know."""
    torchrls, both = of_torchrl(0.8), of_ours(fraction=0.8, anneal=LinearAnneal(to=0.0, over=500))
    for written in (200, 300, 400, 500):
        both.extend(TensorDict({"number": 100 + NUMBERS}, [100]))
        torchrls.anneal(written, 500)
        assert both.fraction == pytest.approx(torchrls.offline_fraction)
        assert num_offline(both, 100) == num_offline(torchrls, 100)


def test_torchrls_class_draws_torchrls_fractions() -> None:
    made = [
        library.OfflineToOnlineReplayBuffer(
            filled(library, "ReplayBuffer"),  # the index of another breaks TorchRL's
            online_storage=library.LazyTensorStorage(100),
            offline_fraction=0.25,
            batch_size=8,
        )
        for library in (ours, theirs)
    ]
    for step in (None, 0, 50, 100):
        if step is not None:
            for each in made:
                each.anneal(step, 100)
        counts = [(num_offline(each, 8), each.offline_fraction, len(each)) for each in made]
        assert counts[0] == counts[1]
        for each in made:
            each.extend(TensorDict({"number": 100 + NUMBERS[:30]}, [30]))
    with pytest.raises(UsageError) as error:
        ours.OfflineToOnlineReplayBuffer(made[0].offline_buffer)
    assert (error.value.argument, error.value.found) == ("online_capacity", "neither")


@pytest.mark.parametrize(("count", "written"), [(None, 100), (70, 70), (200, 100)])
def test_a_buffer_is_filled_with_as_many_rows_as_torchrl_draws(count: Any, written: int) -> None:
    for library in (ours, theirs):
        online = library.ReplayBuffer(storage=library.LazyTensorStorage(300), batch_size=2)
        source = filled(library, "TensorDictReplayBuffer")
        made = library.prefill_replay_buffer(online, source, n_samples=count, chunk_size=30)
        assert made is online and len(online) == written
        assert set(online[:]["number"].tolist()) <= set(range(100))


def test_a_prefix_names_the_family(tmp_path: Any) -> None:
    replay = ours.load_dataset("d4rl:demo/door-human", batch_size=4, root=tmp_path)
    assert type(replay) is ours.D4RLExperienceReplay and len(replay.sample()) == 4
    with pytest.raises(UsageError) as error:
        ours.load_dataset("openx:x")
    assert (error.value.argument, error.value.found) == ("dataset_id", "openx:x")
