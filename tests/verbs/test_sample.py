"""A batch that is shown: the keys, types and shapes that a training loop gets."""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest

import datasets_cli
from datasets_cli import ExperienceReplay, sample_batch
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import UsageError, WrongSize
from tests.cli.test_screens import on_terminal
from tests.support import text_rows
from tests.support.refusals import check_refused, refused
from tests.verbs.test_peek import install_rows

Capture = pytest.CaptureFixture[str]
DRAWS = ("uniform", "epoch", "slice", "priority")


def by_hand(batch: dict, above: tuple[str, ...] = ()) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return element type and shape of what is in a nested dict of numpy's arrays."""
    leaves = {}
    for name, item in batch.items():
        key = (*above, name)
        if isinstance(item, dict):
            leaves |= by_hand(item, key)
        else:
            leaves[".".join(key)] = (str(item.dtype), item.shape)
    return leaves


@pytest.mark.parametrize("format", ["torch", "numpy", "jax"])
def test_a_batch_has_what_a_training_loop_gets(format: str, door: str) -> None:
    made = sample_batch(door, format=format, batch_size=64)
    wanted = by_hand(ExperienceReplay(door, 64, format="numpy").sample())
    if format == "jax":  # which is set to 32 bits
        wanted = {
            key: (dtype.replace("int64", "int32"), shape) for key, (dtype, shape) in wanted.items()
        }
    assert made.batch == wanted and made.batch["observation"] == ("float32", (64, 39))
    assert list(made.batch) == sorted(made.batch)


@pytest.mark.parametrize("sampler", DRAWS)
def test_every_draw_gives_a_batch(sampler: str, door: str) -> None:
    made = sample_batch(door, sampler=sampler, batch_size=128)
    assert made.batch["action"] == ("float32", (128, 28)) and made.sampler == sampler
    assert ("priority_weight" in made.batch) == (sampler == "priority")


def test_slices_say_which_trajectories_are_too_short(
    config: Config, door: str, capsys: Capture
) -> None:
    datasets_cli.download("demo/pong", config=config)
    lengths = np.diff(np.load(config.root / "datasets/demo/pong/trajectories.npy"))
    longest = int(lengths.max())
    made = sample_batch("demo/pong", sampler="slice", slice_len=longest, batch_size=longest)
    assert made.num_short == (lengths < longest).sum() == 1
    assert (
        main(
            f"sample demo/pong --sampler slice --slice-len {longest} --batch-size {longest}".split()
        )
        == 0
    )
    assert "1 trajectory shorter than a slice" in capsys.readouterr().err


def test_batches_a_second_are_the_median_of_five_runs(door: str, capsys: Capture) -> None:
    made = sample_batch(door, bench=0.05, batch_size=8)
    assert len(made.runs) == 5 and made.batches_per_second == sorted(made.runs)[2] > 0
    assert made.cold_seconds > 0
    assert sample_batch(door).batches_per_second is None
    assert main(["sample", door, "--bench", "0.05"]) == 0
    *_, cold, warm = capsys.readouterr().out.splitlines()
    assert cold.split()[0] == "cold" and "first batch" in cold
    assert warm.split()[0] == "warm" and "the median of 5 runs" in warm


def test_text_that_is_left_out_is_named(config: Config, capsys: Capture) -> None:
    id = install_rows(config, "ted", text_rows.steps_of(["left"]))
    assert main(["sample", id, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["texts"] == ["next.observation.mission", "observation.mission"]
    assert main(["sample", id]) == 0
    assert "text is not drawn (next.observation.mission" in capsys.readouterr().err


def test_a_narrow_terminal_has_whole_lines(
    door: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch, 40)
    assert main(["sample", door, "--bench", "0.02"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40 and any(line.endswith("[256, 39]") for line in lines)


def test_wrong_calls_say_what_is_expected(door: str, config: Config) -> None:
    datasets_cli.download("demo/iris", config=config)
    wrong: dict[str, tuple[object, ...]] = {
        "batch_size": (0,),
        "sampler": ("best",),
        "format": ("tf",),
        "seed": (-1,),
        "bench": (-1.0, math.inf),
    }
    for name, values in wrong.items():
        for value in values:
            with refused(UsageError, argument=name, found=value):
                sample_batch(door, **{name: value})  # type: ignore[arg-type]
    with refused(UsageError, argument="slice_len", expected="slice", found="uniform"):
        sample_batch(door, slice_len=4)
    with refused(UsageError, argument="slice_len", found=0):
        sample_batch(door, sampler="slice", slice_len=0)
    calls: dict[str, dict[str, int]] = {
        "expected a multiple of slice_len=7": {"slice_len": 7},
        "No trajectory has 512 rows": {"slice_len": 512, "batch_size": 512},
    }
    draw = partial(sample_batch, door, sampler="slice")
    check_refused(UsageError, [(words, partial(draw, **call)) for words, call in calls.items()])
    check_refused(
        UsageError, [("longest has 1", partial(sample_batch, "demo/iris", sampler="slice"))]
    )


def test_the_seed_decides_the_draws(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    sample = ExperienceReplay.sample

    def kept(self: ExperienceReplay) -> object:
        batch = sample(self)
        drawn.append(batch["index"].tolist())
        return batch

    monkeypatch.setattr(ExperienceReplay, "sample", kept)
    for seed in (1, 1, 2):
        sample_batch(door, seed=seed)
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_batch_larger_than_memory_or_an_epoch_is_told(door: str, capsys: Capture) -> None:
    with refused(WrongSize, found=4420000000000000):
        sample_batch(door, batch_size=10**13)
    assert main(["sample", door, "--sampler", "epoch", "--batch-size", "2000"]) == 0
    assert "a batch of 2,000 has 1,495" in capsys.readouterr().err
