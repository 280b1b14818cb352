"""The commands of ``rlds``, in the groups of its help."""

from __future__ import annotations

from typing import ClassVar

from datasets_cli.cli.parser.group import CommandEntry, Group


def _entry(place: str, about: str, *examples: str) -> CommandEntry:
    return CommandEntry(f"datasets_cli.cli.{place}", about, examples)


class Rlds(Group):
    """``rlds`` itself: each command is imported when it is asked for."""

    groups: ClassVar = {
        "Datasets": {
            "list": _entry(
                "catalogue:list_datasets",
                "List every known dataset and its state",
                "rlds list",
                "rlds list 'hopper-*'",
                "rlds list --installed",
                "rlds list --filter 'size>1GB' --sort size --limit 10",
            ),
            "search": _entry(
                "catalogue:search", "Find datasets by words", "rlds search hopper expert"
            ),
            "info": _entry(
                "catalogue:info",
                "Show what is known about a dataset, installed or not",
                "rlds info hopper-medium-v2",
                "rlds info hopper-medium-v2 --files",
            ),
            "cite": _entry(
                "catalogue:cite",
                "Print BibTeX of datasets and of the papers behind them",
                "rlds cite hopper-medium-v2 >> references.bib",
            ),
            "download": _entry(
                "download:download",
                "Download, verify and install datasets",
                "rlds download hopper-medium-v2",
                "rlds download 'hopper-*-v2' --dry-run",
            ),
            "diff": _entry(
                "look:diff",
                "Compare two installed datasets, value by value",
                "rlds diff hopper-medium-v2 derived/scaled",
            ),
            "path": _entry(
                "installed:path",
                "Print the folder of an installed dataset",
                'cd "$(rlds path hopper-medium-v2)"',
            ),
            "verify": _entry(
                "installed:verify",
                "Check installed datasets against their manifests",
                "rlds verify",
                "rlds verify hopper-medium-v2 --deep",
                "rlds list -q --installed 'hopper-*' | rlds verify -",
            ),
            "convert": _entry(
                "installed:convert",
                "Change the layout of an installed dataset",
                "rlds convert hopper-medium-v2 --layout compact",
            ),
            "delete": _entry(
                "installed:delete",
                "Delete installed datasets and what is left of their downloads",
                "rlds delete hopper-medium-v2",
                "rlds delete 'derived/*' --dry-run",
            ),
        },
        "What is in them": {
            "peek": _entry(
                "look:peek",
                "Show some rows of an installed dataset",
                "rlds peek hopper-medium-v2",
                "rlds peek hopper-medium-v2 --trajectory 3 -n 10 --columns action,next.reward",
            ),
            "sample": _entry(
                "look:sample",
                "Draw a batch of an installed dataset",
                "rlds sample hopper-medium-v2",
                "rlds sample hopper-medium-v2 --sampler slice --slice-len 32 --bench 5",
            ),
            "plot": _entry(
                "look:plot",
                "Plot what is in a dataset, or in two, one over the other",
                "rlds plot hopper-medium-v2",
                "rlds plot hopper-medium-v2 hopper-expert-v2 --kind lengths --out lengths.svg",
            ),
            "render": _entry(
                "look:render",
                "Show a trajectory as a GIF, a sheet of pictures or a video",
                "rlds render Pong/5 --trajectory 0 --out pong.gif",
            ),
            "stats": _entry(
                "look:stats",
                "Show statistics of columns, returns and lengths",
                "rlds stats hopper-medium-v2",
                "rlds stats hopper-medium-v2 --columns action,next.reward",
            ),
            "card": _entry(
                "look:card",
                "Print a dataset's card, in Markdown or HTML, or for Hugging Face",
                "rlds card hopper-medium-v2",
                "rlds card hopper-medium-v2 --format html > card.html",
            ),
            "score": _entry(
                "look:score",
                "Print normalised scores of returns",
                "rlds score hopper-medium-v2 3000 3200.5",
            ),
        },
        "Data of your own": {
            "preprocess": _entry(
                "preprocess:preprocess",
                "Map a function, or transforms, over datasets in parallel",
                "rlds preprocess hopper-medium-v2 --fn mycode:scale --out scaled",
                "rlds preprocess hopper-medium-v2 --where 'return > 1000' --cast float32 "
                "--out good",
                "rlds preprocess 'hopper-*' --fn mycode:scale --out '{name}-scaled' --save",
                "rlds preprocess --workers 4",
            ),
            "record": _entry(
                "record:record",
                "Record episodes of a gymnasium environment into a dataset",
                "rlds record CartPole-v1 --episodes 100 --out cartpole-random",
                "rlds record CartPole-v1 --policy mycode:act --steps 50000 --out cartpole-mine",
            ),
            "data": _entry(
                "data:data",
                "Show the data that rlds.toml declares",
                "rlds data",
                "rlds data train --json",
            ),
            "data add": _entry(
                "data:add",
                "Write a table [data.NAME] into rlds.toml",
                "rlds data add good --dataset hopper-medium-v2 --where 'return > 1000'",
                "rlds data add test --dataset hopper-medium-v2 --split 0.9,0.1 --part 1",
            ),
            "recipe list": _entry("setup:recipe_list", "List the recipes", "rlds recipe list"),
            "recipe show": _entry(
                "setup:recipe_show",
                "Show what a recipe says of its family",
                "rlds recipe show d4rl",
            ),
            "recipe new": _entry(
                "setup:recipe_new",
                "Write a file with comments to begin a recipe with",
                "rlds recipe new lunar",
            ),
            "recipe check": _entry(
                "setup:recipe_check",
                "Load a recipe, call its functions, and say what is wrong",
                "rlds recipe check lunar.py",
                "rlds recipe check lunar.py --source ./rollouts --dataset easy-v1",
            ),
        },
        "The disk": {
            "scan": _entry(
                "upkeep:scan",
                "Find raw files on this disk that can be installed without a download",
                "rlds scan",
                "rlds scan /data/minari",
            ),
            "repair": _entry(
                "upkeep:repair",
                "Verify installed datasets, and install those again that are damaged",
                "rlds repair",
                "rlds repair 'd4rl/*' --dry-run",
            ),
            "prune": _entry(
                "upkeep:prune",
                "Delete what killed work left",
                "rlds prune --dry-run",
                "rlds prune --older-than 0",
            ),
            "du": _entry(
                "upkeep:du", "Show how much of the disk each installed dataset takes", "rlds du"
            ),
            "move": _entry(
                "upkeep:move",
                "Move installed datasets to another cache root",
                "rlds move hopper-medium-v2 /mnt/big/rlds",
                "rlds move 'minari/*' /mnt/big/rlds --dry-run",
            ),
            "adopt": _entry(
                "upkeep:adopt",
                "Copy a dataset's folder to where its manifest says",
                "rlds adopt ./hopper-medium-v2",
            ),
        },
        "This program": {
            "env": _entry(
                "setup:env", "Show versions, cache root, disk, mirrors and extras", "rlds env"
            ),
            "config get": _entry(
                "setup:config_get",
                "Show the settings of the config file",
                "rlds config get",
                "rlds config get core.root",
            ),
            "config set": _entry(
                "setup:config_set",
                "Write a setting into the config file",
                "rlds config set core.root /data/rlds",
            ),
            "config path": _entry(
                "setup:config_path", "Print where the config file is", "rlds config path"
            ),
        },
        "To try it": {
            "demo": _entry(
                "demo:demo",
                "Run the main job end to end on small data that ships with rlds",
                "rlds demo",
                "rlds demo --keep",
            )
        },
    }
