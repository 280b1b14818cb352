"""Offline and online rows kept as a reference and the written rows, and continued from there."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    ExperienceReplay,
    LazyTensorStorage,
    OfflineToOnline,
    PrioritizedSampler,
    SamplerWithoutReplacement,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import WrongState
from datasets_cli.replay import LinearAnneal
from tests.replay.mixing.test_offline_to_online import buffer, pair, rows
from tests.support.refusals import refused

STEPS = 60


def made(door: str, seed: int, sampler: Any = None) -> OfflineToOnline:
    """Return one that draws by priority online, and without replacement or as asked offline."""
    offline = ExperienceReplay(door, sampler=sampler or SamplerWithoutReplacement())
    online = TensorDictReplayBuffer(
        storage=LazyTensorStorage(150), sampler=PrioritizedSampler(150, 0.7, 0.5)
    )
    anneal = LinearAnneal(to=0.2, over=200)
    return OfflineToOnline(
        offline, online, fraction=0.7, anneal=anneal, min_online=15, seed=seed, batch_size=11
    )


def train(both: OfflineToOnline, source: TensorDict, start: int) -> Iterator[TensorDict]:
    """Yield a batch a step, with rows written and priorities updated in between."""
    for step in range(start, STEPS):
        both.extend(source[4 * step : 4 * step + 4])
        batch = both.sample()
        batch["td_error"] = batch["action"].abs().sum(-1)
        both.update_tensordict_priority(batch)
        yield batch


@pytest.mark.parametrize("by", ["state", "saved", "dump", "pickle"])
def test_a_run_continues_with_the_same_batches_from_every_tenth_one(
    door: str, by: str, tmp_path: Path
) -> None:
    source = ExperienceReplay(door)[:300]
    run, expected, kept = made(door, 0), [], {}
    for step, batch in enumerate(train(run, source, 0)):
        expected.append(batch)
        if step % 10 == 9:
            kept[step + 1] = keep(run, by, tmp_path / str(step))
    fractions = {(batch["index", "buffer_ids"] == 0).sum().item() for batch in expected}
    assert len(fractions) > 4, "the fraction moves"
    for start, state in kept.items():
        resumed = restored(made(door, 1), state, by)
        for batch, right in zip(train(resumed, source, start), expected[start:], strict=True):
            assert bool((batch == right).all())


def keep(run: OfflineToOnline, by: str, folder: Path) -> Any:
    if by == "dump":
        run.dumps(folder)
        return folder
    if by == "saved":
        torch.save(run.state_dict(), file := io.BytesIO())
        return file.getvalue()
    return pickle.dumps(run) if by == "pickle" else copy.deepcopy(run.state_dict())


def restored(fresh: OfflineToOnline, kept: Any, by: str) -> OfflineToOnline:
    if by == "pickle":
        return pickle.loads(kept)
    if by == "dump":
        fresh.loads(kept)
    else:
        fresh.load_state_dict(torch.load(io.BytesIO(kept)) if by == "saved" else kept)
    return fresh


def test_a_dataset_is_kept_as_a_reference_and_written_rows_whole(door: str, tmp_path: Path) -> None:
    both = made(door, 0)
    both.extend(ExperienceReplay(door)[:20])
    state = both.state_dict()
    assert "rows" not in state["offline"] and "rows" in state["online"]
    assert state["offline"]["dataset"]["content"] == both.offline.manifest.content
    both.dumps(tmp_path / "kept")
    dumped = torch.load(tmp_path / "kept" / "buffer.pt")
    assert dumped.keys() == {"offline", "online", "share"} and "rows" not in dumped["offline"]


def test_another_dataset_is_refused_and_nothing_changes(door: str, tmp_path: Path) -> None:
    run = made(door, 0)
    run.extend(ExperienceReplay(door)[:20])
    run.dumps(tmp_path)
    other = OfflineToOnline(
        buffer(10), run.online, fraction=0.7, anneal=LinearAnneal(to=0.2, over=200), min_online=15
    )
    before = other.state_dict()
    for load, kept in ((other.loads, tmp_path), (other.load_state_dict, run.state_dict())):
        with pytest.raises(WrongState) as error:
            load(kept)  # type: ignore[operator]
        assert error.value.id == door
    assert before["share"] == other.state_dict()["share"]
    assert torch.equal(before["online"]["generator"], other.state_dict()["online"]["generator"])


def test_a_view_is_kept_as_a_reference_and_another_view_is_refused(door: str) -> None:
    def of_view(count: int) -> OfflineToOnline:
        both = OfflineToOnline(ExperienceReplay(door).take(count, by="-return"), buffer(0), seed=0)
        both.extend(ExperienceReplay(door)[:20])
        return both

    run, resumed = of_view(2), of_view(2)
    run.sample(7)
    resumed.load_state_dict(run.state_dict())
    assert bool((resumed.sample(7) == run.sample(7)).all())
    with pytest.raises(WrongState):
        of_view(3).load_state_dict(run.state_dict())


def test_another_fraction_is_refused_with_both_named(tmp_path: Path) -> None:
    run = pair(fraction=0.5, anneal=LinearAnneal(to=0.1, over=10))
    run.dumps(tmp_path)
    other = pair(fraction=0.25, anneal=lambda fraction, written: fraction)
    for load, kept in ((other.loads, tmp_path), (other.load_state_dict, run.state_dict())):
        with refused(WrongState, expected="fraction=0.25, anneal='a function'"):
            load(kept)  # type: ignore[operator]


def test_what_is_no_state_is_refused(tmp_path: Path) -> None:
    both = pair()
    for state in ({}, None, both.online.state_dict()):
        with pytest.raises(WrongState) as error:
            both.load_state_dict(state)  # type: ignore[arg-type]
        assert error.value.expected == ["offline", "online", "share"]
    for carried in (None, 0.75, float("nan")):
        state = both.state_dict()
        state["share"]["carried"] = carried
        with refused(WrongState, key="carried"):
            both.load_state_dict(state)
    both.online.dumps(tmp_path)
    with pytest.raises(WrongState) as error:
        both.loads(tmp_path)
    assert error.value.path == tmp_path


@pytest.mark.parametrize("stops_at", ["offline", "online"])
def test_a_dump_that_stops_within_leaves_the_older_one(
    stops_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = pair(10)
    both.dumps(tmp_path)
    both.extend(rows([600]))

    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(getattr(both, stops_at).persistence, "dump_state", stop)
    with pytest.raises(KeyboardInterrupt):
        both.dumps(tmp_path)
    found = pair(0)
    found.loads(tmp_path)
    assert len(found.online) == 10


def test_the_rows_of_an_experiment_are_the_offline_rows_of_the_next(tmp_path: Path) -> None:
    """What users of flashbax ask for (instadeepai/flashbax#69)."""
    first = pair(40)
    first.online.dumps(tmp_path)
    earlier = buffer(0)
    earlier.loads(tmp_path)
    second = OfflineToOnline(earlier, buffer(0), batch_size=10)
    second.extend(rows(range(900, 910)))
    batch = second.sample()
    old, new = batch["number"][:5], batch["number"][5:]
    assert set(old.tolist()) <= {*range(500, 540)} and set(new.tolist()) <= {*range(900, 910)}
