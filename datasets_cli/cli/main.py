"""The ``rlds`` command: global options, commands, exit codes."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
import warnings
from contextlib import suppress
from functools import partial
from typing import Annotated, TextIO

import typer

from datasets_cli.cli.commands import Rlds
from datasets_cli.cli.parser.command import Interrupted, help_width, interruptible
from datasets_cli.cli.parser.completion import VARIABLE, complete
from datasets_cli.cli.state import (
    ReaderGone,
    State,
    output_error,
    printable_message,
    write,
)
from datasets_cli.cli.terminal import fitting
from datasets_cli.config import ConfigFile, load_config
from datasets_cli.core.system_errors import is_full, system_error
from datasets_cli.errors import (
    KnownDefect,
    RldsError,
    UnverifiedDataset,
    UsageError,
    arguments_named,
)
from datasets_cli.version import __version__

logger = logging.getLogger(__name__)

app = typer.Typer(
    name="rlds",
    cls=Rlds,
    help="Download, verify, convert and sample datasets for offline reinforcement learning. "
    "This is not Google's RLDS, the format of TensorFlow Datasets, but imports it.",
    epilog="Start with: rlds list, or rlds demo",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
PARSER_WORDS = {
    "Input should be a valid integer, unable to parse string as an integer": (
        "expected a whole number"
    ),
    "Value error, ": "",
}
"""Messages of the option parser, and their plain forms."""


class _Printable(logging.Formatter):
    """Formats only the message; with ``--debug``, the traceback follows unchanged."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable_message(record.message)


def _version(context: typer.Context, is_set: bool) -> None:
    if is_set and not context.resilient_parsing:
        is_json = context.params.get("as_json")
        write(json.dumps({"version": __version__}) if is_json else f"rlds {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    root: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Cache root; the default is RLDS_HOME, or else the user's cache."
        ),
    ] = None,
    mirror: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PREFIX=REPLACEMENT",
            help="Try REPLACEMENT first for URLs that begin with PREFIX.",
        ),
    ] = None,
    allow_http: Annotated[
        bool, typer.Option("--allow-http", help="Follow redirects from https to http.")
    ] = False,
    lowest_speed: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="Abandon servers that send fewer bytes per second. [default: 1000]",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", is_eager=True, help="Print one JSON document.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print only ids or paths, without notes.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not open network connections.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show debug logs and tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, help="Print the version."),
    ] = False,
) -> None:
    """Read the global options, which may come before or after the command."""
    calm = logging.ERROR if quiet or as_json else logging.WARNING
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Printable())
    logging.basicConfig(level=logging.DEBUG if debug else calm, handlers=[handler])
    load = partial(
        load_config,
        root=root,
        offline=offline or None,
        mirrors=mirror or (),
        allow_http=allow_http or None,
        lowest_speed=lowest_speed,
    )
    try:
        config = load()
    except UsageError as error:
        if context.invoked_subcommand not in ("config", "env"):
            raise
        config = load(file=ConfigFile())
        State(config, quiet=quiet).note(f"Defaults replace all settings: {error}")
    context.obj = State(config, json=as_json, quiet=quiet)


def run() -> None:
    """Run the command line and exit with its code."""
    _replace_closed_streams()
    if VARIABLE in os.environ:
        complete(app)
        return
    warnings.showwarning = _log_warning
    sys.exit(main(sys.argv[1:]))


def _replace_closed_streams() -> None:
    """Replace a stdin or stderr that the shell closed by the null device.

    Python sets a closed stream to None, and ``print(file=None)`` writes to stdout.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - for the whole run
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def main(arguments: list[str]) -> int:
    """Run one command and return its exit code; see ``errors`` for the codes."""
    as_json, debug = "--json" in arguments, "--debug" in arguments
    with interruptible(), arguments_named(lambda name, _: f"--{name}"):
        try:
            settings = {"standalone_mode": False, "terminal_width": help_width()}
            code = int(app(arguments or ["--help"], prog_name="rlds", **settings) or 0)
            _flush()
            return code
        except Interrupted as interruption:
            return _interrupted(interruption.code, as_json)
        except ReaderGone:
            _drop_output()
            return 0
        except typer.Abort:
            return 1
        except SystemExit as done:  # typer's, after a completion script is shown or installed
            return int(done.code or 0)
        except Exception as error:
            if debug:
                traceback.print_exc()
            try:
                _flush()
            except (RldsError, ReaderGone):
                _drop_output()
            return _report(_as_ours(error), as_json)


def _interrupted(code: int, as_json: bool) -> int:
    """Report an interruption; return the exit code."""
    from datasets_cli.core.progress import Note
    from datasets_cli.core.progress_display import JsonLines, PlainLines

    lines = JsonLines() if as_json else PlainLines()
    lines(Note("Interrupted. Finished work is kept; run the same command again."))
    return code


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning like a note: not with --quiet."""
    if issubclass(category, UnverifiedDataset | KnownDefect):
        logger.warning("%s", str(message).partition(" To hide this warning")[0])
        return
    logger.warning("%s:%d: %s", filename, lineno, message)


def _as_ours(error: Exception) -> RldsError:
    """Return an RldsError: the error itself, or one for a usage error, a system error or a bug."""
    if isinstance(error, RldsError):
        return error
    if isinstance(
        error, UnverifiedDataset | KnownDefect
    ):  # a filter of the user's makes it an error
        return RldsError(str(error))
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        called = getattr(getattr(error, "ctx", None), "command_path", "rlds")
        text = error.format_message().rstrip(".")
        for words, ours in PARSER_WORDS.items():
            text = text.replace(words, ours)
        return UsageError(f"{text}.", advice=f"See: {called} --help")
    if isinstance(error, OSError):
        # Without a name: help, which the option parser prints.
        return system_error(error) if error.filename or not is_full(error) else output_error(error)
    return RldsError(
        f"Unexpected {type(error).__name__}: {error}.",
        advice="Run again with --debug for the traceback.",
    )


def _report(error: RldsError, as_json: bool) -> int:
    text = (
        json.dumps({"error": error.to_json()})
        if as_json
        else fitting(printable_message(f"rlds: {error}"))
    )
    with suppress(OSError):  # the exit code still reports it
        print(text, file=sys.stderr, flush=True)
    return error.exit_code


def _flush() -> None:
    """Flush stdout, so a full disk changes the exit code."""
    if sys.stdout is None:  # closed by the shell
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        raise output_error(error) from error


def _drop_output() -> None:
    """Prevent Python from reporting a closed stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    run()
