"""Reading an RLDS dataset: its two documents, and the files of its splits.

All records are read twice: once to check and count them, and once for their steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datasets_cli.formats.limits import read_json_file
from datasets_cli.formats.rlds import Feature, Features, RldsEpisode, read_episodes, read_features
from datasets_cli.recipe import (
    SPLIT,
    Block,
    Description,
    Key,
    Source,
    SourceError,
    rows_per_block,
)

from . import unplugged_reader
from .catalogue import DATASET_INFO, FEATURES, is_unplugged, shards_of
from .steps import (
    DROID_PATH,
    DROID_RESULTS,
    SUCCESS,
    columns_of,
    episode_blocks,
    flags_of,
)

TEXTS = ("name", "version", "description", "citation")


def describe(source: Source) -> Description:
    """Return the entry's details, texts of ``dataset_info.json``, and notes on last steps."""
    if FEATURES not in source.files and is_unplugged(source.name):
        return unplugged_reader.describe(source)
    details = source.entry.details if source.entry else {}
    return _summarize(source).description(details)


def blocks(source: Source) -> Iterator[Block]:
    """Yield the steps of all episodes in the order of splits, files and records."""
    if FEATURES not in source.files and is_unplugged(source.name):
        yield from joined(unplugged_reader.blocks(source))
        return
    summary = _summarize(source)
    total_rows = summary.num_steps - summary.counts["last"] * summary.is_void
    for block in joined(_episode_blocks(summary)):
        yield replace(block, total_rows=total_rows)


def joined(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks that are joined as far as their rows fit into one."""
    waiting: list[Block] = []
    room = 0
    for block in blocks:
        arrays = block.columns.values()
        num_rows, size = len(next(iter(arrays))), sum(each.nbytes for each in arrays)
        if waiting and num_rows > room:
            yield _concatenated(waiting)
            waiting = []
        if not waiting:
            room = rows_per_block(size // max(num_rows, 1))
        waiting.append(block)
        room -= num_rows
    if waiting:
        yield _concatenated(waiting)


def _concatenated(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    keys = blocks[0].columns
    return Block({key: np.concatenate([each.columns[key] for each in blocks]) for key in keys})


def _episode_blocks(summary: Summary) -> Iterator[Block]:
    for shard in summary.shards:
        for episode in read_episodes(shard.path, summary.features):
            constants: dict[Key, object] = {SPLIT: shard.split}
            if summary.states_results:
                constants[SUCCESS] = bool(summary.result(episode))
            yield from episode_blocks(
                episode, summary.features, summary.columns, constants, void=summary.is_void
            )


class Shard(NamedTuple):
    """One file of a split, and the number of its records."""

    split: str
    path: Path
    num_records: int


@dataclass
class Summary:
    """The features of a dataset, and the counts of its episodes so far."""

    info: dict[str, Any]
    features: Features
    shards: list[Shard]
    columns: dict[Key, Feature]
    counts: Counter[str] = field(default_factory=Counter)
    unknown: set[str] = field(default_factory=set)

    @cached_property
    def _known(self) -> set[str]:
        return {each.name for each in (*self.features.steps, *self.features.episodes)}

    @property
    def num_steps(self) -> int:
        """The number of recorded steps."""
        return self.counts["steps"]

    @property
    def is_void(self) -> bool:
        """Whether all last steps have neither action nor reward."""
        return not (self.counts["real"] or self.counts["cut"])

    @property
    def states_results(self) -> bool:
        """Whether the paths of all episodes state success or failure, as those of DROID do."""
        return self.counts["result"] == self.counts["episodes"] and SUCCESS not in self.columns

    def result(self, episode: RldsEpisode) -> bool | None:
        """Return whether an episode succeeded, if its path states it."""
        paths = [each for each in self.features.episodes if each.name == DROID_PATH]
        if not (paths and str(self.info["name"]).startswith("droid")):
            return None
        path = bytes(episode.values(paths[0], 0, 1)[0])
        return next((result for part, result in DROID_RESULTS.items() if part in path), None)

    def add(self, episode: RldsEpisode) -> None:
        """Add an episode."""
        self.counts["steps"] += episode.num_steps
        for name in episode.lists.keys() - self._known:
            # A list whose length varies is stored as several: values, and the lengths of rows.
            if not any(f"{name}/".startswith(f"{each}/") for each in self.features.left_out):
                self.unknown.add(name)
        self.counts["episodes"] += 1
        self.counts["empty"] += not episode.num_steps
        self.counts["result"] += self.result(episode) is not None
        if not episode.num_steps:
            return
        ends, terminal, first, is_cut = flags_of(episode, self.features)
        starts, lasts = np.concatenate(([True], ends[:-1])), np.flatnonzero(ends).tolist()
        self.counts["cut"] += is_cut
        self.counts["last"] += len(lasts)
        self.counts["inner"] += len(lasts) - 1
        self.counts["alone"] += int((starts & ends).sum())
        self.counts["terminal"] += int((terminal & ~ends).sum())
        self.counts["first"] += 0 if first is None else int((first != starts).sum())
        flagged = lasts[:-1] if is_cut else lasts
        self.counts["real"] += any(self._is_real(episode, last) for last in flagged)

    def _is_real(self, episode: RldsEpisode, step: int) -> bool:
        """Return whether a step has an action or a reward other than zeros."""
        for key, feature in self.columns.items():
            if key[0] == "action" or key == ("next", "reward"):
                values = episode.values(feature, step, step + 1)
                if values.dtype != object and np.nan_to_num(values).any():
                    return True
        return False

    def description(self, details: Mapping[str, Any]) -> Description:
        """Return the metadata and the notes."""
        metadata = {
            **details,
            **{name: text for name in TEXTS if _is_written(text := self.info.get(name))},
            "last_steps": "void" if self.is_void else "recorded",
        }
        return Description(metadata, tuple(self._notes()))

    def _notes(self) -> Iterator[str]:
        counts, of_all = self.counts, f"of {self.counts['episodes']:,} episodes"
        if self.is_void:
            yield (
                "the action and the reward of each last step are zeros: RLDS defines them as void, "
                "and only the observation is read, as the successor of the step before"
            )
        elif counts["real"]:
            yield (
                f"the last step {of_all} is kept, because some have an action or a reward, which "
                "RLDS defines as void: a terminal one is a transition whose successor is zeros, "
                "any other a final step"
            )
        if counts["cut"]:
            yield (
                f"{counts['cut']:,} {of_all} end without is_last: they are truncated, and their "
                "last step, which has an action but no successor, is a final step"
            )
        sentences = {
            "inner": "steps inside an episode have is_last: each ends a trajectory",
            "terminal": "steps have is_terminal and are not last: this flag is left out",
            "first": "steps have an is_first that does not fit is_last: this flag is left out",
            "empty": "episodes have no steps, and are left out",
            "alone": "trajectories of one step are left out" if self.is_void else "",
        }
        for name, sentence in sentences.items():
            if counts[name] and sentence:
                yield f"{counts[name]:,} {sentence}"
        lossy = [each.name for each in self.columns.values() if each.encoding == "jpeg"]
        if lossy:
            yield f"decoded from JPEG, not the pixels as recorded: {', '.join(lossy)}"
        for reason in sorted(set(self.features.left_out.values())):
            names = [name for name, why in self.features.left_out.items() if why == reason]
            yield f"left out, {reason}: {', '.join(names)}"
        if self.unknown:
            yield f"left out, because {FEATURES} lacks them: {', '.join(sorted(self.unknown))}"


def _is_written(text: object) -> bool:
    """Return whether a text is the publisher's, and not that of TFDS's template."""
    return isinstance(text, str) and not text.lstrip("/ ").startswith("TODO")


def _summarize(source: Source) -> Summary:
    """Read all records of a dataset."""
    stamps = [(name, path, path.stat()) for name, path in sorted(source.files.items())]
    return _summary_of(tuple((name, path, s.st_size, s.st_mtime_ns) for name, path, s in stamps))


@lru_cache(maxsize=4)  # both functions of a recipe need it, of datasets side by side
def _summary_of(stamped: tuple[tuple[str, Path, int, int], ...]) -> Summary:
    files = {name: path for name, path, *_ in stamped}
    if missing := [name for name in (DATASET_INFO, FEATURES) if name not in files]:
        raise SourceError(
            f"The folder lacks {missing[0]}, which describes an RLDS dataset.",
            path=missing[0],
            expected=missing[0],
        )
    features = read_features(files[FEATURES])
    info = read_json_file(files[DATASET_INFO])
    shards = []
    for split, name, num_records in shards_of(info):
        if name not in files:
            raise SourceError(
                f"The split {split} lacks {name}, which {DATASET_INFO} names.",
                path=name,
                expected=name,
            )
        shards.append(Shard(split, files[name], num_records))
    summary = Summary(info, features, shards, columns_of(features))
    for _, path, num_records in shards:
        before = summary.counts["episodes"]
        for episode in read_episodes(path, features):
            summary.add(episode)
        if (found := summary.counts["episodes"] - before) != num_records:
            raise SourceError(
                f"{path.name} has {found:,} records, and {DATASET_INFO} states {num_records:,}.",
                path=path,
                expected=num_records,
                found=found,
            )
    if not summary.num_steps:
        raise SourceError("The dataset has no steps.", expected="one episode or more", found=0)
    return summary
