"""What a transform is: the whole protocol, one that derives from it, and any other callable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import Compose, LazyTensorStorage, RewardSum, TensorDictReplayBuffer, Transform
from datasets_cli.replay import MultiStepTransform
from datasets_cli.replay.transforms.transform import Inverted

MEMBERS = {"__call__", "inv", "undo_inv", "on_clear", "needs_steps", "only_writes"}


class Whole:
    """Derives from nothing, and has exactly the members of the protocol."""

    needs_steps = only_writes = False

    def __init__(self) -> None:
        self.cleared = 0

    def __call__(self, batch: TensorDict, /) -> TensorDict:
        return batch.set("read", batch["x"] + 1)

    def inv(self, data: TensorDict, /) -> TensorDict | None:
        return data.copy().set("written", data["x"] - 1) if len(data) > 1 else None

    def undo_inv(self) -> None:
        return

    def on_clear(self) -> None:
        self.cleared += 1


class Derived(Transform):
    """Writes what does not have a default."""

    def __call__(self, batch: TensorDict, /) -> TensorDict:
        return batch.set("read", batch["x"] + 1)


class Half:
    """A callable with an inverse, as TorchRL's transforms are."""

    def __call__(self, batch: TensorDict) -> TensorDict:
        return batch.set("read", batch["x"] + 1)

    def inv(self, data: TensorDict) -> TensorDict:
        return data.copy().set("written", data["x"] - 1)


def function(batch: TensorDict) -> TensorDict:
    return batch.set("read", batch["x"] + 1)


def rows(count: int) -> TensorDict:
    return TensorDict({"x": torch.arange(count)}, [count])


def test_the_members_are_all_that_a_transform_needs() -> None:
    own = {name for name, value in vars(Transform).items() if callable(value)}
    own |= {"needs_steps", "only_writes"} & vars(Transform).keys()
    assert own & MEMBERS == MEMBERS
    assert {name for name in own - MEMBERS if not name.startswith("_")} == set()
    assert {name for name in vars(Whole) if not name.startswith("__")} | {"__call__"} == MEMBERS


@pytest.mark.parametrize("prefetch", [None, 2])
@pytest.mark.parametrize("make", [Whole, Derived, Half, lambda: function])
def test_any_callable_is_a_transform_of_a_buffer(
    make: Callable[[], Any], prefetch: int | None
) -> None:
    transform = make()
    made = TensorDictReplayBuffer(
        storage=LazyTensorStorage(9), transform=transform, batch_size=4, prefetch=prefetch
    )
    made.extend(rows(5))
    batch = made.sample()
    assert torch.equal(batch["read"], batch["x"] + 1)
    has_inverse = hasattr(transform, "inv") and not isinstance(transform, Derived)
    assert ("written" in batch.keys()) == has_inverse  # noqa: SIM118
    if has_inverse:
        assert torch.equal(batch["written"], batch["x"] - 1)
    made.empty()
    assert len(made) == 0
    assert getattr(transform, "cleared", 1) == 1


def test_a_transform_that_is_not_written_out_cannot_be_made() -> None:
    class Nothing(Transform):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Nothing()  # type: ignore[abstract]


def test_a_composition_gives_transforms_back_as_they_were_given() -> None:
    whole, half = Whole(), Half()
    chain = Compose(whole, function)
    chain.append(half)
    chain.insert(0, function)
    assert [*chain] == chain.transforms == [function, whole, function, half]
    assert chain[1] is whole
    assert chain[-1] is half
    assert chain[2:].transforms == [function, half]
    assert isinstance(chain[2:], Compose)


def test_an_inverse_can_give_nothing_to_store_yet() -> None:
    chain = Compose(Half(), Whole(), function)
    assert chain.inv(rows(1)) is None
    stored = chain.inv(rows(2))
    assert stored is not None
    assert stored["written"].tolist() == [-1, 0]


def test_clearing_reaches_every_transform_also_a_turned_one() -> None:
    whole, turned, kept = Whole(), Whole(), MultiStepTransform(2, 0.9)
    chain = Compose(Compose(whole), function, Inverted(turned), Half(), kept)
    chain.on_clear()
    assert (whole.cleared, turned.cleared) == (1, 1)


def test_a_composition_prints_a_transform_a_line() -> None:
    assert repr(Compose()) == "Compose()"
    shown = repr(Compose(function, Compose(Whole.inv)))  # type: ignore[arg-type]
    lines = shown.splitlines()
    assert lines[0] == "Compose("
    assert lines[1].startswith("    <function function at ")
    assert lines[2] == "    Compose("
    assert lines[3].startswith("        <function Whole.inv at ")
    assert shown.endswith("))")


def test_every_transform_of_ours_is_one_by_its_members() -> None:
    assert isinstance(RewardSum(), Transform)
    assert isinstance(Whole(), Transform)
    assert not isinstance(Half(), Transform)
