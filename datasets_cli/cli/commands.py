"""The commands of ``rlds``, in the groups of its help."""

from __future__ import annotations

from typing import ClassVar

from datasets_cli.cli.parser.group import Entry, Group


def _entry(place: str, *examples: str) -> Entry:
    return Entry(f"datasets_cli.cli.{place}", examples)


class Commands(Group):
    """``rlds`` itself: each command is imported when it is asked for."""

    groups: ClassVar = {
        "Datasets": {
            "list": _entry(
                "catalogue:list_datasets",
                "rlds list",
                "rlds list 'hopper-*'",
                "rlds list --installed",
            ),
            "info": _entry("catalogue:info", "rlds info hopper-medium-v2"),
            "download": _entry(
                "download:download",
                "rlds download hopper-medium-v2",
                "rlds download 'hopper-*-v2' --dry-run",
            ),
            "path": _entry("installed:path", 'cd "$(rlds path hopper-medium-v2)"'),
            "verify": _entry(
                "installed:verify", "rlds verify", "rlds verify hopper-medium-v2 --deep"
            ),
            "convert": _entry(
                "installed:convert", "rlds convert hopper-medium-v2 --layout compact"
            ),
            "delete": _entry(
                "installed:delete",
                "rlds delete hopper-medium-v2",
                "rlds delete 'derived/*' --dry-run",
            ),
        },
        "Data of your own": {
            "preprocess": _entry(
                "preprocess:preprocess",
                "rlds preprocess hopper-medium-v2 --fn mycode:scale --out scaled",
                "rlds preprocess hopper-medium-v2 --where 'return > 1000' --cast float32 "
                "--out good",
                "rlds preprocess 'hopper-*' --fn mycode:scale --out '{name}-scaled' --save",
                "rlds preprocess --workers 4",
            ),
            "record": _entry(
                "record:record",
                "rlds record CartPole-v1 --episodes 100 --out cartpole-random",
                "rlds record CartPole-v1 --policy mycode:act --steps 50000 --out cartpole-mine",
            ),
            "data": _entry("data:data", "rlds data", "rlds data train --json"),
        },
        "The disk": {
            "scan": _entry("upkeep:scan", "rlds scan", "rlds scan /data/minari"),
            "repair": _entry("upkeep:repair", "rlds repair", "rlds repair 'd4rl/*' --dry-run"),
            "prune": _entry("upkeep:prune", "rlds prune --dry-run", "rlds prune --older-than 0"),
            "du": _entry("upkeep:du", "rlds du"),
        },
        "To try it": {
            "demo": _entry("demo:demo", "rlds demo", "rlds demo --keep"),
        },
    }
