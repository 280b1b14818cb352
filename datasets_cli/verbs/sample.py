"""A batch drawn from a dataset: its leaves and the speed of draws."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from datasets_cli.catalogue.names import InstalledId
from datasets_cli.core.checked_json import JsonForm, form_of
from datasets_cli.core.options import check_choice, check_numbers, takes_fields
from datasets_cli.core.system_errors import check_memory
from datasets_cli.errors import UsageError, argument, wrong_value
from datasets_cli.install.find import folder_and_id, read_manifest_of
from datasets_cli.schema.columns import show_key
from datasets_cli.schema.tree import leaves_in

if TYPE_CHECKING:
    from datasets_cli.experience.replay import ExperienceReplay

DrawName = Literal["uniform", "epoch", "slice", "priority"]
FormatName = Literal["torch", "numpy", "jax"]
Leaves = dict[str, tuple[str, tuple[int, ...]]]
"""The dtype and shape of each leaf, by its dotted key."""

SLICE_ROWS = 32
RUNS = 5
ALPHA, BETA = 0.6, 0.4
"""The exponents of the sampler; the priorities stay equal, because no training updates them."""


@dataclass(frozen=True)
class SampleCall(InstalledId):
    """The arguments of ``sample_batch``.

    Args:
        batch_size: number of transitions in the batch.
        sampler: ``"uniform"`` (with replacement), ``"epoch"`` (each once), ``"slice"`` (runs of
            transitions of one trajectory) or ``"priority"`` (by priority, all equal at first).
        slice_len: number of transitions in a slice, 32 by default.
        format: the library of the batch's arrays.
        seed: seed of the draws.
        bench: also measure batches per second, for this many seconds.
    """

    _: KW_ONLY
    batch_size: int = field(
        default=256, metadata={"least": 1, "help": "Number of transitions in the batch."}
    )
    sampler: DrawName = field(
        default="uniform",
        metadata={
            "help": (
                "How transitions are drawn: uniform (with replacement), epoch (each once), slice "
                "(runs of one trajectory) or priority (by priority, all equal at first)."
            )
        },
    )
    slice_len: int | None = field(
        default=None,
        metadata={"least": 1, "help": "Number of transitions in a slice.", "default": "32"},
    )
    format: FormatName = field(default="torch", metadata={"help": "Library of the batch's arrays."})
    seed: int | None = field(
        default=None, metadata={"least": 0, "help": "Random seed for sampling."}
    )
    bench: float | None = field(
        default=None,
        metadata={
            "metavar": "SECONDS",
            "help": "Also measure batches per second, for this many seconds.",
        },
    )

    def __post_init__(self) -> None:
        for name, kind in (("sampler", DrawName), ("format", FormatName)):
            check_choice(name, getattr(self, name), get_args(kind))
        check_numbers(self)
        if self.slice_len is not None and self.sampler != "slice":
            needed = argument("sampler", "slice")
            raise UsageError(
                f"{argument('slice_len')} requires {needed}.",
                argument="slice_len",
                expected="slice",
                found=self.sampler,
            )
        if self.bench is not None and not 0 < self.bench < math.inf:
            raise wrong_value("bench", "a number of seconds above 0", self.bench)


@dataclass(frozen=True)
class SampledBatch(JsonForm):
    """A batch of a dataset.

    Args:
        id: the full id.
        batch_size: the requested number of transitions.
        seed: the seed of the draws.
        sampler: the name of the sampler.
        format: the library of its arrays.
        batch: ``{key joined by dots: (dtype, shape)}`` of every leaf.
        num_short: the number of trajectories that are shorter than a slice and are never drawn.
        texts: the text columns, which only ``text=True`` adds to a batch.
        cold_seconds: the time of the first batch, including the preparation of the sampler; the
            files may be in the page cache already.
        batches_per_second: the median of the runs, or None without ``bench``.
        runs: the batches per second of each run.
    """

    id: str
    batch_size: int
    seed: int | None
    sampler: str
    format: str
    batch: Leaves
    num_short: int
    texts: tuple[str, ...]
    cold_seconds: float
    batches_per_second: float | None
    runs: tuple[float, ...]

    def json_fields(self) -> dict[str, Any]:
        """Return the JSON form, whose leaves have key, dtype and shape, as in ``peek``."""
        leaves = [
            {"key": name.split("."), "dtype": dtype, "shape": shape}
            for name, (dtype, shape) in self.batch.items()
        ]
        return form_of(self) | {"batch": leaves}


@takes_fields(SampleCall)
def sample_batch(call: SampleCall) -> SampledBatch:
    """Draw a batch from an installed dataset; return its keys, dtypes and shapes.

    ``ExperienceReplay`` draws it, as in a training loop.

    Raises:
        DatasetNotInstalled: the dataset is not installed.
        UnknownDataset: no recipe and no folder has this name.
        UsageError: the batch cannot be drawn from this dataset.
        DamagedDataset: its files differ from its manifest.
    """
    slice_len, config = call.slice_len or SLICE_ROWS, call.chosen_config()
    folder, id = folder_and_id(call.id, config)
    manifest = read_manifest_of(folder, id)
    num_rows = call.batch_size
    if call.sampler == "epoch":
        num_rows = min(num_rows, manifest.num_transitions)
    check_memory(num_rows * sum(each.row_bytes for each in manifest.columns), id)
    replay = _opened(call, slice_len)
    draw = _waited_for(replay.sample) if call.format == "jax" else replay.sample
    began = time.perf_counter()
    batch = draw()
    cold_seconds = time.perf_counter() - began
    runs = tuple(_rate(draw, call.bench / RUNS) for _ in range(RUNS)) if call.bench else ()
    num_rows_of = replay.trajectories.num_transitions
    return SampledBatch(
        id=replay.dataset_id,
        batch_size=call.batch_size,
        seed=call.seed,
        sampler=call.sampler,
        format=call.format,
        batch=leaves_of(batch),
        num_short=int((num_rows_of < slice_len).sum()) if call.sampler == "slice" else 0,
        texts=tuple(show_key(each.key) for each in replay.manifest.texts),
        cold_seconds=cold_seconds,
        batches_per_second=statistics.median(runs) if runs else None,
        runs=runs,
    )


def _opened(call: SampleCall, slice_len: int) -> ExperienceReplay:
    from datasets_cli.experience.replay import ExperienceReplay  # with torch
    from datasets_cli.replay.samplers.prioritized import PrioritizedSampler

    draws: dict[str, dict[str, Any]] = {
        "uniform": {},
        "epoch": {"replacement": False},
        "slice": {"slice_len": slice_len},
        "priority": {"sampler": PrioritizedSampler(1, ALPHA, BETA)},  # it grows with the storage
    }
    return ExperienceReplay(
        call.id,
        call.batch_size,
        root=call.chosen_config().root,
        download=False,
        format=call.format,
        seed=call.seed,
        **draws[call.sampler],
    )


def _waited_for(sample: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that draws a batch of JAX and waits for its arrays."""
    import jax

    return lambda: jax.block_until_ready(sample())


def _rate(draw: Callable[[], Any], seconds: float) -> float:
    """Draw batches for some seconds; return the batches per second."""
    count, passed, began = 0, 0.0, time.perf_counter()
    while passed < seconds:
        draw()
        count, passed = count + 1, time.perf_counter() - began
    return count / passed


def leaves_of(batch: Any) -> Leaves:
    """Return the dtype and shape of every leaf of a TensorDict or a nested dict."""
    tree = batch if isinstance(batch, dict) else batch.to_dict()
    return {
        show_key(key): (str(leaf.dtype).removeprefix("torch."), tuple(leaf.shape))
        for key, leaf in sorted(leaves_in(tree), key=lambda each: each[0])
    }
