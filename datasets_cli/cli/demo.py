"""``rlds demo``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import datasets_cli
from datasets_cli.cli.state import State, state_of
from datasets_cli.cli.terminal import cut
from datasets_cli.config import load_config
from datasets_cli.quantities import human_bytes, human_count

if TYPE_CHECKING:
    from datasets_cli import DemoResult


def demo(
    context: typer.Context,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the datasets installed under the root.")
    ] = False,
) -> None:
    """Run the main job end to end on small data that ships with rlds; needs no network.

    The datasets have ids of their own, demo/NAME. Without --keep, all is in a temporary folder.
    """
    state = state_of(context)
    found = []
    for result in datasets_cli.run_demo(keep=keep, config=state.config):
        found.append(result)
        _show(state, result)
    lines = _how_to_use(state, found) if keep else []
    lines.append("Next: rlds list, then rlds download ID")
    state.emit([result.to_json() for result in found], lines, [result.id for result in found])


def _how_to_use(state: State, found: list[DemoResult]) -> list[str]:
    root = state.config.root
    elsewhere = root != load_config().root
    in_python, in_shell = (f', root="{root}"', f" --root {root}") if elsewhere else ("", "")
    example = found[0].id
    left = {True: "installed", False: "installed before"}
    return [
        f"Under {root}:",
        *(f"  {result.id:26} {left[bool(result.kept)]}" for result in found),
        "From Python:",
        "  from datasets_cli import ExperienceReplay",
        f'  ExperienceReplay("{example}", batch_size=256{in_python}).sample()',
        f"What is known of it: rlds info {example}{in_shell}",
    ]


def _show(state: State, result: DemoResult) -> None:
    """Print three lines for a dataset: the demo is one screen of 24 lines."""
    size = human_bytes(sum(resource["bytes"] for resource in result.resources))
    files = f"{len(result.resources)} file{'s' if result.resources[1:] else ''}"
    steps, episodes = human_count(result.num_transitions), human_count(result.num_trajectories)
    rows = f"{steps} steps, {episodes} trajector{'y' if result.num_trajectories == 1 else 'ies'}"
    key = "observation" if "observation" in result.batch else next(iter(result.batch))
    dtype, shape = result.batch[key]
    about = f"{files}, {size} -> {rows}; {result.num_files_verified} files verified"
    batch = f"sampled {result.sampled}: {key} {dtype} {list(shape)}"
    width = state.width
    state.say(
        [
            cut(text, width) if width else text
            for text in (f"{result.id}: {result.about}", f"  {about}", f"  {batch}")
        ]
    )
