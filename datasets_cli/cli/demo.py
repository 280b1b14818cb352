"""``rlds demo``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer

from datasets_cli.cli.state import State, human_count, state_of
from datasets_cli.progress import Silent

MOST_FILES = 5


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(context: typer.Context) -> None:
    """Run the main job end to end on small data that ships with rlds; needs no network.

    A server on this machine plays the publishers; everything lies in a temporary folder.
    """
    from datasets_cli.demo.tour import tour

    state = state_of(context)
    found = []
    with tempfile.TemporaryDirectory(prefix="rlds-demo-") as folder:
        for result in tour(Path(folder), Silent()):
            found.append(result)
            if not (state.json or state.quiet):
                _show(state, result)
    state.emit(found, ["Next: rlds list, then rlds download ID"], [r["id"] for r in found])


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
