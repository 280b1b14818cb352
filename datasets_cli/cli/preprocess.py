"""``rlds preprocess``: a function over datasets, or all preparation that is due here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from datasets_cli import api
from datasets_cli.cli.plan import made, prepare
from datasets_cli.cli.state import State, state_of
from datasets_cli.cli.terminal import fitted
from datasets_cli.cli.workers import workers_of
from datasets_cli.errors import UsageError
from datasets_cli.parallel.engine import Engine, Workers

if TYPE_CHECKING:
    from datasets_cli import PlannedDataset, PreprocessPlan, PreprocessStep

EXAMPLE = "rlds preprocess hopper-medium-v2 --fn mycode:scale --out scaled"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("preprocess")(preprocess)


def preprocess(
    context: typer.Context,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Installed datasets: ids or globs."),
    ] = None,
    fn: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Maps a TensorDict [n] to one [n]."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The result is derived/NAME; {name} is the last part of the input's id.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes; all cores by default, 0 for this process."),
    ] = None,
    engine: Annotated[
        Engine | None,
        typer.Option(
            metavar="local|dask|ray", help="Processes of this machine (default), or a cluster."
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Of the cluster, such as tcp://host:8786."),
    ] = None,
    num_frames: Annotated[
        int | None, typer.Option(metavar="N", help="Only the first N rows, to try a function.")
    ] = None,
    per: Annotated[
        Literal["trajectory", "transition"] | None,
        typer.Option(
            metavar="trajectory|transition",
            help="Chunks are whole trajectories (default), or end anywhere (for single rows).",
        ),
    ] = None,
    chunksize: Annotated[
        int | None,
        typer.Option(metavar="N", help="Rows a call, at least, to the next end of a trajectory."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Seeds torch for every chunk of rows; 0 by default."),
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Then add the call to ./rlds.toml, as a step.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Alone, only print the plan; else only try the first trajectory."
        ),
    ] = False,
) -> None:
    """Map a function over datasets in parallel, each into a new dataset derived/NAME.

    Without ID, --fn and --out: do all preparation that is due here, as one plan that is printed
    first. That is the steps of ./rlds.toml whose result is missing or outdated, then interrupted
    runs of this root, then killed conversions whose raw files are complete. A step runs code of
    this folder; --dry-run runs none.

    The source is never changed. The function gets whole trajectories unless --per says otherwise.
    The result is the same for every number of workers, and a run that was killed continues where it
    stopped. The same command again does nothing.
    """
    from datasets_cli import StepFile

    state, work = state_of(context), workers_of(workers, engine, address)
    arguments = {"per": per, "chunksize": chunksize, "num_frames": num_frames, "seed": seed}
    given = {name: value for name, value in arguments.items() if value is not None}
    if not ids and fn is None and out is None:
        if options := [*given, *(["save"] if save else [])]:
            named = " and ".join(f"--{name.replace('_', '-')}" for name in options)
            need = "needs" if len(options) == 1 else "need"
            raise UsageError(f"{named} {need} ID, --fn and --out, too. Example: {EXAMPLE}")
        prepare(state, api.plan_preprocess(config=state.config), work, dry_run=dry_run)
        return
    step = _step(ids, fn, out, given)
    plan = api.plan_preprocess(step, config=state.config)
    if dry_run:
        _show_columns(state, plan)
        return
    if save:
        StepFile().has(step)  # refuses another step with the same out, before the work
    if step.is_single:
        _one(state, plan.tasks[0], work)
    else:
        prepare(state, plan, work, names_done=True)
    if save:
        added = StepFile().add(step)
        state.note(f"rlds.toml {'has a new step' if added else 'has this step already'}")


def _step(
    ids: list[str] | None, fn: str | None, out: str | None, given: dict[str, Any]
) -> PreprocessStep:
    """Return the step that a call is.

    Raises:
        UsageError: something is missing, or a value cannot be.
    """
    from datasets_cli import PreprocessStep

    if not ids or fn is None or out is None:
        wanted = {"ID": ids or None, "--fn MODULE:FUNCTION": fn, "--out NAME": out}
        missing = " and ".join(name for name, value in wanted.items() if value is None)
        raise UsageError(
            f"rlds preprocess needs {missing}. Example: {EXAMPLE}. Without any of them it does "
            "what is due. See: rlds preprocess --help"
        )
    return PreprocessStep(ids[0] if len(ids) == 1 else tuple(ids), fn, out, **given)


def _show_columns(state: State, plan: PreprocessPlan) -> None:
    """Show the columns that the function would give, one dataset after the other."""
    documents: list[dict[str, Any]] = []
    lines: list[str] = []
    for task in plan.tasks:
        preview = api.preprocess_columns(
            task.input,
            task.fn,
            task.id,
            per=task.options.per,
            seed=task.options.seed,
            config=state.config,
        )
        documents.append(preview.to_json())
        lines += [preview.id] if plan.tasks[1:] else []
        lines += [
            f"{key:28} {dtype:8} {list(shape)}" for key, (dtype, shape) in preview.columns.items()
        ]
    shown = documents if documents[1:] else documents[0]
    state.emit(shown, fitted(lines, state.width), [document["id"] for document in documents])


def _one(state: State, task: PlannedDataset, workers: Workers) -> None:
    """Make one dataset, and show it."""
    options = task.options
    found = api.preprocess(
        task.input,
        task.fn,
        task.id,
        num_workers=workers.num_workers,
        engine=workers.engine,
        address=workers.address,
        num_frames=options.num_frames,
        chunksize=options.chunksize,
        per=options.per,
        seed=options.seed,
        progress=state.row_progress(),
        config=state.config,
    )
    state.note(made(found))
    state.emit(found.to_json(), [str(found.path)], [str(found.path)])
