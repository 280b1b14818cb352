"""``rlds demo``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from datasets_cli.cli.state import State, human_count, state_of
from datasets_cli.config import load_config
from datasets_cli.progress import Silent
from datasets_cli.store.cache_root import CacheRoot

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

    A server on this machine plays the publishers; everything lies in a temporary folder.
    """
    from datasets_cli.demo.keep import keep as install_copy
    from datasets_cli.demo.tour import tour

    state = state_of(context)
    found = []
    with tempfile.TemporaryDirectory(prefix="rlds-demo-") as folder:
        for result in tour(Path(folder), Silent()):
            found.append(result)
            if keep:
                place = CacheRoot(state.config.root).dataset(result["id"])
                result["kept"] = install_copy(Path(result["path"]), result["about"], state.config)
                result["path"] = str(place)
            if not (state.json or state.quiet):
                _show(state, result)
    lines = _how_to_use(state, found) if keep else []
    lines.append("Next: rlds list, then rlds download ID")
    state.emit(found, lines, [result["id"] for result in found])


def _how_to_use(state: State, found: list[dict[str, Any]]) -> list[str]:
    """Return what to do with the datasets that lie under the root now."""
    root = state.config.root
    elsewhere = root != load_config().root
    in_python, in_shell = (f', root="{root}"', f" --root {root}") if elsewhere else ("", "")
    example = found[0]["id"]
    left = {True: "installed, marked as unverified", False: "installed before, and not touched"}
    return [
        f"Under {root}:",
        *(f"  {result['id']:26} {left[result['kept']]}" for result in found),
        "From Python:",
        "  from datasets_cli import ExperienceReplay",
        f'  ExperienceReplay("{example}", batch_size=256{in_python}).sample()',
        f"What is known of it: rlds info {example}{in_shell}",
    ]


def _show(state: State, result: dict[str, object]) -> None:
    resources, batch = result["resources"], result["batch"]
    assert isinstance(resources, list)
    assert isinstance(batch, dict)
    steps, episodes = result["num_transitions"], result["num_trajectories"]
    assert isinstance(steps, int)
    assert isinstance(episodes, int)
    print(f"{result['id']}: {result['about']}")
    for resource in resources[:MOST_FILES]:
        print(f"  downloaded  {resource['filename']} ({resource['bytes']:,} bytes)")
    if others := resources[MOST_FILES:]:
        size = sum(resource["bytes"] for resource in others)
        print(f"              and {len(others)} more files ({size:,} bytes)")
    if not result["published"]:
        print("              made for this demo, so taken as it is, as --no-verify does")
    print(f"  converted   {human_count(steps)} transitions in {episodes} trajectories")
    print(f"  verified    {result['files_verified']} files, sha256 as in the manifest")
    print(f"  sampled     {result['sampled']}; each leaf of the batch:")
    for key, (dtype, shape) in batch.items():
        print(f"    {key:24} {dtype:8} {shape}")
    print()
