"""``rlds preprocess``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from datasets_cli import api
from datasets_cli.cli.state import state_of
from datasets_cli.errors import UsageError
from datasets_cli.quantities import human_bytes, human_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensordict import TensorDict


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("preprocess")(preprocess)


def preprocess(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="An installed dataset.")],
    fn: Annotated[
        str, typer.Option(metavar="MODULE:FUNCTION", help="Maps a TensorDict [n] to one [n].")
    ],
    out: Annotated[str, typer.Option(metavar="NAME", help="The result is derived/NAME.")],
    workers: Annotated[
        int | None, typer.Option(help="Processes; all cores by default, 0 for this process.")
    ] = None,
    num_frames: Annotated[
        int | None, typer.Option(metavar="N", help="Only the first N rows, to try a function.")
    ] = None,
    per: Annotated[
        Literal["trajectory", "transition"],
        typer.Option(help="Chunks are whole trajectories, or end anywhere (for single rows)."),
    ] = "trajectory",
    chunksize: Annotated[
        int | None,
        typer.Option(metavar="N", help="Rows a call, at least, to the next end of a trajectory."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seeds torch for every chunk of rows.")] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only apply it to the first trajectory.")
    ] = False,
) -> None:
    """Map a function over a dataset in parallel, into a new dataset derived/NAME.

    The source is never changed. The function gets whole trajectories unless --per says otherwise.
    The result is the same for every number of workers, and a run that was killed continues where it
    stopped. The same command again does nothing.
    """
    state = state_of(context)
    function = load_function(fn)
    if dry_run:
        preview = api.preprocess_columns(id, function, out, per=per, seed=seed, config=state.config)
        lines = [
            f"{key:28} {dtype:8} {list(shape)}" for key, (dtype, shape) in preview.columns.items()
        ]
        state.emit(preview.to_json(), lines, [preview.id])
        return
    found = api.preprocess(
        id,
        function,
        out,
        num_workers=workers,
        num_frames=num_frames,
        chunksize=chunksize,
        per=per,
        seed=seed,
        progress=state.progress(),
        config=state.config,
    )
    known = f"{found.id} is up to date" if found.unchanged else found.id
    state.note(
        f"{known}: {human_count(found.num_transitions)} transitions, "
        f"{human_bytes(found.size_bytes)} on disk"
    )
    state.emit(found.to_json(), [str(found.path)], [str(found.path)])


def load_function(text: str) -> Callable[[TensorDict], TensorDict]:
    """Return the function that ``module:function`` names; the module may be in this folder.

    Raises:
        UsageError: there is no such module or function.
    """
    module_name, colon, name = text.partition(":")
    if not (module_name and colon and name):
        raise UsageError(f"--fn {text!r} is not MODULE:FUNCTION, such as mycode:scale_rewards.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module_name), name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--fn {text}: there is no module {error.name} in {here} or the Python path."
        ) from error
    except (SyntaxError, ImportError, TypeError, ValueError) as error:
        raise UsageError(
            f"--fn {text}: {module_name} cannot be imported ({type(error).__name__}: {error}). "
            "Expected a module's name, such as mycode for mycode.py in this folder."
        ) from error
    except AttributeError as error:
        raise UsageError(f"--fn {text}: the module {module_name} has no {name}.") from error
    if not callable(function):
        raise UsageError(f"--fn {text}: {name} is a {type(function).__name__}, not a function.")
    return function  # type: ignore[no-any-return]
