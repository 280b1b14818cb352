"""The columns of an RLDS dataset, and its steps as rows.

Step t is (o_t, a_t, r_t, discount_t); the last step has ``is_last``, and ``is_terminal`` if no
value follows. RLDS defines action, reward and discount of the last step as void:

    step        0    1    2    3L       L is_last
    void        0→1  1→2  2→3           the row 2→3 is the end, terminated if step 3 is terminal
    recorded    0→1  1→2  2→3  3→       step 3 is a row if it is terminal, else a final step

Many publishers recorded an action of the last step, and pay the only reward there. So it is void
only if all last steps of a dataset are: their actions and rewards are zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from datasets_cli.formats.rlds import STEPS, TEXT, Feature, Features, RldsEpisode
from datasets_cli.recipe import LANGUAGE, TRAJECTORY_END, Block, Key, rows_per_block

SUCCESS: Key = ("info", "success")
FLAGS = (("is_first",), ("is_last",), ("is_terminal",))
INSTRUCTIONS = ("language_instruction", "natural_language_instruction")
METADATA = "episode_metadata"
DROID_PATH = f"{METADATA}/file_path"
"""The text in which DROID states whether an episode succeeded."""
DROID_RESULTS = {b"/success/": True, b"/failure/": False}


def columns_of(features: Features) -> dict[Key, Feature]:
    """Return the feature of each column."""
    of_steps = {each: each.path[1:] for each in features.steps}
    both = (*features.steps, *features.episodes)
    texts = [each for each in both if each.dtype == TEXT and not each.shape]
    found = (each for name in INSTRUCTIONS for each in texts if each.path[-1] == name)
    instruction = next(found, None)
    columns: dict[Key, Feature] = {}
    for feature, path in of_steps.items():
        if path in FLAGS:
            continue
        columns[LANGUAGE if feature is instruction else _key(path, feature)] = feature
    for feature in features.episodes:
        path = feature.path[1:] if feature.path[0] == METADATA else feature.path
        key = LANGUAGE if feature is instruction else ("info", *path)
        columns[("info", *feature.path) if key in columns else key] = feature
    return columns


def _key(path: tuple[str, ...], feature: Feature) -> Key:
    root, *below = path
    if root == "observation" and below and feature.is_image and feature.dtype == np.uint8:
        return (root, "images", *below[below[0] == "images" :])
    is_of_text = below and ("embedding" in below[-1] or below[-1] in INSTRUCTIONS)
    if root == "observation" and not is_of_text:
        return path
    if path == ("reward",):
        return ("next", "reward")
    if root == "action":
        return path
    return ("info", *(below if below and root in ("observation", "info", "infos") else path))


class Flags(NamedTuple):
    """The flags of an episode's steps, bool ``[T]``."""

    # ends: whether a step is the last of its trajectory; is_cut: it is so without `is_last`.
    # terminal: whether no value follows the observation.

    ends: np.ndarray
    terminal: np.ndarray
    first: np.ndarray | None
    is_cut: bool


def flags_of(episode: RldsEpisode, features: Features) -> Flags:
    """Return the flags of an episode with steps."""
    found = {
        each.path[1]: episode.values(each).reshape(-1) != 0
        for each in features.steps
        if each.path[1:] in FLAGS
    }
    zeros = np.zeros(episode.num_steps, np.bool_)
    ends = found.get("is_last", zeros).copy()
    is_cut = not ends[-1]
    ends[-1] = True  # a record is an episode
    return Flags(ends, found.get("is_terminal", zeros), found.get("is_first"), is_cut)


def episode_blocks(
    episode: RldsEpisode,
    features: Features,
    columns: Mapping[Key, Feature],
    constants: Mapping[Key, object],
    *,
    void: bool,
) -> Iterator[Block]:
    """Yield the steps of an episode; ``void`` drops last steps, which state only the successor."""
    num_steps = episode.num_steps
    if not num_steps:
        return
    ends, terminal, *_ = flags_of(episode, features)
    sizes = (  # the size of images may be in their files alone
        episode.values(each, 0, 1).nbytes if -1 in each.shape else each.row_bytes
        for each in columns.values()
    )
    per_block = rows_per_block((1 + void) * sum(sizes))
    for start in range(0, num_steps - void, per_block):
        stop = min(start + per_block, num_steps - void)
        rows = np.flatnonzero(~ends[start:stop]) if void else np.arange(stop - start)
        block = {
            key: np.full(len(rows), value, TEXT if isinstance(value, str) else None)
            for key, value in constants.items()
        }
        for key, feature in columns.items():
            if feature.path[0] != STEPS:
                block[key] = np.repeat(episode.values(feature, 0, 1), len(rows), axis=0)
                continue
            has_successors = void and key[0] == "observation"
            values = episode.values(feature, start, stop + has_successors)
            # Without copies, if every step is a row.
            block[key] = values[rows] if len(rows) < stop - start else values[: len(rows)]
            if has_successors:
                block["next", *key] = values[rows + 1]
        at = start + rows + void
        block[TRAJECTORY_END] = ends[at]
        block["next", "terminated"] = ends[at] & terminal[at]
        yield Block(block)
