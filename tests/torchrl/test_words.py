"""TorchRL's keywords: of methods, with an effect, and rejected with the name of the class."""

from __future__ import annotations

import ast
import functools
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    AtariDQNExperienceReplay,
    D4RLExperienceReplay,
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    SliceSampler,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorStorage,
)
from datasets_cli.errors import EmptyBuffer, Unsupported, UsageError
from datasets_cli.torchrl import PrioritizedReplayBuffer, TensorDictPrioritizedReplayBuffer
from datasets_cli.torchrl.keywords import KEYWORDS
from tests.support.paths import PROJECT
from tests.support.torchrl_names import PAIRS, accepts, defaults, torchrl

# A keyword with another name here: no script passes it by name.
RENAMED = {
    ("extend", "tensordicts"): "data",
    ("update_tensordict_priority", "data"): "batch",
    ("load_state_dict", "state_dict"): "state",
}
METHODS = """add append_transform dump dumps empty extend insert_transform load load_state_dict
loads preprocess query register_load_hook register_save_hook sample save set_ set_at_ set_rng
set_sampler set_storage set_writer state_dict stats update_ update_priority
update_tensordict_priority"""


@pytest.mark.parametrize("name", [name for name in PAIRS if "ReplayBuffer" in name])
def test_every_keyword_of_a_buffers_methods_is_one_of_ours(name: str) -> None:
    theirs, ours = PAIRS[name]
    for method in METHODS.split():
        their_method = getattr(theirs, method, None)
        if their_method is None or not hasattr(ours, method):
            continue  # an ensemble leaves some to its members
        lacking = defaults(their_method).keys() - accepts(getattr(ours, method))
        assert lacking <= {word for verb, word in RENAMED if verb == method}, method


ROWS = TensorDict({"a": torch.arange(6), "td_error": torch.rand(6)}, [6])


def test_the_buffers_keywords_reach_a_dataset_and_an_ensemble(door: str) -> None:
    words = defaults(PAIRS["TensorDictReplayBuffer"][0]) | defaults(PAIRS["ReplayBuffer"][0])
    replay = D4RLExperienceReplay(door.removeprefix("d4rl/"), **(words | {"batch_size": 4}))
    assert replay.sample().shape == (4,) and replay.priority_key == "td_error"
    members = [ReplayBuffer(storage=TensorStorage(ROWS)) for _ in range(2)]
    words = defaults(PAIRS["ReplayBufferEnsemble"][0]) | {"batch_size": 4}
    assert ReplayBufferEnsemble(*members, **words).sample().shape == (2, 2)


WRONG: list[tuple[Any, str, Any]] = [
    (ReplayBuffer, "service_backend", "ray"),
    (TensorDictReplayBuffer, "transport", "distributed"),
    (TensorDictReplayBuffer, "consume_after_n_samples", 1),
    (ReplayBuffer, "sample_unit", "sequence"),
    (functools.partial(TensorDictPrioritizedReplayBuffer, alpha=1, beta=1), "sync", False),
    (ListStorage, "device", "cuda"),
    (functools.partial(LazyTensorStorage, 9), "consolidated", True),
    (functools.partial(D4RLExperienceReplay, "hopper"), "storage", ListStorage(3)),
]


@pytest.mark.parametrize(("make", "word", "value"), WRONG)
def test_an_unsupported_value_is_rejected_with_the_name_of_the_class(
    make: Any, word: str, value: Any
) -> None:
    name = getattr(make, "func", make).__name__
    with pytest.raises(Unsupported) as caught:
        make(**{word: value})
    error = caught.value
    assert str(error).startswith(f"{name} ")
    assert (error.argument, error.found) == (word, value) and error.expected and error.advice


def test_the_error_names_a_derived_class() -> None:
    class Mine(ReplayBuffer):
        pass

    with pytest.raises(Unsupported) as error:
        Mine(transport=3)
    assert str(error.value).startswith("Mine ")
    with pytest.raises(TypeError, match=r"Mine.*'shard'; did you mean 'shared'"):
        Mine(shard=True)


@pytest.mark.parametrize("word", sorted(KEYWORDS["AtariDQNExperienceReplay"]))
def test_help_shows_each_word_with_the_values_that_it_takes(word: str) -> None:
    found = inspect.signature(AtariDQNExperienceReplay).parameters[word]
    assert found.annotation.startswith(("Literal[", "Callable["))
    assert found.annotation == f"Literal[{found.default!r}]" or "," in found.annotation


def test_parts_may_be_given_as_classes_and_functions() -> None:
    buffer = TensorDictReplayBuffer(
        storage=functools.partial(LazyTensorStorage, 20),
        sampler=SliceSamplerOfTwo,
        writer=TensorDictMaxValueWriter,
        transform_factory=lambda: lambda batch: batch.set("b", batch["a"] + 1),
        batch_size=4,
    )
    assert (buffer.storage.max_size, type(buffer.writer)) == (20, TensorDictMaxValueWriter)  # type: ignore[attr-defined]
    assert type(buffer.sampler) is SliceSamplerOfTwo and len(buffer.transform) == 1
    assert type(ReplayBuffer(storage=ListStorage, sampler=RandomSampler).storage) is ListStorage
    with pytest.raises(UsageError) as error:
        ReplayBuffer(transform=dict, transform_factory=lambda: dict)
    assert error.value.argument == "transform_factory"


class SliceSamplerOfTwo(SliceSampler):
    def __init__(self) -> None:
        super().__init__(slice_len=2)


def test_a_prioritised_buffer_takes_a_sampler_or_its_device() -> None:
    sampler = PrioritizedSampler(1000, 0.7, 0.5)
    made = PrioritizedReplayBuffer(alpha=1, beta=1, sampler=sampler)
    assert made.sampler is sampler
    assert PrioritizedReplayBuffer(alpha=1, beta=1, sampler_device="cpu").sampler is not sampler
    with pytest.raises(UsageError) as caught:
        PrioritizedReplayBuffer(alpha=1, beta=1, sampler=sampler, sampler_device="cpu")
    assert caught.value.argument == "sampler_device"


@pytest.mark.parametrize("kind", [LazyTensorStorage, LazyMemmapStorage])
def test_a_storage_may_follow_its_rows_to_their_device(kind: Any) -> None:
    storage = kind(6, device="auto")
    buffer = ReplayBuffer(storage=storage, batch_size=3)
    buffer.extend(ROWS)
    assert storage.device == torch.device("cpu") and buffer.sample()["a"].device.type == "cpu"
    if kind is LazyTensorStorage:
        moved = LazyTensorStorage(6, device="auto")
        moved.flatten(torch.empty(2, 3, device="meta"))
        assert moved.device == torch.device("meta")
    assert TensorStorage(ROWS, device="auto").device == torch.device("cpu")


def test_files_say_when_they_are_deleted(tmp_path: Any) -> None:
    LazyMemmapStorage(3, auto_cleanup=True)
    LazyMemmapStorage(3, scratch_dir=tmp_path, auto_cleanup=False)
    for wrong in ({"auto_cleanup": False}, {"scratch_dir": tmp_path, "auto_cleanup": True}):
        with pytest.raises(Unsupported) as error:
            LazyMemmapStorage(3, **wrong)
        assert (error.value.argument, error.value.found) == ("auto_cleanup", wrong["auto_cleanup"])


def test_a_batch_of_tensordicts_always_has_its_info() -> None:
    buffer = TensorDictReplayBuffer(storage=TensorStorage(ROWS), batch_size=3)
    assert "index" in buffer.sample(include_info=True)
    batch, info = buffer.sample(return_info=True, include_info=True)
    assert torch.equal(batch["index"], info["index"])
    with pytest.raises(Unsupported) as error:
        buffer.sample(include_info=False)
    assert (error.value.argument, error.value.found) == ("include_info", False)


@pytest.mark.parametrize("sampler", [RandomSampler(), SliceSampler(slice_len=2)])
@pytest.mark.parametrize("storage", [ListStorage(9), LazyTensorStorage(9)])
def test_sampling_an_empty_buffer_is_a_runtime_error_too(sampler: Any, storage: Any) -> None:
    buffer = ReplayBuffer(storage=storage, sampler=sampler, batch_size=4)
    prioritised = PrioritizedReplayBuffer(alpha=1, beta=1, storage=storage, batch_size=4)
    for empty in (buffer, prioritised):
        with pytest.raises(RuntimeError) as caught:
            empty.sample()
        assert isinstance(caught.value, EmptyBuffer) and isinstance(caught.value, ValueError)


def checked_classes() -> dict[str, set[str]]:
    """Return the classes of buffers and their parts that TorchRL's modules test objects for."""
    root = Path(torchrl.__file__).parent
    kinds = vars(torchrl.data.replay_buffers).values()
    names = {kind.__name__ for kind in kinds if inspect.isclass(kind)} - {"Sequence"}
    found: dict[str, set[str]] = {}
    for path in root.rglob("*.py"):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                classes = {getattr(n, "id", "") for n in ast.walk(node.args[1])} & names
                if classes:
                    found.setdefault(module, set()).update(classes)
    return found


def test_the_page_lists_each_place_where_torchrl_asks_for_its_own_classes() -> None:
    page = (PROJECT / "docs" / "replay.md").read_text(encoding="utf-8")
    table = page.partition("### What TorchRL's own code does")[2]
    for module, classes in checked_classes().items():
        inside = module.startswith("data.replay_buffers.") and not module.endswith("scheduler")
        row = "data.replay_buffers" if inside else module
        assert f"| `{row}` |" in table, (module, classes)
        line = table.partition(f"| `{row}` |")[2].partition("\n")[0]
        assert inside or all(f"`{name}`" in line for name in classes), (module, classes)
    assert table.count("\n| `") == 9  # and no other place
