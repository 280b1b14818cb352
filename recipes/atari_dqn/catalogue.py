"""The runs of the DQN Replay Dataset, their variants, and the files of each."""

from __future__ import annotations

from dataclasses import replace

from datasets_cli.recipe import CatalogueEntry, Entries, Place, Resource, Web

from . import unplugged_catalogue as unplugged
from .log_files import placed, published
from .names import parse

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
NAMES = [f"{game}/{run}" for game in GAMES for run in RUNS]
TRAPS = {"Asterix/1": "reported as corrupt (google-research/batch_rl issue 28)"}


def datasets(web: Web | None) -> Entries:
    """Return the 300 runs."""
    return Entries(NAMES, _entry)


def _entry(name: str) -> CatalogueEntry:
    details: dict[str, object] = {"rl_unplugged": name.partition("/")[0] in unplugged.GAMES}
    return CatalogueEntry(
        name, details=details | ({"known_traps": [TRAPS[name]]} if name in TRAPS else {})
    )


def find(name: str, web: Web | None) -> CatalogueEntry | None:
    """Return the entry of a variant of a run; None if the run does not exist."""
    base = name.partition("~")[0]
    if base not in NAMES:
        return None
    parse(name)
    return replace(_entry(base), name=name)


def resources(name: str, web: Web | None) -> list[Resource]:
    """Return the files of a run; see ``log_files.published``."""
    game, run, checkpoints, is_unplugged = parse(name)
    if is_unplugged:
        return unplugged.resources(game, run, web)
    assert web is not None, "files under --source are found by resources_at"
    return published(game, run, checkpoints, web)


def resources_at(name: str, place: Place) -> list[Resource]:
    """Return the files of a run under ``--source``; see ``log_files.placed``."""
    game, run, checkpoints, is_unplugged = parse(name)
    return unplugged.resources(game, run, None) if is_unplugged else placed(place, checkpoints)
