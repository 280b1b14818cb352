"""``rlds download`` with its plan, confirmation and results, and ``rlds demo``."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import (
    DryRun,
    GivenOptions,
    Limits,
    Yes,
    chosen_workers,
    options_of,
)
from datasets_cli.cli.state import State, state_of
from datasets_cli.cli.terminal import cut, wrapped
from datasets_cli.config import load_config
from datasets_cli.core.quantities import counted, human_bytes, recorded_steps
from datasets_cli.errors import RldsError, UsageError, public_text

if TYPE_CHECKING:
    from datasets_cli.results import (
        DatasetRecord,
        DemoResult,
        Downloads,
        FailedDataset,
        InstalledDataset,
        Plan,
    )

MOST_NAMED = 12  # in the question before a download


@options_of(call="download")
def download(
    context: typer.Context,
    *,
    call: GivenOptions,
    checkpoints: Annotated[
        str | None,
        typer.Option(metavar="A:B", help="Short for -o checkpoints=A:B, of Atari DQN."),
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Short for -o upstream=NAME, of Atari DQN."),
    ] = None,
    limit: Limits = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Download, verify and install datasets.

    Prints the folders of the datasets. Installed datasets are skipped, and interrupted
    downloads are resumed.

    Examples:
        rlds download hopper-medium-v2
        rlds download 'hopper-*-v2' --dry-run
    """
    state = state_of(context).with_limits(limit)
    short = {"checkpoints": checkpoints, "upstream": upstream}
    call["options"] = family_options(call.get("options", []), short)
    call = chosen_workers(call)
    if dry_run:
        planned = inspect.signature(datasets_cli.plan_download).parameters
        arguments = {name: value for name, value in call.items() if name in planned}
        _show_plans(state, datasets_cli.plan_download(**arguments, config=state.config))
        return
    ids = datasets_cli.match_datasets(call["ids"], config=state.config)
    has_glob = set(ids) != set(call["ids"])
    if ids[1:] and "source" not in call and (has_glob or state.interactive):
        _confirm(state, ids, force="force" in call, yes=yes)
    printer = ResultPrinter(state, call.get("verify", True))
    call |= {"ids": ids, "on_result": printer, **state.settings}

    def emit(results: Downloads) -> None:
        lines = [str(dataset.path) for dataset in results.datasets]
        state.emit(results.to_json(), lines, lines)

    state.emit_all(partial(datasets_cli.download, **call), emit)


def family_options(texts: list[str], short: Mapping[str, str | None]) -> dict[str, str]:
    """Return the options in ``-o`` and the short forms."""
    pairs = [_split(text) for text in texts]
    pairs += [(name, value) for name, value in short.items() if value is not None]
    options: dict[str, str] = {}
    for name, value in pairs:
        if options.setdefault(name, value) != value:
            raise UsageError(
                f"The option {name} has two values, {options[name]} and {value}.",
                argument="options",
                found=(options[name], value),
                advice="Pass only one of them.",
            )
    return options


def _split(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise UsageError(
            f"-o {text} is not NAME=VALUE. Example: -o checkpoints=0:5.",
            argument="options",
            expected="NAME=VALUE",
            found=text,
            advice="The options of a family: rlds info ID",
        )
    return name, value


class ResultPrinter:
    """Prints the result of each dataset immediately, and equal advice once."""

    def __init__(self, state: State, verify: bool) -> None:
        self._state = state
        self._verify = verify
        self._advice: set[str] = set()

    def __call__(self, result: InstalledDataset | FailedDataset) -> None:
        """Print a result."""
        from datasets_cli.results import FailedDataset

        if isinstance(result, FailedDataset):
            text = self._without_repeats(str(result.error), getattr(result.error, "advice", None))
            self._state.note(f"rlds: {text}")
            return
        rows = counted(result.num_transitions, "transition")
        trajectories = counted(result.num_trajectories, "trajectory")
        size = human_bytes(result.size_bytes)
        self._state.note(f"{result.id}: {rows} in {trajectories}, {size} on disk")
        if result.final_steps:
            counts = result.num_transitions, result.final_steps, result.final_steps_alone
            self._state.note(f"{result.id}: {recorded_steps(*counts)}")
        if result.unverified and self._verify:
            text = f"{result.id} is installed, but {result.unverified[0]}"
            advice = " (--force installs the published one)"
            self._state.note(self._without_repeats(text + advice, advice))

    def _without_repeats(self, text: str, advice: str | None) -> str:
        shown = text.replace(advice, "").rstrip() if advice and advice in self._advice else text
        self._advice.add(advice or "")
        return shown


def _show_plans(state: State, plans: list[Plan]) -> None:
    for plan in plans:
        if plan.fallback_for:
            state.note(f"the publisher denies access to {plan.fallback_for}; {plan.id} replaces it")
    lines = _plan_lines(plans, state.config.root, state.width)
    state.emit([plan.to_json() for plan in plans], lines, [plan.id for plan in plans])


def _plan_lines(plans: Sequence[Plan], root: Path, width: int | None) -> list[str]:
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


def _confirm(state: State, ids: Sequence[str], *, force: bool, yes: bool) -> None:
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
    """Return the dataset of a name without family; an unknown name fails in the download."""
    try:
        return datasets_cli.dataset_info(text, config=state.config)
    except RldsError:
        return None


def _total(num_datasets: int, sizes: Sequence[int | None], root: Path) -> str:
    datasets, free = counted(num_datasets, "dataset"), human_bytes(_free_bytes(root))
    return f"In total {datasets}, {_sum(sizes)}; {free} are free on the disk of {root}."


def _sum(sizes: Iterable[int | None]) -> str:
    """Return a total, as a lower bound if a size is unknown."""
    sizes = list(sizes)
    known = [size for size in sizes if size is not None]
    if not known and sizes:
        return "size unknown"
    least = "at least " if len(known) < len(sizes) else ""
    return f"{least}{human_bytes(sum(known))}"


def _sizes(plan: Plan) -> list[int | None]:
    """Return the size of every file on this disk, or according to its publisher."""
    # A URL is not a file either.
    local = [Path(resource.urls[0]) for resource in plan.resources]
    return [
        path.stat().st_size if path.is_file() else resource.size
        for path, resource in zip(local, plan.resources, strict=True)
    ]


def _free_bytes(root: Path) -> int:
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    return shutil.disk_usage(existing).free


@options_of(call="run_demo")
def demo(context: typer.Context, *, call: GivenOptions) -> None:
    """Run the main workflow on small data that ships with rlds.

    Needs no network. The datasets demo/NAME are installed in a temporary folder unless --keep is
    set.

    Examples:
        rlds demo
        rlds demo --keep
    """
    state = state_of(context)
    results = []
    for result in datasets_cli.run_demo(**call, config=state.config):
        results.append(result)
        _show_demo(state, result)
    lines = _how_to_use(state, results) if "keep" in call else []
    lines.append("Next: rlds list, then rlds download ID")
    state.emit([result.to_json() for result in results], lines, [result.id for result in results])


def _how_to_use(state: State, results: list[DemoResult]) -> list[str]:
    root = state.config.root
    is_other_root = root != load_config().root
    in_python, in_shell = (f', root="{root}"', f" --root {root}") if is_other_root else ("", "")
    example = results[0].id
    states = {True: "installed", False: "installed before"}
    return [
        f"Under {root}:",
        *(f"  {result.id:26} {states[bool(result.is_new)]}" for result in results),
        "From Python:",
        "  from datasets_cli import ExperienceReplay",
        f'  ExperienceReplay("{example}", batch_size=256{in_python}).sample()',
        f"See its metadata: rlds info {example}{in_shell}",
    ]


def _show_demo(state: State, result: DemoResult) -> None:
    """Print three lines for a dataset: the demo is one screen of 24 lines."""
    size = human_bytes(sum(resource["bytes"] for resource in result.resources))
    files = counted(len(result.resources), "file")
    steps = counted(result.num_transitions, "transition")
    rows = f"{steps}, {counted(result.num_trajectories, 'trajectory')}"
    key = "observation" if "observation" in result.batch else next(iter(result.batch))
    dtype, shape = result.batch[key]
    about = f"{files}, {size} -> {rows}; {counted(result.num_files_verified, 'file')} verified"
    batch = f"sampled {result.sampled}: {key} {dtype} {list(shape)}"
    width = state.width
    state.print_part(
        [
            cut(text, width) if width else text
            for text in (f"{result.id}: {result.about}", f"  {about}", f"  {batch}")
        ]
    )
