"""What the names of DQN Replay datasets mean: a game, a run, and a part or another form of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from datasets_cli.recipe import Option, UsageError, read_bibtex

from .unplugged_catalogue import GAMES as UNPLUGGED_GAMES

UPSTREAMS = ("auto", "dqn_replay", "rl_unplugged")
UNPLUGGED = "unplugged"
OPTIONS = (
    Option("checkpoints", "A:B", "only the checkpoints A to B - 1"),
    Option("upstream", "|".join(UPSTREAMS), "whose copy; auto takes the first that answers"),
)


class Name(NamedTuple):
    """What a name says."""

    game: str
    run: int
    checkpoints: range | None
    unplugged: bool


def parse(name: str) -> Name:
    """Return what a name of this family says."""
    base, tilde, text = name.partition("~")
    game, _, run = base.partition("/")
    part = re.fullmatch(r"ckpt(0|[1-9]\d*)-([1-9]\d*)", text)
    chosen = range(int(part[1]), int(part[2])) if part else None
    if (tilde and text != UNPLUGGED and chosen is None) or chosen == range(0):
        raise UsageError(
            f"atari_dqn/{name} has no meaning. Expected {base}, {base}~ckptA-B for its checkpoints "
            f"A to B - 1 with A < B, or {base}~{UNPLUGGED} for RL Unplugged's form."
        )
    return Name(game, int(run), chosen, text == UNPLUGGED)


def variant(name: str, options: Mapping[str, str]) -> str:
    """Return the name of what ``checkpoints`` (``"0:5"``) and ``upstream`` make of a name."""
    base, tilde, _ = name.partition("~")
    wanted = []
    if "checkpoints" in options:
        text = options["checkpoints"]
        part = re.fullmatch(r"(\d+):(\d+)", text)
        if part is None or int(part[1]) >= int(part[2]):
            raise UsageError(
                f"--checkpoints {text!r} is not A:B, which takes the checkpoints A to B - 1 and "
                "needs A < B. Example: --checkpoints 0:5"
            )
        wanted.append(f"{base}~ckpt{int(part[1])}-{int(part[2])}")
    upstream = options.get("upstream", "auto")
    if upstream not in UPSTREAMS:
        raise UsageError(f"--upstream {upstream!r} is not one of {', '.join(UPSTREAMS)}.")
    if upstream == "rl_unplugged":
        wanted.append(f"{base}~{UNPLUGGED}")
    if tilde or not wanted:
        wanted.append(name)
    if len(set(wanted)) > 1 or (upstream == "dqn_replay" and parse(name).unplugged):
        given = [f"atari_dqn/{name}", *(f"--{key} {value}" for key, value in options.items())]
        raise UsageError(
            f"{' and '.join(given)} do not go together: the checkpoints are parts of the "
            f"upstream dqn_replay, and names that end in ~{UNPLUGGED} are of rl_unplugged."
        )
    return wanted[0]


def fallback(name: str, options: Mapping[str, str]) -> str | None:
    """Return what is taken for a name that is not available: RL Unplugged's form of a whole run."""
    parsed = parse(name)
    whole = not parsed.unplugged and parsed.checkpoints is None
    may = whole and options.get("upstream", "auto") == "auto" and parsed.game in UNPLUGGED_GAMES
    return f"{name}~{UNPLUGGED}" if may else None


def references(name: str) -> dict[str, str]:
    """Return the paper of DQN Replay, and RL Unplugged's for what comes from there."""
    papers = read_bibtex(Path(__file__).with_name("references.bib"))
    if not parse(name).unplugged:
        del papers["gulcehre2020rlunplugged"]
    return papers
