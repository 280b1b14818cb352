"""``rlds preprocess``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datasets_cli.cli.state import human_bytes, human_count, state_of
from datasets_cli.errors import UsageError
from datasets_cli.store.cache_root import CacheRoot

if TYPE_CHECKING:
    from datasets_cli.preprocessing.task import Function


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
        int | None, typer.Option(help="Only the first so many rows, to try a function.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seeds torch anew for every part.")] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only apply the function to two rows.")
    ] = False,
) -> None:
    """Map a function over a dataset in parallel, into a new dataset derived/NAME.

    The source is never changed. The result is the same for every number of workers, and a run that
    was killed goes on.
    """
    state = state_of(context)
    root = CacheRoot(state.config.root)
    from datasets_cli.install.installed import installed_id
    from datasets_cli.preprocessing.run import preprocess as run
    from datasets_cli.preprocessing.task import apply
    from datasets_cli.store.dataset import open_dataset

    source = root.dataset(installed_id(id, state.config))
    new_id = f"derived/{out.removeprefix('derived/')}"
    dest = root.dataset(new_id)
    function = load_function(fn)
    if dry_run:
        rows = apply(open_dataset(source), function, seed, 0, 2)
        columns = {".".join(key): [str(v.dtype), list(v.shape[1:])] for key, v in rows.items()}
        lines = [f"{key:28} {dtype:8} {shape}" for key, (dtype, shape) in columns.items()]
        state.emit({"id": new_id, "columns": columns}, lines, [new_id])
        return
    with state.progress() as progress:
        storage = run(
            source,
            function,
            dest,
            id=new_id,
            num_workers=workers,
            num_frames=num_frames,
            seed=seed,
            lock_timeout=state.config.lock_timeout,
            progress=progress,
        )
    manifest = storage.dataset.manifest
    state.note(
        f"{new_id}: {human_count(manifest.num_transitions)} transitions, "
        f"{human_bytes(manifest.size_bytes)} on disk"
    )
    document: dict[str, Any] = {
        "id": new_id,
        "path": str(dest),
        "num_transitions": manifest.num_transitions,
        "bytes": manifest.size_bytes,
    }
    state.emit(document, [str(dest)], [str(dest)])


def load_function(text: str) -> Function:
    """Return the function that ``module:function`` names; the module may lie in this folder.

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
