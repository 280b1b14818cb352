"""The names of DQN Replay datasets: a game, a run, and a part or another form of it."""

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
    Option(
        "upstream",
        "|".join(UPSTREAMS),
        "source of the files; auto uses the first that is available",
    ),
)


class Name(NamedTuple):
    """The parts of a name."""

    game: str
    run: int
    checkpoints: range | None
    unplugged: bool


def parse(name: str) -> Name:
    """Return the parts of a name of this family."""
    base, tilde, text = name.partition("~")
    game, _, run = base.partition("/")
    part = re.fullmatch(r"ckpt(0|[1-9]\d*)-([1-9]\d*)", text)
    chosen = range(int(part[1]), int(part[2])) if part else None
    if (tilde and text != UNPLUGGED and chosen is None) or chosen == range(0):
        raise UsageError(
            f"atari_dqn/{name} is not a valid name. Expected {base}, {base}~ckptA-B for its "
            f"checkpoints A to B - 1 with A < B, or {base}~{UNPLUGGED} for RL Unplugged's form.",
            argument="id",
            id=f"atari_dqn/{name}",
            expected=[base, f"{base}~ckptA-B", f"{base}~{UNPLUGGED}"],
            found=name,
        )
    return Name(game, int(run), chosen, text == UNPLUGGED)


def variant(name: str, options: Mapping[str, str]) -> str:
    """Return the name of a variant by ``checkpoints``, such as ``"0:5"``, and ``upstream``."""
    base, tilde, _ = name.partition("~")
    wanted = []
    if "checkpoints" in options:
        text = options["checkpoints"]
        part = re.fullmatch(r"(\d+):(\d+)", text)
        if part is None or int(part[1]) >= int(part[2]):
            raise UsageError(
                f"--checkpoints {text!r} is not A:B with A < B, for the checkpoints A to B - 1.",
                argument="checkpoints",
                expected="A:B",
                found=text,
                advice="Example: --checkpoints 0:5",
            )
        wanted.append(f"{base}~ckpt{int(part[1])}-{int(part[2])}")
    upstream = options.get("upstream", "auto")
    if upstream not in UPSTREAMS:
        raise UsageError(
            f"--upstream {upstream!r} is not one of {', '.join(UPSTREAMS)}.",
            argument="upstream",
            expected=list(UPSTREAMS),
            found=upstream,
        )
    if upstream == "rl_unplugged":
        wanted.append(f"{base}~{UNPLUGGED}")
    if tilde or not wanted:
        wanted.append(name)
    if len(set(wanted)) > 1 or (upstream == "dqn_replay" and parse(name).unplugged):
        given = [f"atari_dqn/{name}", *(f"--{key} {value}" for key, value in options.items())]
        raise UsageError(
            f"{' and '.join(given)} contradict each other: checkpoints belong to the upstream "
            f"dqn_replay, names ending in ~{UNPLUGGED} to rl_unplugged.",
            argument="checkpoints" if "checkpoints" in options else "upstream",
            id=f"atari_dqn/{name}",
        )
    return wanted[0]


def fallback(name: str, options: Mapping[str, str]) -> str | None:
    """Return the substitute for an unavailable name: RL Unplugged's form of a whole run."""
    parsed = parse(name)
    whole = not parsed.unplugged and parsed.checkpoints is None
    may = whole and options.get("upstream", "auto") == "auto" and parsed.game in UNPLUGGED_GAMES
    return f"{name}~{UNPLUGGED}" if may else None


def references(name: str) -> dict[str, str]:
    """Return the paper of DQN Replay, and RL Unplugged's for its datasets."""
    papers = read_bibtex(Path(__file__).with_name("references.bib"))
    if not parse(name).unplugged:
        del papers["gulcehre2020rlunplugged"]
    return papers
