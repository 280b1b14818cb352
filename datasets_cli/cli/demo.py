"""``rlds demo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import State, state_of
from datasets_cli.cli.terminal import cut
from datasets_cli.config import load_config
from datasets_cli.manager.demo import DemoCall
from datasets_cli.quantities import counted, human_bytes

if TYPE_CHECKING:
    from datasets_cli import DemoResult


@options_of(call=DemoCall)
def demo(context: typer.Context, *, call: GivenOptions) -> None:
    """Run the main job end to end on small data that ships with rlds; needs no network.

    The datasets have the ids demo/NAME. Without --keep, all is in a temporary folder.
    """
    state = state_of(context)
    results = []
    for result in datasets_cli.run_demo(**call, config=state.config):
        results.append(result)
        _show(state, result)
    lines = _how_to_use(state, results) if "keep" in call else []
    lines.append("Next: rlds list, then rlds download ID")
    state.emit([result.to_json() for result in results], lines, [result.id for result in results])


def _how_to_use(state: State, results: list[DemoResult]) -> list[str]:
    root = state.config.root
    elsewhere = root != load_config().root
    in_python, in_shell = (f', root="{root}"', f" --root {root}") if elsewhere else ("", "")
    example = results[0].id
    left = {True: "installed", False: "installed before"}
    return [
        f"Under {root}:",
        *(f"  {result.id:26} {left[bool(result.kept)]}" for result in results),
        "From Python:",
        "  from datasets_cli import ExperienceReplay",
        f'  ExperienceReplay("{example}", batch_size=256{in_python}).sample()',
        f"What is known of it: rlds info {example}{in_shell}",
    ]


def _show(state: State, result: DemoResult) -> None:
    """Print three lines for a dataset: the demo is one screen of 24 lines."""
    size = human_bytes(sum(resource["bytes"] for resource in result.resources))
    files = counted(len(result.resources), "file")
    steps = counted(result.num_transitions, "step")
    rows = f"{steps}, {counted(result.num_trajectories, 'trajectory')}"
    key = "observation" if "observation" in result.batch else next(iter(result.batch))
    dtype, shape = result.batch[key]
    about = f"{files}, {size} -> {rows}; {counted(result.num_files_verified, 'file')} verified"
    batch = f"sampled {result.sampled}: {key} {dtype} {list(shape)}"
    width = state.width
    state.say(
        [
            cut(text, width) if width else text
            for text in (f"{result.id}: {result.about}", f"  {about}", f"  {batch}")
        ]
    )
