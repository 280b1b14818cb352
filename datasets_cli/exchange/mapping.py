"""Which of other tools' columns is which of ours: by their names, or as a user says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from datasets_cli.errors import SourceError, UsageError, argument
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
NEEDED = ("observation", "action", "next.reward")
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


def typed_map(pairs: Iterable[str]) -> dict[str, str]:
    """Return the map that ``KEY=COLUMN`` texts are."""
    columns = {}
    for pair in pairs:
        key, equals, name = pair.partition("=")
        if not (key and equals and name):
            raise UsageError(f"{argument('map')}: expected KEY=COLUMN, not {pair!r}.")
        if key in columns:
            raise UsageError(f"{argument('map')}: {key} is given twice. Leave one out.")
        columns[key] = name
    return columns


def chosen_map(found: Recognised, given: ColumnMap | Iterable[str] | None) -> dict[str, str]:
    """Return the columns to read: what is given, after what their names say."""
    given = given if isinstance(given, Mapping) else typed_map(given or ())
    columns = {**found.map, **given}
    for key, name in columns.items():
        if name not in found.columns:
            near = get_close_matches(name, found.columns, n=3, cutoff=0.5)
            known = f"Found: {', '.join(found.columns)}"
            hint = f"Did you mean {' or '.join(near)}?" if near else known
            raise UsageError(f"{argument('map')}: there is no column {name} for {key}. {hint}")
    if told := [key for key in ENDS if key in given]:
        # What a user says of ends stands alone.
        columns = {key: name for key, name in columns.items() if key not in ENDS or key in told}
    if not found.ends:
        _check_ends(columns, found)
    have = {*columns, *(key.partition(".")[0] for key in columns)}
    missing = [key for key in NEEDED if key not in have]
    if missing and (found.dropped or found.notes):
        dropped = (f"Not read: {name}: {why}." for name, why in [*found.dropped.items()][:5])
        why = " ".join([*found.notes, *dropped])
        raise SourceError(f"There is no column for {missing[0]}. {why}")
    return columns


def _check_ends(columns: ColumnMap, found: Recognised) -> None:
    has_flags = "next.terminated" in columns and "next.truncated" in columns
    if not has_flags and not any(key in columns for key in ENDS):
        raise UsageError(
            f"Nothing says where trajectories end. Name a column of flags, "
            f"{argument('map')} ends=COLUMN, or one of lengths, {argument('map')} lengths=COLUMN "
            f"(or of numbers, episode=COLUMN). Found: {', '.join(found.columns)}."
        )


def lost_names(found: Recognised, columns: ColumnMap) -> list[str]:
    """Return the columns that are not read, each with the reason."""
    used = set(columns.values())
    left = (name or "a column without a name" for name in found.columns if name not in used)
    lost = [f"{name}: no key is given for it" for name in left]
    return [*lost, *(f"{name}: {why}" for name, why in found.dropped.items())]


def shown_map(columns: ColumnMap) -> str:
    """Return the options that say a map."""
    return " ".join(f"{argument('map')} {key}={name}" for key, name in columns.items())
