"""Wrong arguments of a dataset's buffer and of the verbs: each is named, with what it may be."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import datasets_cli
from datasets_cli import (
    AtariDQNExperienceReplay,
    D4RLExperienceReplay,
    ExperienceReplay,
    Mixture,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    SliceSampler,
    open_storage,
)
from datasets_cli.errors import RldsError, Unsupported, UsageError
from datasets_cli.replay import DTypeCastTransform
from tests.support.refusals import check_refused, refused

BOOL = "must be True or False, not"

VALUES: list[tuple[dict[str, Any], str]] = [
    ({"replacement": "no"}, f"^replacement {BOOL} 'no'"),
    ({"contiguous": "x"}, f"^contiguous {BOOL} 'x'"),
    ({"strict_length": "x", "slice_len": 4}, f"^strict_length {BOOL} 'x'"),
    ({"pin_memory": 2}, f"^pin_memory {BOOL} 2"),
    ({"text": "x"}, f"^text {BOOL} 'x'"),
    ({"cast": "float16"}, f"^cast {BOOL} 'float16'.*DTypeCastTransform"),
    ({"cast": True}, "^cast=True is for format 'jax'.*DTypeCastTransform"),
    ({"download": "never"}, "^download must be True, False or 'force', not 'never'"),
    ({"generator": 3}, r"^generator must be a torch\.Generator, not 3\. .* seed"),
    ({"progress": 3}, "^progress must be a function or None, not 3"),
    ({"source": 3}, "^source must be text or None, not 3"),
    ({"options": 3}, "^options must be a mapping or None, not 3"),
    ({"root": 5}, "^root must be text, a path or None, not 5"),
    ({"collate_fn": 3}, "^collate_fn must be a function or None, not 3"),
    ({"frame_stack": "4"}, "^frame_stack must be a whole number from 1 on, not str '4'"),
    ({"num_slices": 2, "slice_len": 4}, "^Slices need either .* found num_slices=2, slice_len=4"),
    ({"device": "gpuu"}, "^device must be one that .*, 'cpu'.*, not 'gpuu'"),
    ({"device": 3.5}, "^device must be one that .*, 'cpu'.*, not 3.5"),
]


def test_a_wrong_value_is_named_with_what_it_may_be(door: str) -> None:
    check_refused(
        UsageError,
        [(words, partial(ExperienceReplay, door, **given)) for given, words in VALUES],
    )


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
    words = "^cast must be True or False, not 'float16'. transform=DTypeCastTransform"
    check_refused(UsageError, [(words, call) for call in calls])
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
    method = "^mp_start_method is 'bogus'; expected one of fork, spawn, forkserver"
    check_refused(
        UsageError,
        [
            (method, lambda: replay.preprocess(torch.nn.Identity(), dest="out", **started)),
            (method, lambda: AtariDQNExperienceReplay("Pong/5", **started)),
        ],
    )


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


def test_a_source_that_is_not_there_is_said_of_an_installed_dataset(
    door: str, caplog: pytest.LogCaptureFixture
) -> None:
    ExperienceReplay(door, source="nowhere")
    assert caplog.messages == [
        f"The source nowhere does not exist. The installed copy of {door} is used."
    ]


def test_a_score_of_what_is_no_number_is_refused(door: str) -> None:
    replay = ExperienceReplay(door)
    values: list[Any] = ["a", None, [1.0, "a"], np.array(["a"])]
    for value in values:
        with pytest.raises(UsageError):
            replay.get_normalized_score(value)


IDS: list[tuple[Callable[..., Any], str]] = [
    (ExperienceReplay, "^dataset_id must be text or a path, not 3"),
    (partial(datasets_cli.preprocess, fn=torch.nn.Identity(), out="x"), "^id must be text, not 3"),
    (datasets_cli.download, "^ids must be text or a list, not 3"),
    (datasets_cli.list_datasets, "^patterns must be text or a list, not 3"),
    (datasets_cli.dataset_info, "^id must be text, not 3"),
    (lambda id: datasets_cli.download([id]), "^A dataset's id is text, .*, not 3"),
]


def test_an_id_that_is_no_text_is_refused() -> None:
    check_refused(UsageError, [(words, partial(verb, 3)) for verb, words in IDS])


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
