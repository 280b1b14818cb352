"""``rlds demo``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from datasets_cli import api
from datasets_cli.cli.state import State, human_count, state_of
from datasets_cli.config import load_config

if TYPE_CHECKING:
    from datasets_cli import DemoResult

MOST_FILES = 5


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


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
    for result in api.run_demo(keep=keep, config=state.config):
        found.append(result)
        if not (state.json or state.quiet):
            _show(result)
    lines = _how_to_use(state, found) if keep else []
    lines.append("Next: rlds list, then rlds download ID")
    state.emit([result.to_json() for result in found], lines, [result.id for result in found])


def _how_to_use(state: State, found: list[DemoResult]) -> list[str]:
    """Return what to do with the datasets that are under the root now."""
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


def _show(result: DemoResult) -> None:
    print(f"{result.id}: {result.about}")
    for resource in result.resources[:MOST_FILES]:
        print(f"  downloaded  {resource['filename']} ({resource['bytes']:,} bytes)")
    if others := result.resources[MOST_FILES:]:
        size = sum(resource["bytes"] for resource in others)
        print(f"              and {len(others)} more files ({size:,} bytes)")
    if not result.published:
        print("              not the whole published file, so taken as --no-verify does")
    steps, episodes = human_count(result.num_transitions), human_count(result.num_trajectories)
    print(f"  converted   {steps} transitions in {episodes} trajectories")
    print(f"  verified    {result.num_files_verified} files, sha256 as in the manifest")
    print(f"  sampled     {result.sampled}; each leaf of the batch:")
    for key, (dtype, shape) in result.batch.items():
        print(f"    {key:24} {dtype:8} {list(shape)}")
    print()
