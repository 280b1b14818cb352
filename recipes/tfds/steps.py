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

import numpy as np

from datasets_cli.formats.rlds import STEPS, TEXT, Feature, Features, RldsEpisode
from datasets_cli.recipe import TRAJECTORY_END, Block, Key, rows_per_block

SPLIT: Key = ("split",)
LANGUAGE: Key = ("language",)
SUCCESS: Key = ("info", "success")
FLAGS = ("is_first", "is_last", "is_terminal")
INSTRUCTIONS = ("language_instruction", "natural_language_instruction")
METADATA = "episode_metadata"
DROID_PATH = f"{METADATA}/file_path"
"""The text in which DROID states whether an episode succeeded."""
DROID_RESULTS = {"/success/": True, "/failure/": False}


def columns_of(features: Features) -> dict[Key, Feature]:
    """Return the feature of each column."""
    of_steps = {each: each.path[1:] for each in features.steps}
    both = (*features.steps, *features.episodes)
    texts = [each for each in both if each.dtype == TEXT and not each.shape]
    found = (each for name in INSTRUCTIONS for each in texts if each.path[-1] == name)
    instruction = next(found, None)
    columns: dict[Key, Feature] = {}
    for feature, path in of_steps.items():
        if path in [(flag,) for flag in FLAGS]:
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
    if root == "action" or path == ("reward",):
        return path if root == "action" else ("next", "reward")
    return ("info", *(below if root == "observation" else path))


def flags_of(episode: RldsEpisode, features: Features) -> dict[str, np.ndarray | None]:
    """Return the flags of the steps, each bool ``[T]``, or None if the dataset lacks it."""
    known = {each.path: each for each in features.steps}
    found = {name: known.get((STEPS, name)) for name in FLAGS}
    return {
        name: episode.values(each).reshape(-1) != 0 if each else None
        for name, each in found.items()
    }


def ends_of(episode: RldsEpisode, features: Features) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each step is the last of its trajectory and is terminal, bool ``[T]``."""
    flags, none = flags_of(episode, features), np.zeros(episode.num_steps, np.bool_)
    ends = none.copy() if flags["is_last"] is None else flags["is_last"]
    ends[-1:] = True  # a record is an episode
    return ends, none if flags["is_terminal"] is None else flags["is_terminal"]


def result_of(episode: RldsEpisode, feature: Feature) -> bool | None:
    """Return whether an episode of DROID succeeded, or None if its path does not say so."""
    path = bytes(episode.values(feature, 0, 1)[0]).decode(errors="replace")
    return next((result for part, result in DROID_RESULTS.items() if part in path), None)


def episode_blocks(
    episode: RldsEpisode,
    features: Features,
    columns: Mapping[Key, Feature],
    constants: Mapping[Key, object],
    *,
    void: bool,
) -> Iterator[Block]:
    """Yield the steps of an episode; ``void`` drops last steps, which state only the successor."""
    ends, terminal = ends_of(episode, features)
    num_steps = episode.num_steps
    sizes = (  # the size of images may be in their files alone
        each.row_bytes
        if -1 not in each.shape or not num_steps
        else episode.values(each, 0, 1).nbytes
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
