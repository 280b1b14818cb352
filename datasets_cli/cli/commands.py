"""The commands of ``rlds``, in the groups of its help."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from datasets_cli.cli.parser.group import CommandEntry, Group

COMMANDS = """
Datasets
    list | catalogue:list_datasets | List every known dataset and its state
        rlds list
        rlds list 'hopper-*'
        rlds list --installed
        rlds list --filter 'size>1GB' --sort -size -n 10
        rlds list --search 'hopper expert'
    info | catalogue:info | Show what is known about a dataset, installed or not
        rlds info hopper-medium-v2
        rlds info hopper-medium-v2 --files
    cite | catalogue:cite | Print BibTeX of datasets and of the papers behind them
        rlds cite hopper-medium-v2 >> references.bib
    download | download:download | Download, verify and install datasets
        rlds download hopper-medium-v2
        rlds download 'hopper-*-v2' --dry-run
    diff | look:diff | Compare two installed datasets, value by value
        rlds diff hopper-medium-v2 derived/scaled
    path | installed:path | Print the folder of an installed dataset
        cd "$(rlds path hopper-medium-v2)"
    verify | installed:verify | Check installed datasets against their manifests
        rlds verify
        rlds verify hopper-medium-v2 --deep
        rlds list -q --installed 'hopper-*' | rlds verify -
    audit | installed:audit | Find what is wrong with published data, by rules
        rlds audit
        rlds audit door-human-v0 --show 2
        rlds audit 'd4rl/*' --severity wrong --strict
        rlds audit door-human-v0 door-cloned-v0 --overlap
    convert | installed:convert | Change the layout of an installed dataset
        rlds convert hopper-medium-v2 --layout compact
    delete | installed:delete | Delete installed datasets and what is left of their downloads
        rlds delete hopper-medium-v2
        rlds delete 'derived/*' --dry-run
What is in them
    peek | rows:peek | Show some rows of an installed dataset
        rlds peek hopper-medium-v2
        rlds peek hopper-medium-v2 --trajectory 3 -n 10 --columns action,next.reward
    trajectories | rows:trajectories | Show trajectories of an installed dataset, in any order
        rlds trajectories hopper-medium-v2 --sort -return
    sample | rows:sample | Draw a batch of an installed dataset
        rlds sample hopper-medium-v2
        rlds sample hopper-medium-v2 --sampler slice --slice-len 32 --bench 5
    plot | look:plot | Plot what is in a dataset, or in two, one over the other
        rlds plot hopper-medium-v2
        rlds plot hopper-medium-v2 hopper-expert-v2 --kind lengths --out lengths.svg
    render | look:render | Show a trajectory as a GIF, a sheet of pictures or a video
        rlds render Pong/5 --trajectory 0 --out pong.gif
    stats | look:stats | Show statistics of columns, returns and lengths
        rlds stats hopper-medium-v2
        rlds stats hopper-medium-v2 --columns action,next.reward
    card | look:card | Print a dataset's card, in Markdown or for Hugging Face
        rlds card hopper-medium-v2
        rlds card hopper-medium-v2 --format hf > README.md
    ui | page:ui | Show datasets in a browser: a page that only reads
        rlds ui
        rlds ui hopper-medium-v2 --port 8000
        rlds ui hopper-medium-v2 Pong/5 --export pages
    score | look:score | Print normalised scores of returns
        rlds score hopper-medium-v2 3000 3200.5
Data of your own
    import | own:import_data | Read files of another tool into a dataset of your own
        rlds import robot.npz --name mine/robot
        rlds import log.csv --name mine/robot --map episode=run --map observation=x.0..3
    export | own:export | Write an installed dataset in the format of another tool
        rlds export hopper-medium-v2 --to parquet --out hopper.parquet
        rlds export hopper-medium-v2 --to npz --out hopper.npz --dry-run
    preprocess | preprocess:preprocess | Map a function, or transforms, over datasets in parallel
        rlds preprocess hopper-medium-v2 --fn mycode:scale --out scaled
        rlds preprocess hopper-medium-v2 --where 'return > 1000' --cast float32 --out good
        rlds preprocess 'hopper-*' --fn mycode:scale --out '{name}-scaled' --save
        rlds preprocess --workers 4
    record | own:record | Record episodes of a gymnasium environment into a dataset
        rlds record CartPole-v1 --episodes 100 --out cartpole-random
        rlds record CartPole-v1 --policy mycode:act --steps 50000 --out cartpole-mine
    data | data:data | Show the data that rlds.toml declares
        rlds data
        rlds data train --json
    data add | data:add | Write a table [data.NAME] into rlds.toml
        rlds data add good --dataset hopper-medium-v2 --where 'return > 1000'
        rlds data add test --dataset hopper-medium-v2 --split 0.9,0.1 --part 1
    recipe list | setup:recipe_list | List the recipes
        rlds recipe list
    recipe show | setup:recipe_show | Show what a recipe says of its family
        rlds recipe show d4rl
    recipe new | setup:recipe_new | Write a file with comments to begin a recipe with
        rlds recipe new lunar
    recipe check | setup:recipe_check | Load a recipe, call its functions, and say what is wrong
        rlds recipe check lunar.py
        rlds recipe check lunar.py --source ./rollouts --dataset easy-v1
The disk
    scan | upkeep:scan | Find raw files on this disk that can be installed without a download
        rlds scan
        rlds scan /data/minari
    repair | upkeep:repair | Verify installed datasets, and install those again that are damaged
        rlds repair
        rlds repair 'd4rl/*' --dry-run
    prune | upkeep:prune | Delete what killed work left
        rlds prune --dry-run
        rlds prune --older-than 0
    du | upkeep:du | Show how much of the disk each dataset takes, and which work is running
        rlds du
This program
    env | setup:env | Show versions, cache root, disk, mirrors and extras
        rlds env
    config | setup:config | Show where the config file is and what its settings are
        rlds config
To try it
    demo | download:demo | Run the main job end to end on small data that ships with rlds
        rlds demo
        rlds demo --keep
"""
"""Below each group its commands: name, module and function, how the help begins; then examples."""


def _groups(text: str) -> dict[str, dict[str, CommandEntry]]:
    groups: dict[str, dict[str, CommandEntry]] = {}
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            group = groups.setdefault(line, {})
        elif not line.startswith(" " * 8):
            name, place, about = line.strip().split(" | ")
            group[name] = CommandEntry(f"datasets_cli.cli.{place}", about, ())
        else:
            examples = (*group[name].examples, line.strip())
            group[name] = replace(group[name], examples=examples)
    return groups


class Rlds(Group):
    """``rlds`` itself: each command is imported when it is asked for."""

    groups: ClassVar = _groups(COMMANDS)
