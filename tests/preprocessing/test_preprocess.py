"""preprocess(): the same bytes for every number of workers, resumed, never half-made."""

from __future__ import annotations

import importlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import ExperienceReplay, ReplayBuffer, preprocess
from datasets_cli.errors import RldsError, UsageError, WrongRows
from datasets_cli.preprocessing import execution, origin
from datasets_cli.store import manifest
from datasets_cli.store.check import check_digests
from tests.support.refusals import refused


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 200)


@pytest.fixture
def replay(door: str) -> ExperienceReplay:
    return ExperienceReplay(door, batch_size=32)


def noisy(batch: TensorDict) -> TensorDict:
    """A random function that names columns anew and drops the observation."""
    new = batch.select("episode", ("next", "reward"))
    new["noise"] = torch.rand(len(batch), 3) + batch["observation"][:, :3].double()
    return new


def files_of(storage: Any) -> dict[str, Any]:
    return dict(storage.dataset.manifest.files)


def test_a_run_in_this_process_reads_one_manifest(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, folders = manifest._from_document, []

    def counted(document: dict[str, Any]) -> Any:
        folders.append(document["id"])
        return read(document)

    monkeypatch.setattr(manifest, "_from_document", counted)
    preprocess(door, noisy, "noisy")  # in several chunks
    assert folders == [door]
    preprocess(door, noisy, "noisy")
    assert folders == [door, door, "derived/noisy"]


def test_what_is_soon_done_stays_in_this_process_however_long_it_took_so_far(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def where(batch: TensorDict) -> TensorDict:
        return batch.set("process", torch.full((len(batch),), os.getpid()))

    monkeypatch.setattr(execution, "LOOK_SECONDS", 0.0)
    preprocess(door, where, "where", num_workers=None)  # in several chunks
    assert ExperienceReplay("derived/where")["process"].unique().tolist() == [os.getpid()]


def test_the_bytes_are_the_same_for_every_number_of_workers_and_engine(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    alone = replay.preprocess(noisy, dest=tmp_path / "alone", num_workers=0)
    two = replay.preprocess(noisy, dest=tmp_path / "two", num_workers=2)
    with ThreadPoolExecutor(1) as executor:
        engine = replay.preprocess(noisy, dest=tmp_path / "engine", executor=executor)
        assert executor.submit(int, "1").result() == 1  # the executor is still its owner's
    assert files_of(alone) == files_of(two) == files_of(engine)
    other = replay.preprocess(noisy, dest=tmp_path / "other", num_workers=0, seed=1)
    assert files_of(other) != files_of(alone)


def test_the_result_is_a_read_only_storage_for_a_replay_buffer(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    storage = replay.preprocess(noisy, dest=tmp_path / "out", num_workers=0, pbar=True)
    buffer = ReplayBuffer(storage=storage, batch_size=16)
    buffer.sample()["noise"].zero_()
    check_digests(tmp_path / "out", storage.dataset.manifest)
    assert storage.dataset.manifest.parent["id"] == replay.dataset_id  # type: ignore[index]


def test_a_function_must_return_columns(replay: ExperienceReplay, tmp_path: Path) -> None:
    with pytest.raises(WrongRows):
        replay.preprocess(lambda batch: batch.select(), dest=tmp_path / "out", num_workers=0)
    assert not (tmp_path / "out").exists()


def test_a_destination_that_holds_something_is_refused(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("mine")
    with refused(UsageError, path=tmp_path):
        replay.preprocess(noisy, dest=tmp_path, num_workers=0)
    assert (tmp_path / "precious").read_text() == "mine"


def test_another_function_does_not_go_on_with_the_rows_of_the_first(
    replay: ExperienceReplay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "def f(batch):\n    if int(batch['episode'][-1]) == 3 and {fail}: raise ValueError\n"
    code += "    batch['action'][:] = {value}\n    return batch\n"
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "changing.py"
    module.write_text(code.format(fail=True, value=1))
    import changing

    with pytest.raises(RldsError):
        replay.preprocess(changing.f, dest=tmp_path / "out", num_workers=0)
    module.write_text(code.format(fail=False, value=2))
    changed = importlib.reload(changing)
    storage = replay.preprocess(changed.f, dest=tmp_path / "out", num_workers=0)
    assert bool((storage.column(("action",)) == 2).all())


def test_two_runs_of_one_destination_do_not_mix(replay: ExperienceReplay, tmp_path: Path) -> None:
    def attempt(value: int) -> Any:
        def constant(batch: TensorDict) -> TensorDict:
            return batch.set("action", torch.full_like(batch["action"], value))

        try:
            return replay.preprocess(constant, dest=tmp_path / "out", num_workers=0)
        except UsageError:
            return None

    with ThreadPoolExecutor(2) as pool:
        done = [storage for storage in pool.map(attempt, [1, 2]) if storage is not None]
    assert len(done) == 1
    assert len(done[0].column(("action",)).unique()) == 1


def test_a_reduction_gives_the_same_bits_wherever_it_runs(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    threads = []

    def counted(batch: TensorDict) -> TensorDict:
        threads.append(torch.get_num_threads())
        return batch

    before = torch.get_num_threads()
    replay.preprocess(counted, dest=tmp_path / "out", num_workers=0)
    assert set(threads) == {1}
    assert torch.get_num_threads() == before


def test_columns_of_odd_names_and_shapes_are_stored(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    def odd(batch: TensorDict) -> TensorDict:
        rewards = batch["next", "reward"].expand(-1, 2)
        parts = {"parts": {"x": batch["action"]}, "next": {"reward": rewards}}
        return TensorDict(parts, batch.batch_size)

    storage = replay.preprocess(odd, dest=tmp_path / "out", num_workers=0)
    assert torch.equal(storage.column(("parts", "x")), replay["action"])
    assert storage.column(("next", "reward")).shape == (1495, 2)


def test_a_destination_within_a_dataset_is_refused(replay: ExperienceReplay) -> None:
    with refused(UsageError, found=replay.data_path):
        replay.preprocess(noisy, dest=replay.data_path / "inner", num_workers=0)


def test_flags_of_another_shape_are_refused(replay: ExperienceReplay, tmp_path: Path) -> None:
    def doubled(batch: TensorDict) -> TensorDict:
        flags = torch.zeros(len(batch), 2, dtype=torch.bool)
        return TensorDict({"next": {"done": flags, "truncated": flags.clone()}}, batch.batch_size)

    with refused(WrongRows, key=("next", "truncated"), expected="0 or 1"):
        replay.preprocess(doubled, dest=tmp_path / "out", num_workers=0, num_frames=400)
    assert not (tmp_path / "out").exists()


def test_a_run_leaves_those_of_other_destinations_alone(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    theirs = tmp_path / f".out.v2.{'0' * 16}.partial"  # of a run to out.v2, under its own lock
    ours = tmp_path / f".out.{'0' * 16}.partial"  # of a killed run to out
    theirs.mkdir()
    ours.mkdir()
    replay.preprocess(noisy, dest=tmp_path / "out", num_workers=0)
    assert theirs.exists() and not ours.exists()
