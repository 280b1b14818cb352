"""The commands of ``rlds``, in the groups of its help."""

from __future__ import annotations

from typing import ClassVar

from datasets_cli.cli.parser.command import CommandEntry, Group

COMMANDS = """
Datasets
    list | catalogue:list_datasets | List every known dataset and its state
    info | catalogue:info | Show the metadata of a dataset, installed or not
    cite | catalogue:cite | Print BibTeX entries of datasets and of their papers
    download | download:download | Download, verify and install datasets
    diff | look:diff | Compare two installed datasets value by value
    path | installed:path | Print the folder of an installed dataset
    verify | installed:verify | Check installed datasets against their manifests
    audit | installed:audit | Find defects in installed datasets with rules
    convert | installed:convert | Change the layout of an installed dataset
    delete | installed:delete | Delete installed datasets and leftovers of their downloads
Contents
    peek | rows:peek | Show some rows of an installed dataset
    trajectories | rows:trajectories | List trajectories of an installed dataset
    sample | rows:sample | Draw a batch from an installed dataset
    plot | look:plot | Plot one dataset, or two overlaid
    render | look:render | Render a trajectory as a GIF, a contact sheet or a video
    stats | look:stats | Show statistics of columns, returns and lengths
    card | look:card | Print a dataset card in Markdown or for Hugging Face
    ui | look:ui | Browse datasets in a read-only web page
    score | look:score | Print normalised scores of returns
Your own data
    import | own:import_data | Import another tool's files as a dataset
    export | own:export | Export an installed dataset to another tool's format
    preprocess | preprocess:preprocess | Apply a function or transforms to datasets in parallel
    record | own:record | Record episodes of a gymnasium environment into a dataset
    data | own:data | Show the data that rlds.toml declares
    data add | own:add | Add a [data.NAME] table to rlds.toml
    recipe list | setup:recipe_list | List the recipes
    recipe show | setup:recipe_show | Show the title, licence and options of a recipe
    recipe new | setup:recipe_new | Write a commented template for a new recipe
    recipe check | setup:recipe_check | Load a recipe, call its functions and report errors
Disk
    scan | upkeep:scan | Find local files that can be installed without downloading
    repair | upkeep:repair | Verify installed datasets and reinstall damaged ones
    prune | upkeep:prune | Delete leftovers of interrupted runs
    du | upkeep:du | Show the disk usage of installed datasets and running work
Program
    env | setup:env | Show versions, cache root, disk, mirrors and extras
    config | setup:config | Show the config file and its settings
Demo
    demo | download:demo | Run the main workflow on small data that ships with rlds
"""
"""The commands of each group: name, module and function, first sentence of the docstring."""


def _groups(text: str) -> dict[str, dict[str, CommandEntry]]:
    groups: dict[str, dict[str, CommandEntry]] = {}
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            group = groups.setdefault(line, {})
        else:
            name, place, about = line.strip().split(" | ")
            group[name] = CommandEntry(f"datasets_cli.cli.{place}", about)
    return groups


class Rlds(Group):
    """``rlds`` itself; each command is imported when it runs."""

    groups: ClassVar = _groups(COMMANDS)
