"""The DQN Replay Dataset: every transition of a DQN agent that learns an Atari 2600 game.

60 games, 5 runs each, 50 million steps a run. Its bucket has refused everyone since about April
2025; the layout is read from any copy of it. RL Unplugged published 46 of the games once more, in
another form; such a dataset is ``Pong/5~unplugged``. Some checkpoints alone are ``Pong/5~ckpt0-5``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datasets_cli.recipe import (
    Block,
    CatalogueEntry,
    Description,
    Pictures,
    Place,
    Recipe,
    Resource,
    Source,
    Web,
    rows_per_block,
)

from . import _atari_unplugged as unplugged
from ._atari_logs import LAST, placed, published
from ._atari_names import fallback, parse, variant
from ._atari_order import FRAME
from ._atari_pictures import OBSERVATION, read_pictures
from ._atari_steps import MAX_EPISODE_STEPS, read_steps
from ._atari_survey import survey

_GAMES = """
AirRaid Alien Amidar Assault Asterix Asteroids Atlantis BankHeist BattleZone BeamRider Berzerk
Bowling Boxing Breakout Carnival Centipede ChopperCommand CrazyClimber DemonAttack DoubleDunk
ElevatorAction Enduro FishingDerby Freeway Frostbite Gopher Gravitar Hero IceHockey Jamesbond
JourneyEscape Kangaroo Krull KungFuMaster MontezumaRevenge MsPacman NameThisGame Phoenix Pitfall
Pong Pooyan PrivateEye Qbert Riverraid RoadRunner Robotank Seaquest Skiing Solaris SpaceInvaders
StarGunner Tennis TimePilot Tutankham UpNDown Venture VideoPinball WizardOfWor YarsRevenge Zaxxon
"""
GAMES = tuple(_GAMES.split())
RUNS = range(1, 6)
TRAPS = {"Asterix/1": "reported as corrupt (google-research/batch_rl issue 28)"}
ROW_BYTES = 16  # of a step without its picture


def datasets(web: Web | None) -> list[CatalogueEntry]:
    """Return the 300 runs."""
    return [
        CatalogueEntry(
            f"{game}/{run}",
            details={
                "rl_unplugged": game in unplugged.GAMES,
                **({"known_trap": TRAPS[name]} if (name := f"{game}/{run}") in TRAPS else {}),
            },
        )
        for game in GAMES
        for run in RUNS
    ]


def find(name: str, web: Web | None) -> CatalogueEntry | None:
    """Return the row of a variant of a run; None where there is no such run."""
    rows = {row.name: row for row in datasets(None)}
    row = rows.get(name.partition("~")[0])
    if row is None:
        return None
    parse(name)
    return CatalogueEntry(name, details=row.details)


def resources(name: str, web: Web | None) -> list[Resource]:
    """Return the files of a run; see ``_atari_logs.published``.

    Raises:
        AccessError: they cannot be had.
        NetworkError: no answer.
    """
    game, run, checkpoints, is_unplugged = parse(name)
    if is_unplugged:
        return unplugged.resources(game, run, web)
    assert web is not None, "files under --source are found by resources_at"
    return published(game, run, checkpoints, web)


def resources_at(name: str, place: Place) -> list[Resource]:
    """Return the files of a run that ``--source`` names; see ``_atari_logs.placed``."""
    game, run, checkpoints, is_unplugged = parse(name)
    return unplugged.resources(game, run, None) if is_unplugged else placed(place, checkpoints)


def describe(source: Source) -> Description:
    """Return what is known of the run, its checkpoints, and what its rows turn out to be."""
    name = parse(source.name)
    if name.unplugged:
        return unplugged.describe(source)
    steps = survey(source).checkpoints
    trap = TRAPS.get(f"{name.game}/{name.run}")
    metadata: dict[str, Any] = {
        "upstream": "dqn_replay",
        "game": name.game,
        "run": name.run,
        "checkpoints": steps,
        "max_episode_steps": MAX_EPISODE_STEPS,
        "frame_skip": 4,
        "repeat_action_probability": 0.25,
        "reward_range": [-1, 1],
        **({"known_traps": [trap]} if trap else {}),
    }
    notes = [f"known trap: {trap}"] if trap else []
    if name.checkpoints is None and len(steps) < LAST:
        notes.append(f"{len(steps)} checkpoints; a whole run has {LAST} or {LAST + 1}")
    return Description(metadata, (*notes, *_notes(steps)))


def _notes(steps: list[dict[str, Any]]) -> Iterator[str]:
    breaks = [str(step["number"]) for step in steps[1:] if not step["follows"]]
    if breaks:
        listed = ", ".join(breaks)
        yield f"rows are missing before checkpoint {listed}; no trajectory goes across"
    if limited := sum(step["episodes_at_step_limit"] for step in steps):
        yield (
            f"{limited} episodes of {MAX_EPISODE_STEPS:,} steps are truncated, though the "
            "publisher marks their ends as it marks a game that is over"
        )
    if unknown := sum(step["episodes_of_unknown_length"] for step in steps):
        yield f"{unknown} episodes whose beginning is missing are terminated where they end"


def blocks(source: Source) -> Iterator[Block]:
    """Yield the steps of a run without their pictures.

    Raises:
        SourceError: the files are damaged or do not fit together.
    """
    if parse(source.name).unplugged:
        yield from unplugged.blocks(source)
        return
    num_rows = rows_per_block(ROW_BYTES)
    for steps in read_steps(survey(source).turns):
        for start in range(0, steps.num_steps, num_rows):
            some = slice(start, start + num_rows)
            yield Block({key: values[some] for key, values in steps.columns.items()})


def pictures(source: Source) -> Pictures:
    """Return the screens before all steps, a part a file.

    Raises:
        SourceError: the files are damaged or do not fit together.
    """
    if parse(source.name).unplugged:
        return unplugged.pictures(source)
    return Pictures(OBSERVATION, FRAME, survey(source).parts, read_pictures)


RECIPE = Recipe(
    family="atari_dqn",
    version=1,
    title="DQN Replay Dataset: all that a DQN agent saw while it learned an Atari 2600 game",
    licence="not stated by the publisher; RL Unplugged's form: CC BY 4.0",
    citation="Agarwal, Schuurmans, Norouzi. An Optimistic Perspective on Offline Reinforcement "
    "Learning. ICML 2020.",
    homepage="https://research.google/resources/datasets/dqn-replay/",
    datasets=datasets,
    resources=resources,
    resources_at=resources_at,
    blocks=blocks,
    pictures=pictures,
    describe=describe,
    find=find,
    variant=variant,
    fallback=fallback,
)
