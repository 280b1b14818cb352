"""Functions of consecutive rows: a pipeline of transforms, and a function of each single row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict

from datasets_cli.errors import SourceError, UsageError, WrongRows, argument
from datasets_cli.preprocessing.columns import KnownColumns
from datasets_cli.preprocessing.pipeline import Pipeline
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.replay.storages.sequences import final_rewards
from datasets_cli.replay.transforms.entries import (
    DONES,
    REWARDS,
    DTypeCastTransform,
    ExcludeTransform,
    RenameTransform,
    SelectTransform,
)
from datasets_cli.replay.transforms.images import CenterCrop, Resize
from datasets_cli.replay.transforms.multi_step import MultiStep
from datasets_cli.replay.transforms.scaling import ObservationNorm
from datasets_cli.replay.transforms.steps import Reward2GoTransform
from datasets_cli.replay.transforms.transform import Compose, Inverted, TransformLike
from datasets_cli.schema.columns import (
    DONE,
    REWARD,
    Key,
    check_key,
    refuse_missing_reward,
    show_key,
)
from datasets_cli.schema.tree import entry
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.selection import whole_dataset

NEEDED: frozenset[Key] = frozenset([*DONES, *REWARDS])
"""The columns that trajectories and returns are computed from."""
RETURNS_TO_GO: Key = ("returns_to_go",)
SPANS: tuple[Key, ...] = (
    ("steps_to_next_obs",),
    ("gamma",),
    ("nonterminal",),
    ("next", "original_reward"),
)
"""The columns that ``MultiStep`` adds."""

FINAL_REWARD: Key = ("_final_reward",)
BEFORE_FINAL: Key = ("_before_final",)
"""Entries of batches alone: which rows are before a final step, and the reward of that step."""


class PipelineFunction:
    """A pipeline over one dataset, as a function of consecutive rows."""

    def __init__(self, pipeline: Pipeline, dataset: Dataset, num_rows: int) -> None:
        if pipeline.needs_trajectories:
            _refuse_cut(dataset, num_rows)
        columns = KnownColumns(dataset.manifest)
        self._final = final_rewards(dataset) if pipeline.returns_to_go else None
        has_final = self._final is not None
        self._compose = Compose(
            [
                *_sizes(pipeline, columns),
                *_norms(pipeline, columns, dataset, num_rows, has_final=has_final),
                *_returns(pipeline, columns),
                *_casts(pipeline, columns),
                *_names(pipeline, columns),
            ]
        )

    def __call__(self, batch: TensorDict) -> TensorDict:
        return self._compose(batch)

    def add_final(self, batch: TensorDict, start: int) -> None:
        """Add the rewards of final steps to the rows from ``start`` on that are before them."""
        if self._final is not None:
            rows = torch.from_numpy(self._final[0]) - start
            is_here = (rows >= 0) & (rows < len(batch))
            batch[FINAL_REWARD] = torch.zeros_like(batch[REWARD])
            batch[BEFORE_FINAL] = torch.zeros(len(batch), dtype=torch.bool)
            final = torch.from_numpy(self._final[1])[is_here].to(batch[REWARD].dtype)
            batch[FINAL_REWARD][rows[is_here]], batch[BEFORE_FINAL][rows[is_here]] = final, True


class ReturnsToGo:
    """``Reward2GoTransform`` that includes the rewards of final steps."""

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self._sum = Inverted(Reward2GoTransform(gamma, [REWARD], [RETURNS_TO_GO]))

    def __call__(self, batch: TensorDict) -> TensorDict:
        final, is_before = batch.pop(FINAL_REWARD, None), batch.pop(BEFORE_FINAL, None)
        if final is None:
            return self._sum(batch)
        reward = batch[REWARD]
        batch[REWARD] = reward.clone()
        batch[REWARD][is_before] += self._gamma * final[is_before]
        return self._sum(batch).set(REWARD, reward)


class RowByRow(partial[TensorDict]):
    """A function of one row, a TensorDict ``[]``, as a function of consecutive rows."""

    def __call__(self, batch: TensorDict) -> TensorDict:
        rows = [self._of(row, number) for number, row in enumerate(batch.unbind(0))]
        try:
            stacked: TensorDict = torch.stack(rows)
        except RuntimeError as error:
            reason = str(error).partition(". ")[0]
            raise WrongRows(
                "The function must return the same columns with the same shapes for every row, "
                f"because {argument('chunksize', '0')} stacks them: {reason.rstrip('.')}.",
                argument="chunksize",
            ) from error
        return stacked

    def _of(self, row: TensorDict, number: int) -> TensorDict:
        """Return a copy of the result for a row: the next call may change the result."""
        result = super().__call__(row)
        if not isinstance(result, TensorDict):
            raise WrongRows(
                "The function must return a TensorDict for each row, because "
                f"{argument('chunksize', '0')} passes one at a time, but returned "
                f"{type(result).__name__} for row {number} of these.",
                argument="chunksize",
                row=number,
                expected="a TensorDict",
                found=type(result).__name__,
                advice=f"To drop rows, leave out {argument('chunksize')}.",
            )
        return result.clone()


def _refuse_cut(dataset: Dataset, num_rows: int) -> None:
    """Refuse trajectories without their last row, whose sums of rewards would differ."""
    offsets, selection = dataset.offsets.numpy(), dataset.selection
    is_cut = num_rows not in offsets
    if selection is not None:
        is_cut |= bool(selection.ends_early(dataset.whole.offsets.numpy()).any())
    if is_cut:
        raise UsageError(
            f"{argument('returns_to_go')} and {argument('n_step')} need whole trajectories, and "
            f"rows of {dataset.id} are read up to the middle of one.",
            argument="num_frames",
            id=dataset.id,
            found=num_rows,
            advice=f"Leave out {argument('num_frames')} ({argument('max_trajectories')} reads "
            "fewer trajectories) and views that cut trajectories.",
        )


def _sizes(pipeline: Pipeline, columns: KnownColumns) -> Iterator[TransformLike]:
    kinds = {"crop": CenterCrop, "resize": Resize}
    for name, (height, width) in pipeline.sizes.items():
        for channels_last, keys in columns.frames(name).items():
            yield kinds[name](width, height, in_keys=keys, channels_last=channels_last)


def _norms(
    pipeline: Pipeline, columns: KnownColumns, dataset: Dataset, num_rows: int, *, has_final: bool
) -> Iterator[TransformLike]:
    resized = [
        key for name in pipeline.sizes for keys in columns.frames(name).values() for key in keys
    ]
    seen: set[Key] = set()
    for text in pipeline.normalise:
        for column in columns.of_numbers(text, "normalise"):
            key, successor = column.key, ("next", *column.key)
            if column.dtype == "bool" or column.dtype.startswith("complex"):
                problem, expected = f"is {column.dtype}; expected real numbers", "real numbers"
                raise _misfit("normalise", key, problem, expected=expected, found=column.dtype)
            if key in resized:
                problem = "is resized, and the statistics describe the input"
                raise _misfit(
                    "normalise", key, problem, advice="Resize and normalise in two calls."
                )
            keys = [key, successor] if successor in columns.numbers else [key]
            if twice := seen.intersection(keys):
                raise _misfit("normalise", min(twice), "is named twice")
            seen.update(keys)
            keys += [FINAL_REWARD] if has_final and key == REWARD else []
            yield ObservationNorm.from_dataset(_read(dataset, num_rows), keys)


def _read(dataset: Dataset, num_rows: int) -> DatasetStorage:
    """Return the first rows of a dataset as a storage."""
    if num_rows == len(dataset):
        return DatasetStorage(dataset)
    offsets = dataset.offsets.numpy()
    selection = dataset.selection
    if selection is None:  # an empty view is false, too
        selection = whole_dataset(dataset.manifest.content, offsets)
    return DatasetStorage(dataset.select(selection.rows(0, num_rows)))


def _returns(pipeline: Pipeline, columns: KnownColumns) -> Iterator[TransformLike]:
    """Yield the transforms that sum rewards; returns to go first, as they need single steps."""
    if not pipeline.needs_trajectories:
        return
    name = "n_step" if pipeline.n_step is not None else "returns_to_go"
    if REWARD not in columns.numbers:
        refuse_missing_reward(REWARD, argument(name), columns.id)
    if DONE not in columns.numbers:
        raise UsageError(
            f"{argument(name)} needs transitions: {columns.id} has no {show_key(DONE)}.",
            argument=name,
            id=columns.id,
            key=DONE,
        )
    gamma = 1.0 if pipeline.gamma is None else pipeline.gamma
    if pipeline.returns_to_go:
        columns.add([RETURNS_TO_GO], "returns_to_go")
        yield ReturnsToGo(gamma)
    if pipeline.n_step is not None:
        if not any(key[0] == "next" and key not in NEEDED for key in columns.numbers):
            raise UsageError(
                f"{argument('n_step')} needs transitions: {columns.id} has no observation below "
                "next, which would become that of the last step.",
                argument="n_step",
                id=columns.id,
            )
        columns.add(SPANS, "n_step")
        yield MultiStep(gamma, pipeline.n_step, mark_terminated=True)


def _casts(pipeline: Pipeline, columns: KnownColumns) -> Iterator[TransformLike]:
    floats: torch.dtype | None = None
    named: dict[Key, torch.dtype] = {}
    for cast in pipeline.casts:
        dtype = getattr(torch, cast.dtype)
        if cast.key is None:
            if floats is not None:
                raise UsageError(
                    f"{argument('cast')} has two types for all floating-point numbers; pass one.",
                    argument="cast",
                    found=list(pipeline.cast),
                )
            floats = dtype
            continue
        for key in columns.of(cast.key, "cast"):
            column = columns.numbers.get(key)
            is_known = column is None or not column.dtype.startswith("complex")
            if key in columns.texts or not is_known or (key in NEEDED and key != REWARD):
                problem = "cannot be cast: it is a flag, text or complex"
                raise _misfit("cast", key, problem, id=columns.id)
            if key in named:
                raise _misfit("cast", key, "is named twice")
            named[key] = dtype
    if pipeline.cast:
        yield Casts(floats, named)


def _names(pipeline: Pipeline, columns: KnownColumns) -> Iterator[TransformLike]:
    """Yield the transforms that choose and rename columns; flags and reward keep their names."""
    kept = [*columns.keys]
    if pipeline.select:
        selected = [key for text in pipeline.select for key in columns.of(text, "select")]
        selected += columns.added
        kept = [key for key in kept if key in NEEDED or key in selected]
        yield SelectTransform(*selected)
    if pipeline.exclude:
        excluded = [key for text in pipeline.exclude for key in columns.of(text, "exclude")]
        _refuse_needed([key for key in excluded if key != REWARD], "exclude")
        kept = [key for key in kept if key not in excluded]
        yield ExcludeTransform(*excluded)
    if pipeline.rename:
        names: dict[Key, Key] = {}
        for old, new in pipeline.renames:
            depth = len(old.split("."))
            for key in columns.of(old, "rename"):
                names[key] = (*new.split("."), *key[depth:])
        _check_names(names, kept)
        yield RenameTransform([*names], [*names.values()])


def _misfit(name: str, key: Key, problem: str, **details: Any) -> UsageError:
    """Return the error of a transform that cannot be applied to a column."""
    message = f"{argument(name)}: {show_key(key)} {problem}."
    return UsageError(message, argument=name, key=key, **details)


def _refuse_needed(keys: list[Key], owner: str) -> None:
    if needed := [key for key in keys if key in NEEDED]:
        raise UsageError(
            f"{argument(owner)}: {', '.join(map(show_key, needed))} must stay: returns and "
            "trajectories are computed from the reward and the flags by their names.",
            argument=owner,
            key=needed[0],
            advice="Pass a function to write rows without them.",
        )


def _check_names(names: dict[Key, Key], kept: list[Key]) -> None:
    _refuse_needed([*names], "rename")
    if gone := [key for key in names if key not in kept]:
        droppers = f"{argument('select')} or {argument('exclude')}"
        raise _misfit("rename", gone[0], f"was dropped by {droppers}")
    others = [key for key in kept if key not in names] + [*names.values()]
    for new in names.values():
        try:
            check_key(new)
        except SourceError as error:
            raise UsageError(
                f"{argument('rename')}: {error}", argument="rename", key=new
            ) from error
        # The key of a column cannot be the beginning of another key, which would be in its group.
        length = len(new)
        clash = [key for key in others if key[:length] == new[: len(key)]]
        if len(clash) > 1:
            other = next(key for key in clash if key != new) if {*clash} != {new} else new
            beside = show_key(other)
            advice = f"Choose another name, or exclude {beside}."
            problem = f"cannot be the name of a column beside {beside}"
            raise _misfit("rename", new, problem, found=beside, advice=advice)


class Casts:
    """Casts named columns, and all other columns of floating-point numbers."""

    def __init__(self, floats: torch.dtype | None, named: dict[Key, torch.dtype]) -> None:
        self._floats, self._named = floats, named

    def __call__(self, batch: TensorDict) -> TensorDict:
        wanted = dict(self._named)
        for name, value in batch.items(include_nested=True, leaves_only=True):
            key = (name,) if isinstance(name, str) else name
            if isinstance(value, torch.Tensor) and value.is_floating_point() and self._floats:
                wanted.setdefault(key, self._floats)
        for key, dtype in wanted.items():
            before = entry(batch, key)
            batch = DTypeCastTransform(before.dtype, dtype, in_keys=[key])(batch)
            _check(key, before, entry(batch, key))
        return batch


def _check(key: Key, before: torch.Tensor, after: torch.Tensor) -> None:
    # float64 has every number of the types that can be cast to, except large int64, which a cast
    # keeps or changes by far.
    old, new = before.double(), after.double()
    is_lost = old.isfinite() & ~new.isfinite() if after.is_floating_point() else old != new
    if bool(is_lost.any()):
        value = old[is_lost][0].item()
        raise UsageError(
            f"{argument('cast')}: {show_key(key)} has the number {value:.17g}, which {after.dtype} "
            "cannot represent.",
            argument="cast",
            key=key,
            expected=str(after.dtype),
            found=value,
            advice=f"Cast only other columns, by KEY=TYPE, or scale {show_key(key)} first.",
        )
