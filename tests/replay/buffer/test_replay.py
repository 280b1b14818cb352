"""A dataset's buffer: what is drawn, what it carries, and which arguments are refused."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import minari
import numpy as np
import pytest
import torch
from tensordict import TensorDict

import datasets_cli
from datasets_cli import (
    AtariDQNExperienceReplay,
    D4RLExperienceReplay,
    ExperienceReplay,
    Mixture,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    SamplerWithoutReplacement,
    SliceSampler,
    open_storage,
)
from datasets_cli.errors import (
    DatasetNotInstalled,
    ImmutableError,
    RldsError,
    UnknownDataset,
    Unsupported,
    UsageError,
    WrongSize,
)
from datasets_cli.replay import DTypeCastTransform
from datasets_cli.store import manifest
from tests.support.refusals import check_refused, refused

# Sampling: what is drawn, what it carries, and that the same seed draws the same.


@pytest.fixture
def replay(door: str) -> ExperienceReplay:
    return ExperienceReplay(door, batch_size=32, seed=0)


def leaf(folder: Path, name: str, dtype: str, *shape: int) -> torch.Tensor:
    """Read a leaf's file without the project's reader."""
    return torch.from_numpy(np.fromfile(folder / name, dtype).reshape(-1, *shape))


def test_a_batch_holds_the_rows_that_its_index_names(replay: ExperienceReplay) -> None:
    batch = replay.sample()
    rows = leaf(replay.data_path, "observation.memmap", "float32", 39)
    following = leaf(replay.data_path, "next/observation.memmap", "float32", 39)
    assert batch.batch_size == (32,)
    assert batch["index"].dtype == torch.int64
    assert torch.equal(batch["observation"], rows[batch["index"]])
    assert torch.equal(batch["next", "observation"], following[batch["index"]])


def test_the_batch_size_of_the_call_overrides_the_buffers(replay: ExperienceReplay) -> None:
    batch, info = replay.sample(5, return_info=True)
    assert batch.batch_size == (5,)
    assert torch.equal(info["index"], batch["index"])


def test_a_generator_draws_as_its_seed_does(door: str) -> None:
    generator = torch.Generator().manual_seed(7)
    replay = ExperienceReplay(door, batch_size=64, generator=generator)
    seeded = ExperienceReplay(door, batch_size=64, seed=7)
    assert torch.equal(replay.sample()["index"], seeded.sample()["index"])
    with refused(UsageError, argument="seed", found=7):
        ExperienceReplay(door, generator=generator, seed=7)


def test_without_replacement_every_row_comes_once_and_the_last_batch_is_short(door: str) -> None:
    replay = ExperienceReplay(door, batch_size=100, replacement=False, seed=0)
    batches = [batch["index"] for batch in replay]
    assert [len(batch) for batch in batches] == [100] * 14 + [95]
    assert torch.equal(torch.cat(batches).sort().values, torch.arange(1495))
    assert not torch.equal(batches[0], next(iter(replay))["index"])


def test_drop_last_leaves_out_the_short_batch_and_no_shuffle_keeps_the_order(door: str) -> None:
    sampler = SamplerWithoutReplacement(drop_last=True, shuffle=False)
    replay = ExperienceReplay(door, batch_size=100, sampler=sampler)
    drawn = torch.cat([batch["index"] for batch in replay])
    assert torch.equal(drawn, torch.arange(1400))
    with refused(WrongSize, argument="batch_size", found=2000):
        replay.sample(2000)
    assert [len(replay.sample(size)) for size in (700, 900)] == [700, 900]


def check_slices(batch: TensorDict, slice_len: int, offsets: torch.Tensor) -> None:
    slices = batch["index"].view(-1, slice_len)
    assert torch.equal(slices, slices[:, :1] + torch.arange(slice_len))
    episodes = torch.bucketize(slices, offsets, right=True) - 1
    assert bool((episodes == episodes[:, :1]).all())
    assert torch.equal(episodes.flatten(), batch["episode"])
    ends = batch["next", "truncated"].view(-1, slice_len)
    assert bool(ends[:, -1].all())
    assert bool(batch["next", "done"].view(-1, slice_len)[:, -1].all())


@pytest.mark.parametrize("arguments", [{"num_slices": 8}, {"slice_len": 16}])
def test_slices_are_consecutive_rows_of_one_trajectory(door: str, arguments: Any) -> None:
    replay = ExperienceReplay(door, batch_size=128, seed=0, **arguments)
    for _ in range(5):
        check_slices(replay.sample(), 16, replay.storage.offsets)


def test_too_long_slices_are_refused_or_shortened(door: str) -> None:
    size: Any
    for size in {"num_slices": 2}, {"slice_len": 1000}, {"slice_len": 1000, "frame_stack": 2}:
        with refused(WrongSize, argument="slice_len", expected="at most 299", found=1000):
            ExperienceReplay(door, batch_size=2000, **size)
    too_long = SliceSampler(slice_len=300)
    with refused(WrongSize, argument="slice_len", found=300):
        ReplayBuffer(storage=ExperienceReplay(door).storage, sampler=too_long)
    replay = ExperienceReplay(door, batch_size=2000, num_slices=2, strict_length=False, seed=0)
    batch = replay.sample()
    lengths = replay.storage.offsets.diff()
    drawn = batch["episode"][batch["next", "truncated"][:, 0]]
    assert len(drawn) == 2
    assert len(batch) == int(lengths[drawn].sum())


def test_indexing_gives_rows_slices_masks_and_columns(replay: ExperienceReplay) -> None:
    rows = leaf(replay.data_path, "action.memmap", "float32", 28)
    assert torch.equal(replay[3]["action"], rows[3])
    assert torch.equal(replay[-1]["action"], rows[-1])
    assert torch.equal(replay[2:5]["action"], rows[2:5])
    assert torch.equal(replay[5:2:-1]["action"], rows[[5, 4, 3]])
    assert torch.equal(replay[[4, 1]]["action"], rows[[4, 1]])
    grid = torch.tensor([[4, 1], [0, 0]])
    assert torch.equal(replay[grid]["action"], rows[grid])
    assert torch.equal(replay[rows[:, 0] > 0]["action"], rows[rows[:, 0] > 0])
    assert torch.equal(replay["action"], rows)
    assert replay["next", "reward"].shape == (1495, 1)
    assert set(replay["next"].keys()) >= {"observation", "reward", "done"}


@pytest.mark.parametrize("index", [1495, -1496, [0, 5000], 1.5, torch.ones(3, dtype=torch.bool)])
def test_a_row_that_does_not_exist_is_an_index_error(replay: ExperienceReplay, index: Any) -> None:
    with pytest.raises(IndexError):
        replay[index]


def test_a_transform_sees_every_batch_and_may_change_it(door: str) -> None:
    def double(batch: TensorDict) -> TensorDict:
        batch["observation"] *= 2
        return batch

    replay = ExperienceReplay(door, batch_size=8, transform=double)
    replay.append_transform(lambda batch: batch.select("observation", "index"))
    batch = replay.sample()
    rows = leaf(replay.data_path, "observation.memmap", "float32", 39)
    assert set(batch.keys()) == {"observation", "index"}
    assert torch.equal(batch["observation"], 2 * rows[batch["index"]])


def test_a_transform_that_returns_nothing_is_named(door: str) -> None:
    with refused(UsageError, expected="a batch"):
        ExperienceReplay(door, batch_size=8, transform=lambda batch: None).sample()


def test_iteration_without_a_batch_size_is_refused(door: str) -> None:
    for read in (lambda: next(iter(ExperienceReplay(door))), ExperienceReplay(door).sample):
        with refused(UsageError, argument="batch_size"):
            read()


def test_iteration_with_replacement_does_not_end(replay: ExperienceReplay) -> None:
    batches: Iterator[Any] = iter(replay)
    assert sum(len(next(batches)) for _ in range(100)) == 3200


def test_a_plain_replay_buffer_keeps_the_index_apart(replay: ExperienceReplay) -> None:
    buffer = ReplayBuffer(storage=open_storage(replay.data_path), sampler=RandomSampler())
    batch, info = buffer.sample(4, return_info=True)
    assert "index" not in list(batch.keys())
    assert torch.equal(batch["action"], replay[info["index"]]["action"])


def test_the_q_learning_dataset_is_numpy_of_the_whole(replay: ExperienceReplay) -> None:
    columns = replay.qlearning_dataset()
    rows = leaf(replay.data_path, "observation.memmap", "float32", 39)
    assert np.array_equal(columns["observations"], rows.numpy())
    assert {name: (c.dtype.name, c.shape[1:]) for name, c in columns.items()} == {
        "observations": ("float32", (39,)),
        "actions": ("float32", (28,)),
        "next_observations": ("float32", (39,)),
        "rewards": ("float32", ()),
        "terminals": ("bool", ()),
        "timeouts": ("bool", ()),
    }


def test_scores_are_normalised_by_the_published_references(replay: ExperienceReplay) -> None:
    assert replay.get_normalized_score(-56.512833) == pytest.approx(0)
    assert replay.get_normalized_score(2880.5693087298737) == pytest.approx(1)


@pytest.mark.parametrize(
    "returns",
    [
        *(1200, 1200.1, np.float32(1200.1), np.float64(1200.1), np.float32([[1200.1], [7.3]])),
        *(np.array([1200.1, -3.3]), np.arange(3), torch.tensor([1200.1, 7.3])),
    ],
)
def test_scores_are_of_the_kind_and_the_bits_that_minari_gives(
    replay: ExperienceReplay, returns: Any
) -> None:
    theirs = SimpleNamespace(storage=SimpleNamespace(metadata=replay.metadata))
    expected: Any = minari.get_normalized_score(theirs, returns)  # type: ignore[arg-type]
    found = replay.get_normalized_score(returns)
    assert type(found) is type(expected)
    assert getattr(found, "dtype", float) == getattr(expected, "dtype", float)
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()
    numbers = np.asarray(returns).tolist()
    assert replay.get_normalized_score([numbers]) == [replay.get_normalized_score(numbers)]


@pytest.mark.parametrize("download", [False, True])
def test_the_manifest_of_what_is_there_is_not_read_again_and_again(
    download: bool, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []
    original = manifest.parse
    monkeypatch.setattr(manifest, "parse", lambda data: parsed.append(data) or original(data))
    ExperienceReplay(door, download=download)
    assert len(parsed) == 1


def test_download_false_opens_only_what_is_installed(door: str) -> None:
    assert len(ExperienceReplay(door, download=False)) == 1495
    with pytest.raises(DatasetNotInstalled):
        ExperienceReplay("pen-human-v1", download=False)
    with pytest.raises(UnknownDataset):
        ExperienceReplay("nosuch", download=False)
    with refused(UsageError, argument="download", found="yes"):
        ExperienceReplay(door, download="yes")


def test_delete_removes_the_dataset_and_leaves_the_open_buffer_valid(
    replay: ExperienceReplay,
) -> None:
    replay.delete()
    assert not replay.data_path.exists()
    assert replay.sample().batch_size == (32,)


def test_a_dataset_is_never_written_to(replay: ExperienceReplay) -> None:
    for write in (replay.add, replay.extend):
        with refused(ImmutableError):
            write(replay[:1])
    with refused(ImmutableError):
        replay[0] = replay[1]


def test_an_index_of_narrow_integers_does_not_wrap_around(replay: ExperienceReplay) -> None:
    last = replay[-1]["action"]
    assert torch.equal(replay[np.array([-1], np.int8)]["action"][0], last)


@pytest.mark.parametrize("index", [slice(None, None, -1), torch.arange(1495), slice(None)])
def test_every_way_to_ask_for_too_many_rows_is_refused(
    replay: ExperienceReplay, index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets_cli.core.system_errors.free_memory", lambda: 1000)
    monkeypatch.setattr("datasets_cli.core.system_errors.SMALL_BYTES", 0)
    with refused(WrongSize, expected="500 bytes at most"):
        replay[index]


def test_another_layout_than_the_installed_one_is_refused(door: str) -> None:
    for download in (True, False):
        with pytest.raises(UsageError):
            ExperienceReplay(door, layout="compact", download=download)


# Wrong arguments of a dataset's buffer and of the verbs: each is named, with what it may be.
WRONG: list[dict[str, Any]] = [
    {"replacement": "no"},
    {"contiguous": "x"},
    {"slice_len": 4, "strict_length": "x"},
    {"pin_memory": 2},
    {"text": "x"},
    {"cast": "float16"},
    {"download": "never"},
    {"generator": 3},
    {"progress": 3},
    {"source": 3},
    {"options": 3},
    {"root": 5},
    {"collate_fn": 3},
    {"frame_stack": "4"},
    {"num_slices": 2, "slice_len": 4},
    {"device": "gpuu"},
    {"device": 3.5},
]
"""Arguments, the last of which is at fault."""


def test_a_wrong_value_is_named_with_what_it_may_be(door: str) -> None:
    for arguments in WRONG:
        name = [*arguments][-1]
        with refused(UsageError, argument=name, found=arguments[name]):
            ExperienceReplay(door, **arguments)
    with refused(UsageError, argument="cast", found="torch"):
        ExperienceReplay(door, cast=True)


def test_a_folder_in_place_of_an_id_is_told_what_to_write(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = ExperienceReplay(door)
    dataset, root = str(replay.data_path), str(replay.config.root)
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    cases = [
        (f"Pass root={root!r} to find the datasets", root),
        ("source for a folder of a publisher's raw files", str(tmp_path)),
        ("^mine is not a known dataset.* root is for the folder", "mine"),
    ]
    for words, folder in cases:
        with pytest.raises(RldsError, match=words if words[0] == "^" else re.escape(words)):
            ExperienceReplay(folder)
    opened = open_storage(dataset), ExperienceReplay(dataset), ExperienceReplay(door, root=root)
    assert {len(each) for each in opened} == {len(replay)}


def test_an_element_type_in_place_of_cast_is_told_the_transform(door: str) -> None:
    replay, wrong = ExperienceReplay(door, 4), "float16"
    calls: list[Callable[[], Any]] = [
        lambda: replay.with_format("jax", cast=wrong),
        lambda: replay.sequences(4, cast=wrong),
        lambda: ReplayBufferEnsemble(replay, cast=wrong),
    ]
    expected = {"argument": "cast", "found": "float16"}
    for refusal in check_refused(UsageError, [(expected, call) for call in calls]):
        assert "DTypeCastTransform" in str(refusal)
    transform = DTypeCastTransform(torch.float32, torch.float16)
    assert ExperienceReplay(door, 4, transform=transform).sample()["action"].dtype == torch.float16


@pytest.mark.skipif(torch.cuda.is_available(), reason="There is such a device.")
def test_a_device_that_is_not_there_is_refused(door: str) -> None:
    with refused(UsageError, argument="device", found="cuda"):
        ExperienceReplay(door, device="cuda")


def test_a_word_of_torchrls_that_would_do_nothing_is_refused(door: str) -> None:
    replay = ExperienceReplay(door)
    hooks = [replay.register_save_hook, replay.register_load_hook]
    for register in hooks:
        with pytest.raises(Unsupported) as unused:
            register(lambda rows: rows)
        assert unused.value.id == door
        assert "preprocess()" in str(unused.value.advice)
    started: dict[str, Any] = {"mp_start_method": "bogus"}
    for call in (
        lambda: replay.preprocess(torch.nn.Identity(), dest="out", **started),
        lambda: AtariDQNExperienceReplay("Pong/5", **started),
    ):
        with refused(UsageError, argument="mp_start_method", found="bogus"):
            call()


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_start_method_that_is_not_used_is_warned_of_once(
    door: str, tmp_path: Path, method: str
) -> None:
    asked: dict[str, Any] = {"mp_start_method": method}
    calls: list[Callable[[], object]] = [
        lambda: ExperienceReplay(door).preprocess(
            lambda rows: rows, dest=tmp_path / "out", **asked
        ),
        lambda: AtariDQNExperienceReplay("demo/pong", strict_len=True, **asked),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", UserWarning)
            call()
        said = [(each.filename, str(each.message)) for each in told if each.category is UserWarning]
        assert [file for file, _ in said] == [__file__] * (method != "spawn")
        assert all(f"mp_start_method={method!r} has no effect" in text for _, text in said)


def test_the_page_s_first_argument_of_d4rl_is_its_name(door: str) -> None:
    replay = D4RLExperienceReplay(name=door.removeprefix("d4rl/"))
    assert replay.dataset_id == door and replay.dataset_id in replay.available_datasets
    assert door.removeprefix("d4rl/") in replay.available_datasets
    assert "minari/door-human-v0" not in replay.available_datasets
    with refused(UsageError, argument="name"):
        D4RLExperienceReplay(dataset_id="a", name="b")


def test_what_a_sampler_overrides_is_said(door: str) -> None:
    given: list[tuple[dict[str, Any], str]] = [
        ({"replacement": False}, "^replacement=False without an effect"),
        ({"num_slices": 2}, "^num_slices=2 without an effect: sampler= overrides it"),
    ]
    for arguments, words in given:
        for kind in (ExperienceReplay, D4RLExperienceReplay):
            with pytest.warns(UserWarning, match=words):
                kind(door.removeprefix("d4rl/"), sampler=RandomSampler(), **arguments)
    with pytest.warns(UserWarning, match=given[0][1]):
        ExperienceReplay(door).sequences(4, sampler=RandomSampler(), replacement=False)


def test_slices_of_a_family_override_nothing(door: str, recwarn: pytest.WarningsRecorder) -> None:
    D4RLExperienceReplay(door.removeprefix("d4rl/"), slice_len=2, replacement=False)
    ExperienceReplay(door, slice_len=2, replacement=False)
    assert not [each for each in recwarn if "without an effect" in str(each.message)]


def test_a_score_of_what_is_no_number_is_refused(door: str) -> None:
    replay = ExperienceReplay(door)
    values: list[Any] = ["a", None, [1.0, "a"], np.array(["a"])]
    for value in values:
        with pytest.raises(UsageError):
            replay.get_normalized_score(value)


IDS: list[tuple[Callable[..., Any], str]] = [
    (ExperienceReplay, "dataset_id"),
    (partial(datasets_cli.preprocess, fn=torch.nn.Identity(), name="x"), "id"),
    (datasets_cli.download, "ids"),
    (datasets_cli.list_datasets, "patterns"),
    (datasets_cli.dataset_info, "id"),
    (lambda id: datasets_cli.download([id]), "id"),
]


def test_an_id_that_is_no_text_is_refused() -> None:
    for verb, argument in IDS:
        with refused(UsageError, argument=argument, found=3):
            verb(3)


MISSPELT: list[tuple[Callable[[], Any], str]] = [
    (lambda: ExperienceReplay("demo/iris", batchsize=3), "batch_size"),
    (lambda: D4RLExperienceReplay("door-human-v0", batchsize=3), "batch_size"),
    (lambda: ReplayBuffer(storge=3), "storage"),
    (lambda: SliceSampler(slicelen=3), "slice_len"),
    (lambda: Mixture([], wieghts=3), "weights"),
    (lambda: datasets_cli.download("demo/iris", lay_out="ted"), "layout"),
]


def test_a_misspelt_keyword_is_named_with_the_one_that_was_meant() -> None:
    check_refused(TypeError, [(f"; did you mean '{meant}'", call) for call, meant in MISSPELT])


def test_the_signature_begins_with_what_users_give_most() -> None:
    names = [*inspect.signature(ExperienceReplay).parameters]
    assert names[:13] == [
        *("dataset_id", "batch_size", "root", "download", "layout", "sampler", "num_slices"),
        *("slice_len", "strict_length", "replacement", "transform", "prefetch", "pin_memory"),
    ]
    assert names.index("seed") < min(map(names.index, ("options", "num_workers", "frame_stack")))
