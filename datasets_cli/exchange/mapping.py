"""Maps the columns of other tools to keys: by their names, or by the argument ``map``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from datasets_cli.errors import UnknownKey, UsageError, argument, by_reader
from datasets_cli.exchange.format import ENDS, ColumnMap, Recognised

KNOWN_NAMES = {
    "observation": ("observation", "observations", "obs", "state", "states"),
    "action": ("action", "actions", "acts"),
    "next.reward": ("reward", "rewards", "rews"),
    "next.terminated": ("terminated", "terminals", "terminations", "terminal"),
    "next.truncated": ("truncated", "timeouts", "truncations", "timeout"),
    "next.observation": (
        *("next_observation", "next_observations", "next_obs", "obs_next", "next_states"),
    ),
    "episode": ("episode", "episode_id", "episode_index", "episode_ids"),
    "lengths": ("lengths", "episode_lengths"),
    "ends": ("ends", "episode_terminals"),
    "info": ("info", "infos"),
    "next.info": ("next_info", "next_infos"),
}
"""Names with one meaning. If a file has several names of one key, the first is read."""

DONE_NAMES = ("done", "dones")
"""Names with two meanings: the end of a trajectory, or a termination."""
GROUPS = frozenset({"observation", "action", "next.observation", "info", "next.info"})
"""The keys whose columns may have names below them."""
REWARD, NEEDED = "next.reward", ("observation", "action")
ROOTS = ("observation.", "action.", "info.", "next.")
"""The beginnings of names with dots that are keys themselves."""
WORDS = {
    "episode": ("episode", "traj"),
    "lengths": ("length",),
    "ends": ("end", "last", "done", "terminal", "terminated"),
}
"""Words in the names of columns that may mark the ends of trajectories."""


def guess(names: Iterable[str], between: str = ".") -> dict[str, str]:
    """Return the column of each key: columns with known names, and with keys as names."""
    paths = {name: name.split(between) for name in names}
    columns: dict[str, str] = {}
    for key, known in KNOWN_NAMES.items():
        for head in known:
            found = {name: path[1:] for name, path in paths.items() if path[0] == head}
            if head in found or key not in GROUPS:
                found = {head: []} if head in found else {}
            if found:
                columns |= {".".join((key, *below)): name for name, below in found.items()}
                break
    # Keys as names win: next to next.terminated, terminated is the flag of the step before.
    dotted = {name: name for name in paths if name.startswith(ROOTS) and name != "next.done"}
    return _without_nested(columns, dotted) | dotted


def _without_nested(columns: ColumnMap, others: Iterable[str]) -> dict[str, str]:
    """Return the columns whose keys are neither above nor below another key."""
    return {
        key: name
        for key, name in columns.items()
        if not any(key.startswith(f"{each}.") or each.startswith(f"{key}.") for each in others)
    }


def chosen_map(found: Recognised, user_map: ColumnMap | Iterable[str] | None) -> dict[str, str]:
    """Return the column to read for each key: the user's map completes and replaces the guesses.

    An omitted key has the column ``""``, so the returned map reads the same columns.
    """
    chosen = _by_keys(user_map, found.map)
    for key, name in chosen.items():
        _check_key(key, name, found.map)
    guessed = _without_nested(found.map, [key for key, name in chosen.items() if name])
    columns = {key: name for key, name in {**guessed, **chosen}.items() if name}
    _check_columns(columns, found)
    if chosen_ends := [key for key in ENDS if chosen.get(key)]:
        # The user's ends replace all guessed ones.
        guessed_ends = {*ENDS}.difference(chosen_ends)
        columns = {key: name for key, name in columns.items() if key not in guessed_ends}
    elif found.is_ring:
        raise UsageError(
            f"The oldest row is unknown: {' '.join(found.notes)}.",
            argument="map",
            advice=f"Dump the buffer with its writer, or use {argument('map')} ends=COLUMN or "
            "episode=COLUMN. The newest row must end a trajectory, too.",
        )
    if not found.ends:
        _check_ends(columns, found)
    _check_needed(columns, found, has_reward_choice=REWARD in chosen)
    return columns | {key: "" for key in {**guessed, **chosen} if key not in columns}


def _check_columns(columns: ColumnMap, found: Recognised) -> None:
    for key, name in columns.items():
        if name not in found.columns:
            near = get_close_matches(name, found.columns, n=3, cutoff=0.5)
            known = f"Found: {', '.join(found.columns)}."
            raise UnknownKey(
                f"{argument('map')}: the column {name} of {key} does not exist.",
                argument="map",
                key=key,
                expected=[*found.columns],
                found=name,
                advice=f"Did you mean {' or '.join(near)}?" if near else known,
            )


def _check_needed(columns: ColumnMap, found: Recognised, *, has_reward_choice: bool) -> None:
    present = {*columns, *(key.partition(".")[0] for key in columns)}
    unused = [*(name for name in found.columns if name not in columns.values()), *found.dropped]
    # Demonstrations have no rewards, and a user may leave the rewards out.
    may_have_rewards = not has_reward_choice and any(
        re.search(r"(^|[./])rew", name) for name in unused
    )
    needed = (*NEEDED, REWARD) if may_have_rewards else NEEDED
    if missing := next((key for key in needed if key not in present), ""):
        dropped = (f"Not read: {name}: {why}." for name, why in [*found.dropped.items()][:5])
        why = " ".join([f"Found: {', '.join(found.columns)}.", *found.notes, *dropped])
        option = as_options(_suggested(missing, unused))
        none = f" If the file has no rewards: {as_options({REWARD: ''})}."
        left_out = none if missing == REWARD else ""
        raise UnknownKey(
            f"No column is mapped to {missing}. {why}",
            argument="map",
            key=missing,
            found=[*found.columns],
            advice=f"Name it: {option}.{left_out}",
        )


def as_options(columns: ColumnMap) -> str:
    """Return a map as options of the command line, or as a Python argument."""
    options = (f"--map {shlex.quote(f'{key}={name}')}" for key, name in columns.items())
    return by_reader(" ".join(options), f"map={dict(columns)}")


def _suggested(missing: str, unused: Iterable[str]) -> dict[str, str]:
    """Return the columns whose names are similar to a known name of the key."""
    paths = {name: re.split("[./]", name) for name in unused}
    heads, known = [path[0] for path in paths.values()], KNOWN_NAMES[missing]
    begins = (each for each in heads if each.startswith(known))
    near = (each for name in known for each in get_close_matches(name, heads, 1))
    head = next(begins, next(near, ""))
    like = {name: path[1:] for name, path in paths.items() if path[0] == head}
    names = {".".join((missing, *below)): name for name, below in like.items()}
    return names if missing in GROUPS and names else {missing: names.get(missing, "COLUMN")}


def _by_keys(user_map: ColumnMap | Iterable[str] | None, guessed: ColumnMap) -> dict[str, str]:
    """Return a map, or ``KEY=COLUMN`` texts, by keys; ``reward=`` stands for ``next.reward=``."""
    columns: dict[str, str] = {}
    listed: Any = [user_map] if isinstance(user_map, str) else user_map or ()
    pairs = [*listed.items()] if isinstance(listed, Mapping) else [*map(_pair, listed)]
    for key, name in pairs:
        if not (key and isinstance(key, str) and isinstance(name, str)):
            found = repr(key) if name is None else f"{key!r}: {name!r}"
            raise UsageError(
                f"{argument('map')}: expected KEY=COLUMN, not {found}.",
                argument="map",
                expected="KEY=COLUMN",
                found=found,
            )
        head, dot, below = key.partition(".")
        root = next((each for each, known in KNOWN_NAMES.items() if head in known), head)
        # A known name may also be a column in its own right: a state next to an observation.
        is_taken = key in guessed or any(root + dot + below == each for each, _ in pairs)
        full_key = key if is_taken else root + dot + below
        if full_key in columns:
            raise UsageError(
                f"{argument('map')}: {full_key} is mapped twice.",
                argument="map",
                key=full_key,
                advice="Leave one out.",
            )
        columns[full_key] = name
    return columns


def _pair(text: Any) -> tuple[Any, str | None]:
    key, equals, name = text.partition("=") if isinstance(text, str) else (text, "", "")
    return key, name if equals else None


def _check_key(key: str, name: str, guessed: ColumnMap) -> None:
    """Reject a key that datasets do not have, unless it is the name of the column."""
    is_below = any(key.startswith(f"{each}.") for each in GROUPS)
    if not (key in KNOWN_NAMES or is_below or key in guessed or key == name):
        near = get_close_matches(key, KNOWN_NAMES, 1)
        raise UnknownKey(
            f"{argument('map')}: {key} is not a key of a dataset. Expected one of "
            f"{', '.join(KNOWN_NAMES)}, or a name below one of them, such as "
            f"info.{key.rpartition('.')[2]}.",
            argument="map",
            key=key,
            expected=[*KNOWN_NAMES],
            advice=f"Did you mean {near[0]}?" if near else None,
        )


def _check_ends(columns: ColumnMap, found: Recognised) -> None:
    has_flags = "next.terminated" in columns and "next.truncated" in columns
    if has_flags or any(key in columns for key in ENDS):
        return
    numbers = [name for name, form in found.columns.items() if form.endswith(("[]", "[1]"))]
    options = [
        as_options({key: name})
        for key, words in WORDS.items()
        for name in numbers
        if any(part.startswith(words) for part in re.split(r"[\W_]+", name.lower()))
    ]
    done = (name for name in numbers if name in DONE_NAMES)
    options += [as_options({"ends": name, "next.terminated": name}) for name in done]
    exact = f" Judging by its name: {', or '.join(options)}." if options else ""
    raise UnknownKey(
        f"The ends of trajectories are unknown. Found: {', '.join(found.columns)}.",
        argument="map",
        key="ends",
        found=[*found.columns],
        advice=f"Map a column of last steps ({argument('map')} ends=COLUMN), of lengths "
        "(lengths=COLUMN) or of episode numbers (episode=COLUMN), or both flags of a step "
        f"(next.terminated=COLUMN and next.truncated=COLUMN).{exact}",
    )


def skipped(found: Recognised, columns: ColumnMap) -> dict[str, str]:
    """Return the reason for each column that is not read."""
    unread = (name for name in found.columns if name not in columns.values())
    reasons = {name or "a column without a name": _why_unread(name, columns) for name in unread}
    return reasons | dict(found.dropped)


def _why_unread(name: str, columns: ColumnMap) -> str:
    head = re.split("[./]", name)[0]
    role = next((f"{key}." for key, known in KNOWN_NAMES.items() if head in known), "")
    for key, other in columns.items():
        if role and other and f"{key}.".startswith(role):
            return f"{re.split('[./]', other)[0]} is read as {role[:-1]}"
    return "it may mean an end or a termination" if head in DONE_NAMES else "no key is mapped to it"
