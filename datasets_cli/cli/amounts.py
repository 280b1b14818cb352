"""How much a download brings and how much room there is: the plan, and the question before it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import datasets_cli
from datasets_cli.cli.state import State
from datasets_cli.cli.terminal import wrapped
from datasets_cli.errors import RldsError, public_text
from datasets_cli.quantities import human_bytes

if TYPE_CHECKING:
    from datasets_cli import DatasetRecord, Plan

MOST_NAMED = 12


def plan_lines(plans: Sequence[Plan], root: Path, width: int | None) -> list[str]:
    """Return what a download would do: ids, files and their sizes, the total and the free disk.

    Args:
        plans: of every dataset.
        root: the cache root.
        width: columns of the terminal; None breaks nothing.
    """
    lines: list[str] = []
    for plan in plans:
        if plan.installed:
            lines += wrapped(f"{plan.id}: installed in {plan.folder}", width, "", "    ")
            continue
        sizes = _sizes(plan)
        text = f"{plan.id}: {_sum(sizes)} into {plan.folder}"
        lines += wrapped(text, width, "", "    ")
        for resource, size in zip(plan.resources, sizes, strict=True):
            text = f"{public_text(resource.urls[0])} ({human_bytes(size)})"
            lines += wrapped(text, width, "  ", "    ")
    due = [plan for plan in plans if not plan.installed]
    sizes_due = [size for plan in due for size in _sizes(plan)]
    return [*lines, *wrapped(_total(len(due), sizes_due, root), width, "", "    ")]


def ask(state: State, ids: Sequence[str], *, force: bool, yes: bool) -> None:
    """Ask once before several datasets are downloaded; return if the user agrees.

    Args:
        state: of the run.
        ids: all that are asked for.
        force: whether what is installed is downloaded too.
        yes: whether the user agreed already.

    Raises:
        UsageError: there is no terminal to ask on, and ``yes`` is not given.
        typer.Exit: the user says no.
    """
    if yes:
        return
    records = {record.id: record for record in datasets_cli.list_datasets(config=state.config)}
    sizes: dict[str, int | None] = {}
    for text in ids:
        record = records.get(text) or _record(state, text)
        if record is None or force or not record.installed:
            sizes[record.id if record else text] = record.download_bytes if record else None
    if len(sizes) < 2:
        return
    named = [f"{id} ({human_bytes(size)})" for id, size in sizes.items()]
    more = [f"and {len(named) - MOST_NAMED} more"] if named[MOST_NAMED:] else []
    listed = ", ".join([*named[:MOST_NAMED], *more])
    total = _total(len(sizes), list(sizes.values()), state.config.root)
    question = f"Download {listed}? {total}"
    width = shutil.get_terminal_size().columns if state.interactive else None
    state.confirm("\n".join(wrapped(question, width, "", "  ")), yes=False)


def _record(state: State, text: str) -> DatasetRecord | None:
    """Return what is known of a name without its family; a wrong name fails in the download."""
    try:
        return datasets_cli.dataset_info(text, config=state.config)
    except RldsError:
        return None


def _total(num_datasets: int, sizes: Sequence[int | None], root: Path) -> str:
    word = "dataset" if num_datasets == 1 else "datasets"
    free = human_bytes(_free_bytes(root))
    return f"In total {num_datasets} {word}, {_sum(sizes)}; {free} are free on the disk of {root}."


def _sum(sizes: Iterable[int | None]) -> str:
    """Return a total; it is the least there may be where a publisher does not state a size."""
    sizes = list(sizes)
    known = [size for size in sizes if size is not None]
    if not known and sizes:
        return "size unknown"
    least = "at least " if len(known) < len(sizes) else ""
    return f"{least}{human_bytes(sum(known))}"


def _sizes(plan: Plan) -> list[int | None]:
    """Return the bytes of every file: as it is on this disk, else as its publisher states."""
    # An address is no file either.
    local = [Path(resource.urls[0]) for resource in plan.resources]
    return [
        path.stat().st_size if path.is_file() else resource.size
        for path, resource in zip(local, plan.resources, strict=True)
    ]


def _free_bytes(root: Path) -> int:
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    return shutil.disk_usage(existing).free
