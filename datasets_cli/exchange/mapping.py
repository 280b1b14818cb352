"""Which of other tools' columns is which of ours: by their names, or as a user says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from datasets_cli.errors import UsageError, argument
from datasets_cli.exchange.format import ColumnMap, Recognised

ENDS = ("ends", "lengths", "episode")
"""Keys of what says where trajectories end."""

KNOWN_NAMES = {
    "observation": ("observation", "observations", "obs", "state", "states"),
    "action": ("action", "actions"),
    "next.reward": ("reward", "rewards"),
    "next.terminated": ("terminated", "terminals", "terminations", "terminal"),
    "next.truncated": ("truncated", "timeouts", "truncations", "timeout"),
    "next.observation": ("next_observation", "next_observations", "next_obs", "next_states"),
    "episode": ("episode", "episode_id", "episode_index", "episode_ids"),
    "lengths": ("lengths", "episode_lengths"),
    "ends": ("ends", "episode_terminals"),
    "info": ("info", "infos"),
    "next.info": ("next_info", "next_infos"),
}
"""Names that mean one thing. ``done`` does not: it may be an end, or a termination."""

GROUPS = frozenset({"observation", "action", "next.observation", "info", "next.info"})
"""The keys whose columns may have names below them."""
REWARD, NEEDED = "next.reward", ("observation", "action")
ROOTS = ("observation.", "action.", "info.", "next.")
"""What names with dots begin with that are keys themselves."""


def guess(names: Iterable[str], between: str = ".") -> dict[str, str]:
    """Return the column of each key whose names there is one of, and those named as keys are."""
    paths = {name: name.split(between) for name in names}
    heads = {path[0] for path in paths.values()}
    columns: dict[str, str] = {}
    for key, known in KNOWN_NAMES.items():
        if len(given := heads.intersection(known)) == 1:
            columns |= {
                ".".join((key, *below)): name
                for name, (head, *below) in paths.items()
                if head in given and (key in GROUPS or not below)
            }
    # They win: beside next.terminated, terminated is of the step before.
    dotted = (name for name in paths if name.startswith(ROOTS) and name != "next.done")
    return columns | {name: name for name in dotted}


def chosen_map(found: Recognised, given: ColumnMap | Iterable[str] | None) -> dict[str, str]:
    """Return the columns to read: what is given, after what their names say."""
    given = _by_our_keys([given] if isinstance(given, str) else given or (), found.map)
    # A key of no column is left out.
    columns = {key: name for key, name in {**found.map, **given}.items() if name}
    for key, name in columns.items():
        if name not in found.columns:
            near = get_close_matches(name, found.columns, n=3, cutoff=0.5)
            known = f"Found: {', '.join(found.columns)}"
            hint = f"Did you mean {' or '.join(near)}?" if near else known
            raise UsageError(f"{argument('map')}: there is no column {name} for {key}. {hint}")
    if told := [key for key in ENDS if given.get(key)]:
        # What a user says of ends stands alone.
        columns = {key: name for key, name in columns.items() if key not in ENDS or key in told}
    if not found.ends:
        _check_ends(columns, found)
    have = {*columns, *(key.partition(".")[0] for key in columns)}
    unused = [*(name for name in found.columns if name not in columns.values()), *found.dropped]
    # Demonstrations have no rewards; what a user leaves out is not asked for.
    may_have_rewards = REWARD not in given and any(map(_is_like_reward, unused))
    needed = (*NEEDED, REWARD) if may_have_rewards else NEEDED
    if missing := next((key for key in needed if key not in have), ""):
        dropped = (f"Not read: {name}: {why}." for name, why in [*found.dropped.items()][:5])
        name = next((each for each in unused if each.startswith(KNOWN_NAMES[missing])), "COLUMN")
        why = " ".join([f"Found: {', '.join(found.columns)}.", *found.notes, *dropped])
        option = f"{argument('map')} {missing}={name}"
        left_out = f" Where it is none: {argument('map')} {REWARD}=." if missing == REWARD else ""
        raise UsageError(f"There is no column for {missing}. Name it: {option}.{left_out} {why}")
    return columns


def _is_like_reward(name: str) -> bool:
    return any(part.startswith("rew") for part in re.split(r"[./]", name)[-1:])


def _by_our_keys(given: ColumnMap | Iterable[str], guessed: ColumnMap) -> dict[str, str]:
    """Return a map, or ``KEY=COLUMN`` texts, by our keys, some of which have other names, too."""
    columns: dict[str, str] = {}
    pairs = given.items() if isinstance(given, Mapping) else [each.split("=", 1) for each in given]
    for key, *name in (pairs := [*pairs]):
        if not (key and name):
            raise UsageError(f"{argument('map')}: expected KEY=COLUMN, not {key!r}.")
        head, dot, below = key.partition(".")
        ours = next((each for each, known in KNOWN_NAMES.items() if head in known), head)
        # A column of such a name may be none of ours: beside an observation there is a state.
        is_taken = key in guessed or any(ours + dot + below == each for each, *_ in pairs)
        ours = key if is_taken else ours + dot + below
        if ours in columns:
            raise UsageError(f"{argument('map')}: {ours} is given twice. Leave one out.")
        columns[ours] = name[0]
    return columns


def _check_ends(columns: ColumnMap, found: Recognised) -> None:
    has_flags = "next.terminated" in columns and "next.truncated" in columns
    if not has_flags and not any(key in columns for key in ENDS):
        near = (meant for key in columns for meant in get_close_matches(key, ENDS, 1, 0.8))
        hint = "".join(f" Did you mean the key {meant}?" for meant in near)
        raise UsageError(
            "Nothing says where trajectories end. Name a column of their last steps, "
            f"{argument('map')} ends=COLUMN, of lengths, lengths=COLUMN, or of numbers, "
            "episode=COLUMN; or both flags of a step, next.terminated=COLUMN and "
            f"next.truncated=COLUMN. Found: {', '.join(found.columns)}.{hint}"
        )


def lost_names(found: Recognised, columns: ColumnMap) -> list[str]:
    """Return the columns that are not read, each with the reason."""
    used = set(columns.values())
    left = (name or "a column without a name" for name in found.columns if name not in used)
    lost = [f"{name}: no key is given for it" for name in left]
    return [*lost, *(f"{name}: {why}" for name, why in found.dropped.items())]
