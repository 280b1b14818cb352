"""Which of other tools' columns is which of ours: by their names, or as a user says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from datasets_cli.errors import UnknownKey, UsageError, argument, by_reader
from datasets_cli.exchange.format import ColumnMap, Recognised

ENDS = ("ends", "lengths", "episode")
"""Keys of what says where trajectories end."""

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
"""Names that mean one thing; where a file has several, the first one is read."""

DONE_NAMES = ("done", "dones")
"""They mean one of two things: an end, or a termination."""
GROUPS = frozenset({"observation", "action", "next.observation", "info", "next.info"})
"""The keys whose columns may have names below them."""
REWARD, NEEDED = "next.reward", ("observation", "action")
ROOTS = ("observation.", "action.", "info.", "next.")
"""What names with dots begin with that are keys themselves."""
WORDS = {
    "episode": ("episode", "traj"),
    "lengths": ("length",),
    "ends": ("end", "last", "done", "terminal", "terminated"),
}
"""Words that begin a part of the name of a column that may say where trajectories end."""


def guess(names: Iterable[str], between: str = ".") -> dict[str, str]:
    """Return the columns of each key that has a known name, and those named as keys are."""
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
    # They win: beside next.terminated, terminated is of the step before.
    dotted = {name: name for name in paths if name.startswith(ROOTS) and name != "next.done"}
    return _beside(columns, dotted) | dotted


def _beside(columns: ColumnMap, others: Iterable[str]) -> dict[str, str]:
    """Return the columns whose keys are neither above nor below another key."""
    return {
        key: name
        for key, name in columns.items()
        if not any(key.startswith(f"{each}.") or each.startswith(f"{key}.") for each in others)
    }


def chosen_map(found: Recognised, given: ColumnMap | Iterable[str] | None) -> dict[str, str]:
    """Return the columns to read: what is given, after what their names say.

    A key that is left out has the column ``""``: the same map again reads the same columns.
    """
    given = _by_our_keys(given, found.map)
    for key, name in given.items():
        _check_key(key, name, found.map)
    guessed = _beside(found.map, [key for key, name in given.items() if name])
    columns = {key: name for key, name in {**guessed, **given}.items() if name}
    for key, name in columns.items():
        if name not in found.columns:
            near = get_close_matches(name, found.columns, n=3, cutoff=0.5)
            known = f"Found: {', '.join(found.columns)}"
            hint = f"Did you mean {' or '.join(near)}?" if near else known
            no_column = f"{argument('map')}: there is no column {name} for {key}. {hint}"
            raise UnknownKey(no_column, argument="map", key=key)
    if told := [key for key in ENDS if given.get(key)]:
        # What a user says of ends stands alone.
        columns = {key: name for key, name in columns.items() if key not in ENDS or key in told}
    elif found.is_ring:
        raise UsageError(
            f"The oldest row is not known: {' '.join(found.notes)}. Dump the buffer with its "
            f"writer, or name a column that says where trajectories end, {argument('map')} "
            "ends=COLUMN or episode=COLUMN, also at the newest row."
        )
    if not found.ends:
        _check_ends(columns, found)
    have = {*columns, *(key.partition(".")[0] for key in columns)}
    unused = [*(name for name in found.columns if name not in columns.values()), *found.dropped]
    # Demonstrations have no rewards; what a user leaves out is not asked for.
    may_have_rewards = REWARD not in given and any(
        re.search(r"(^|[./])rew", name) for name in unused
    )
    needed = (*NEEDED, REWARD) if may_have_rewards else NEEDED
    if missing := next((key for key in needed if key not in have), ""):
        dropped = (f"Not read: {name}: {why}." for name, why in [*found.dropped.items()][:5])
        why = " ".join([f"Found: {', '.join(found.columns)}.", *found.notes, *dropped])
        option = as_options(_suggested(missing, unused))
        none = f" If the file has no rewards: {as_options({REWARD: ''})}."
        left_out = none if missing == REWARD else ""
        no_column = f"There is no column for {missing}. Name it: {option}.{left_out} {why}"
        raise UnknownKey(no_column, argument="map", key=missing)
    return columns | {key: "" for key in {**guessed, **given} if key not in columns}


def as_options(columns: ColumnMap) -> str:
    """Return a map as its reader writes it."""
    options = (f"--map {shlex.quote(f'{key}={name}')}" for key, name in columns.items())
    return by_reader(" ".join(options), f"map={dict(columns)}")


def _suggested(missing: str, unused: Iterable[str]) -> dict[str, str]:
    """Return the columns that a key may mean, by a name that is like one of the key's."""
    paths = {name: re.split("[./]", name) for name in unused}
    heads, known = [path[0] for path in paths.values()], KNOWN_NAMES[missing]
    begins = (each for each in heads if each.startswith(known))
    near = (each for name in known for each in get_close_matches(name, heads, 1))
    head = next(begins, next(near, ""))
    like = {name: path[1:] for name, path in paths.items() if path[0] == head}
    names = {".".join((missing, *below)): name for name, below in like.items()}
    return names if missing in GROUPS and names else {missing: names.get(missing, "COLUMN")}


def _by_our_keys(given: ColumnMap | Iterable[str] | None, guessed: ColumnMap) -> dict[str, str]:
    """Return a map, or ``KEY=COLUMN`` texts, by our keys, some of which have other names, too."""
    columns: dict[str, str] = {}
    listed: Any = [given] if isinstance(given, str) else given or ()
    pairs = [*listed.items()] if isinstance(listed, Mapping) else [*map(_pair, listed)]
    for key, name in pairs:
        if not (key and isinstance(key, str) and isinstance(name, str)):
            found = repr(key) if name is None else f"{key!r}: {name!r}"
            raise UsageError(f"{argument('map')}: expected KEY=COLUMN, not {found}.")
        head, dot, below = key.partition(".")
        ours = next((each for each, known in KNOWN_NAMES.items() if head in known), head)
        # A column of such a name may be none of ours: beside an observation there is a state.
        is_taken = key in guessed or any(ours + dot + below == each for each, _ in pairs)
        ours = key if is_taken else ours + dot + below
        if ours in columns:
            raise UsageError(f"{argument('map')}: {ours} is given twice. Leave one out.")
        columns[ours] = name
    return columns


def _pair(text: Any) -> tuple[Any, str | None]:
    key, equals, name = text.partition("=") if isinstance(text, str) else (text, "", "")
    return key, name if equals else None


def _check_key(key: str, name: str, guessed: ColumnMap) -> None:
    """Refuse a key that no dataset has, unless it is the column's own name."""
    is_below = any(key.startswith(f"{each}.") for each in GROUPS)
    if not (key in KNOWN_NAMES or is_below or key in guessed or key == name):
        near = get_close_matches(key, KNOWN_NAMES, 1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise UnknownKey(
            f"{argument('map')}: {key} is not a key of a dataset. {hint}Expected one of "
            f"{', '.join(KNOWN_NAMES)}, or a name below one of them, such as "
            f"info.{key.rpartition('.')[2]}.",
            argument="map",
            key=key,
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
    exact = f" By its name it may be {', or '.join(options)}." if options else ""
    raise UsageError(
        "Nothing says where trajectories end. Name a column of their last steps, "
        f"{argument('map')} ends=COLUMN, of lengths, lengths=COLUMN, or of numbers, "
        "episode=COLUMN; or both flags of a step, next.terminated=COLUMN and "
        f"next.truncated=COLUMN.{exact} Found: {', '.join(found.columns)}."
    )


def skipped(found: Recognised, columns: ColumnMap) -> dict[str, str]:
    """Return why columns are not read, by their names."""
    unread = (name for name in found.columns if name not in columns.values())
    reasons = {name or "a column without a name": _why_unread(name, columns) for name in unread}
    return reasons | dict(found.dropped)


def _why_unread(name: str, columns: ColumnMap) -> str:
    head = re.split("[./]", name)[0]
    role = next((f"{key}." for key, known in KNOWN_NAMES.items() if head in known), "")
    for key, other in columns.items():
        if role and other and f"{key}.".startswith(role):
            return f"{re.split('[./]', other)[0]} is read as {role[:-1]}"
    return "it may mean an end or a termination" if head in DONE_NAMES else "no key is given for it"
