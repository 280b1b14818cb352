"""The runs that RL Unplugged republished, and their files: one a checkpoint."""

from __future__ import annotations

from datasets_cli.formats.gzip import GZIP_MAGIC
from datasets_cli.recipe import (
    AccessError,
    NetworkError,
    Resource,
    Web,
    count_shards,
    list_objects,
    may_lack_list,
    object_url,
)

BUCKET = "rl_unplugged"
FOLDER = "atari_episodes_ordered"
_GAMES = """
Alien Amidar Assault Asterix Atlantis BankHeist BattleZone BeamRider Boxing Breakout Carnival
Centipede ChopperCommand CrazyClimber DemonAttack DoubleDunk Enduro FishingDerby Freeway Frostbite
Gopher Gravitar Hero IceHockey Jamesbond Kangaroo Krull KungFuMaster MsPacman NameThisGame Phoenix
Pong Pooyan Qbert Riverraid RoadRunner Robotank Seaquest SpaceInvaders StarGunner TimePilot UpNDown
VideoPinball WizardOfWor YarsRevenge Zaxxon
"""
GAMES = tuple(_GAMES.split())
FILES = 50
FILES_LESS_ONE = ("Carnival", "Gravitar", "StarGunner")


def resources(game: str, run: int, web: Web | None) -> list[Resource]:
    """Return the files of a run, one a checkpoint, in order."""
    # Sizes and checksums are in the bucket's list; a plain mirror of the files has no list.
    if game not in GAMES:
        raise AccessError(
            f"RL Unplugged has {len(GAMES)} of the 60 games of the DQN Replay, and {game} is not "
            "one of them.",
            found=game,
            advice="Use --mirror or --source if you have a copy of the DQN Replay itself.",
        )
    prefix = f"{FOLDER}/{game}/run_{run}-"
    listed = {}
    if web is not None:
        try:
            listed = {item.name: item for item in list_objects(BUCKET, prefix, web)}
        except (AccessError, NetworkError) as error:
            if not may_lack_list(error, object_url(BUCKET, prefix), web):
                raise
            web = None  # a mirror may have the files without a list
    total = (
        FILES - (game in FILES_LESS_ONE)
        if web is None
        else count_shards(listed, f"gs://{BUCKET}/{prefix}")
    )
    names = [f"{prefix}{number:05d}-of-{total:05d}" for number in range(total)]
    return [
        Resource(
            urls=(object_url(BUCKET, name),),
            filename=name.rpartition("/")[2],
            size=listed[name].size if name in listed else None,
            checksums=listed[name].checksums if name in listed else {},
            magic=GZIP_MAGIC,
        )
        for name in names
    ]
