"""``rlds preprocess``: functions or transforms over datasets, or all that is due here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import datasets_cli
from datasets_cli.cli.parser.completion import derived_names, installed_ids
from datasets_cli.cli.plan import made, prepare
from datasets_cli.cli.state import State, state_of
from datasets_cli.cli.terminal import fitted
from datasets_cli.cli.workers import Engine, Workers
from datasets_cli.errors import UsageError

if TYPE_CHECKING:
    from datasets_cli import PlannedDataset, PreprocessPlan, PreprocessStep

EXAMPLE = "rlds preprocess hopper-medium-v2 --fn mycode:scale --out scaled"


def preprocess(
    context: typer.Context,
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID", help="Installed datasets: ids or globs.", autocompletion=installed_ids
        ),
    ] = None,
    fn: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Maps a TensorDict [n] to one [n]."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Only trajectories such as 'return > 300'."),
    ] = None,
    max_trajectories: Annotated[
        int | None, typer.Option(metavar="N", help="At most N trajectories, drawn by --seed.")
    ] = None,
    crop: Annotated[
        str | None, typer.Option(metavar="HxW", help="Cut the middle out of frames.")
    ] = None,
    resize: Annotated[
        str | None, typer.Option(metavar="HxW", help="Make frames larger or smaller.")
    ] = None,
    normalise: Annotated[
        list[str] | None,
        typer.Option(metavar="KEYS", help="Give columns, and next.KEY, mean 0 and deviation 1."),
    ] = None,
    returns_to_go: Annotated[
        bool, typer.Option("--returns-to-go", help="Add the column returns_to_go.")
    ] = False,
    n_step: Annotated[
        int | None, typer.Option(metavar="N", help="Let rows span N steps; needs --gamma.")
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(metavar="G", help="The discount a step of these two.")
    ] = None,
    cast: Annotated[
        list[str] | None,
        typer.Option(metavar="[KEY=]TYPE", help="float32: all floats; action=int64: one column."),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="KEYS", help="Keep these columns, the reward and the flags."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="KEYS", help="Drop these columns.")
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Rename a column, or a group of them."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The result is derived/NAME; {name} is the last part of the input's id.",
            autocompletion=derived_names,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes; all cores by default, 0 for this process."),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(
            metavar="local|dask|ray", help="Processes of this machine (default), or a cluster."
        ),
    ] = "local",
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
        typer.Option(metavar="N", help="Seeds torch for every chunk, and draws; 0 by default."),
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
    """Map a function, or transforms, over datasets in parallel, each into a dataset derived/NAME.

    Transforms that need no function: --crop, --resize, --normalise, --returns-to-go, --n-step,
    --cast, --select, --exclude, --rename, done in this order. --where and --max-trajectories
    choose what is read, for a function too.

    Without ID and --out: do all preparation that is due here, as one plan that is printed
    first. That is the steps of ./rlds.toml whose result is missing or outdated, then interrupted
    runs of this root, then killed conversions whose raw files are complete. A step runs code of
    this folder; --dry-run runs none.

    The source is never changed. The function gets whole trajectories unless --per says otherwise.
    The result is the same for every number of workers, and a run that was killed continues where it
    stopped. The same command again does nothing.
    """
    from datasets_cli import StepFile

    state, work = state_of(context), Workers(workers, engine, address)
    transforms = {
        **{"crop": crop, "resize": resize, "normalise": normalise},
        **{"returns_to_go": returns_to_go, "n_step": n_step, "gamma": gamma},
        **{"cast": cast, "select": select, "exclude": exclude, "rename": rename},
    }
    arguments = {
        **{"per": per, "chunksize": chunksize, "num_frames": num_frames, "seed": seed},
        **{"where": where, "max_trajectories": max_trajectories},
    }
    given = _given(arguments)
    if not ids and fn is None and out is None:
        if options := [*_given(transforms), *given, *(["save"] if save else [])]:
            need = "needs" if len(options) == 1 else "need"
            raise UsageError(
                f"{_flags(options)} {need} ID, --fn and --out, too; transforms such as --cast "
                f"float32 need no --fn. Example: {EXAMPLE}"
            )
        prepare(state, datasets_cli.plan_preprocess(config=state.config), work, dry_run=dry_run)
        return
    step = _step(ids, fn, _given(transforms), out, given)
    plan = datasets_cli.plan_preprocess(step, config=state.config)
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


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the options that a call has; those that may be repeated are lists."""
    return {
        name: value
        for name, value in arguments.items()
        if value is not None and value is not False and value not in ([], ())
    }


def _flags(names: list[str]) -> str:
    return " and ".join(f"--{name.replace('_', '-')}" for name in names)


def _step(
    ids: list[str] | None,
    fn: str | None,
    transforms: dict[str, Any],
    out: str | None,
    given: dict[str, Any],
) -> PreprocessStep:
    """Return the step that a call is.

    Raises:
        UsageError: something is missing, or a value cannot be.
    """
    from datasets_cli import PreprocessStep

    is_choice = "where" in given or "max_trajectories" in given
    does = fn or transforms or is_choice or None
    if not ids or does is None or out is None:
        what = "--fn MODULE:FUNCTION, or a transform such as --cast float32"
        wanted = {"ID": ids or None, what: does, "--out NAME": out}
        missing = " and ".join(name for name, value in wanted.items() if value is None)
        raise UsageError(
            f"rlds preprocess needs {missing}. Example: {EXAMPLE}. Without any of them it does "
            "what is due. See: rlds preprocess --help"
        )
    lists = {name: ",".join(each) for name, each in transforms.items() if isinstance(each, list)}
    table = {"input": ids[0] if len(ids) == 1 else ids, "out": out, **transforms, **lists, **given}
    return PreprocessStep.of(table if fn is None else {"fn": fn, **table})


def _show_columns(state: State, plan: PreprocessPlan) -> None:
    """Show the columns that the function would give, one dataset after the other."""
    documents: list[dict[str, Any]] = []
    lines: list[str] = []
    for task in plan.tasks:
        options = task.options
        preview = datasets_cli.preprocess_columns(
            task.input,
            task.fn,
            task.id,
            where=options.where,
            max_trajectories=options.max_trajectories,
            num_frames=options.num_frames,
            per=options.per,
            seed=options.seed,
            config=state.config,
        )
        documents.append(preview.to_json())
        lines += [preview.id] if plan.tasks[1:] else []
        if options.where is not None or options.max_trajectories is not None:
            lines.append(
                f"{preview.num_transitions:,} rows in {preview.num_trajectories:,} trajectories"
            )
        lines += [
            f"{key:28} {dtype:8} {list(shape)}" for key, (dtype, shape) in preview.columns.items()
        ]
    shown = documents if documents[1:] else documents[0]
    state.emit(shown, fitted(lines, state.width), [document["id"] for document in documents])


def _one(state: State, task: PlannedDataset, workers: Workers) -> None:
    """Make one dataset, and show it."""
    options = task.options
    found = datasets_cli.preprocess(
        task.input,
        task.fn,
        task.id,
        num_workers=workers.num_workers,
        engine=workers.engine,
        address=workers.address,
        where=options.where,
        max_trajectories=options.max_trajectories,
        num_frames=options.num_frames,
        chunksize=options.chunksize,
        per=options.per,
        seed=options.seed,
        progress=state.row_progress(),
        config=state.config,
    )
    state.note(made(found))
    state.emit(found.to_json(), [str(found.path)], [str(found.path)])
