"""The ``rlds`` command: global options, commands, exit codes."""

from __future__ import annotations

import _thread
import json
import logging
import os
import signal
import sys
import time
import traceback
import warnings
from contextlib import suppress
from types import FrameType
from typing import Annotated, TextIO

import typer

from datasets_cli.cli import (
    catalogue,
    data,
    demo,
    download,
    installed,
    preprocess,
    record,
    upkeep,
)
from datasets_cli.cli.help import Command, Group
from datasets_cli.cli.state import (
    ReaderGone,
    State,
    output_error,
    printable_message,
    write,
)
from datasets_cli.cli.terminal import fitting
from datasets_cli.config import load_config
from datasets_cli.errors import RldsError, UnverifiedDataset, UsageError
from datasets_cli.system_errors import is_full, system_error
from datasets_cli.version import __version__

logger = logging.getLogger(__name__)

app = typer.Typer(
    name="rlds",
    cls=Group,
    help="Download, verify, convert and sample datasets for offline reinforcement learning.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for commands in (download, catalogue, installed, upkeep, preprocess, record, data, demo):
    commands.add_to(app)
for registered in app.registered_commands:
    registered.cls = Command

FLAGS = frozenset({"--json", "-q", "--quiet", "--offline", "--allow-http", "--debug"})
VALUED = {"--root": "PATH", "--mirror": "PREFIX=REPLACEMENT", "--lowest-speed": "BYTES"}
PARSER_WORDS = {
    "Input should be a valid integer, unable to parse string as an integer": (
        "expected a whole number"
    ),
    "Value error, ": "",
}
"""What the option parser says, and what a user understands."""


class Interrupted(BaseException):
    """A signal asked the run to end; ``code`` is 128 plus its number, as shells have it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number


class _Printable(logging.Formatter):
    """Shows the message alone; a traceback, with ``--debug``, follows it as it is."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable_message(record.message)


def _version(wanted: bool) -> None:
    if wanted:
        write(f"rlds {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    root: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Cache root; else RLDS_HOME, else the user's cache."),
    ] = None,
    mirror: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PREFIX=REPLACEMENT", help="Try URLs that begin with PREFIX there first."
        ),
    ] = None,
    allow_http: Annotated[
        bool, typer.Option("--allow-http", help="Follow redirects from https to http.")
    ] = False,
    lowest_speed: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES", help="Give up a server that sends less a second; 1000 by default."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print only ids or paths, and no notes.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Open no connection.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Log what happens, and show tracebacks.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Read the global options, which may stand before or after the command."""
    calm = logging.ERROR if quiet or as_json else logging.WARNING
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Printable())
    logging.basicConfig(level=logging.DEBUG if debug else calm, handlers=[handler])
    config = load_config(
        root=root,
        offline=offline or None,
        mirrors=mirror or (),
        allow_http=allow_http or None,
        lowest_speed=lowest_speed,
    )
    context.obj = State(config, json=as_json, quiet=quiet)


def run() -> None:
    """Run the command line and exit with its code."""
    _replace_closed_streams()
    warnings.showwarning = _log_warning
    sys.exit(main(sys.argv[1:]))


def _replace_closed_streams() -> None:
    """Have a null device where the shell closed stdin or stderr.

    Python has None there, and what is printed to None goes to stdout.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - for the whole run
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def main(arguments: list[str]) -> int:
    """Run one command and return its exit code; see ``errors`` for the codes.

    Args:
        arguments: everything after ``rlds``.
    """
    as_json, debug = "--json" in arguments, "--debug" in arguments
    handlers = {
        number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)
    }
    unraisable_hook, sys.unraisablehook = sys.unraisablehook, _send_again
    try:
        arguments = hoist_global_options(arguments) or ["--help"]
        code = int(app(arguments, prog_name="rlds", standalone_mode=False) or 0)
        _flush()
        return code
    except Interrupted as interruption:
        print("Interrupted. What is done is kept; run the same command again.", file=sys.stderr)
        return interruption.code
    except ReaderGone:
        _drop_output()
        return 0
    except typer.Abort:
        return 1
    except (Exception, SystemExit) as error:
        if debug:
            traceback.print_exc()
        try:
            _flush()
        except (RldsError, ReaderGone):
            _drop_output()
        return _report(_as_ours(error), as_json)
    finally:
        sys.unraisablehook = unraisable_hook
        for number, handler in handlers.items():
            signal.signal(number, handler)


def hoist_global_options(arguments: list[str]) -> list[str]:
    """Return the arguments with the global options first, wherever they stood.

    Raises:
        UsageError: one that takes a value is the last.

    >>> hoist_global_options(["list", "--root", "/data", "--json"])
    ['--root', '/data', '--json', 'list']
    """
    front: list[str] = []
    rest: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":
            rest += [argument, *waiting]
        elif argument in VALUED:
            value = next(waiting, None)
            if value is None:  # else it would take the command for its value
                raise UsageError(f"{argument} needs a value: {argument} {VALUED[argument]}.")
            front += [argument, value]
        elif argument.partition("=")[0] in (FLAGS | VALUED.keys()):
            front.append(argument)
        else:
            rest.append(argument)
    return front + rest


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning as the command line shows its notes: not in a quiet run."""
    if issubclass(category, UnverifiedDataset):
        logger.warning("%s", str(message).partition(" To open it without")[0])
        return
    logger.warning("%s:%d: %s", filename, lineno, message)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _is_sending(frame):  # what is raised there is dropped, too, and nobody is told
        _send_later(number)
        return
    raise Interrupted(number)


def _send_again(dropped: sys.UnraisableHookArgs) -> None:
    """Send a signal again that came where Python drops what is raised, such as a destructor.

    Every import has such a moment.
    """
    if isinstance(dropped.exc_value, Interrupted):
        _send_later(dropped.exc_value.code - 128)
    else:
        sys.__unraisablehook__(dropped)


def _send_later(number: int) -> None:
    """Send a signal again in a moment, without the locks of a ``threading.Timer``."""

    def send() -> None:
        time.sleep(0.01)
        os.kill(os.getpid(), number)

    _thread.start_new_thread(send, ())


def _is_sending(frame: FrameType | None) -> bool:
    """Tell whether a frame is that of ``_send_again``, or is called by it."""
    while frame is not None and frame.f_code is not _send_again.__code__:
        frame = frame.f_back
    return frame is not None


def _as_ours(error: Exception | SystemExit) -> RldsError:
    """Return our error, or ours for a wrong use that the option parser found, or for a bug."""
    if isinstance(error, RldsError):
        return error
    if isinstance(error, UnverifiedDataset):  # a filter of the user's makes it an error
        return RldsError(str(error))
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        called = getattr(getattr(error, "ctx", None), "command_path", "rlds")
        text = error.format_message().rstrip(".")
        for words, ours in PARSER_WORDS.items():
            text = text.replace(words, ours)
        return UsageError(f"{text}. See: {called} --help")
    if isinstance(error, SystemExit):  # its code would be taken for one of ours
        return RldsError(
            "A function, module or recipe that was called ended the program (SystemExit: "
            f"{error}). Let it raise an error instead, or return."
        )
    if isinstance(error, OSError):
        # Without a name: help, which the option parser prints.
        return system_error(error) if error.filename or not is_full(error) else output_error(error)
    return RldsError(
        f"Unexpected {type(error).__name__}: {error}. Run again with --debug for the traceback."
    )


def _report(error: RldsError, as_json: bool) -> int:
    text = (
        json.dumps({"error": error.to_json()})
        if as_json
        else fitting(printable_message(f"rlds: {error}"))
    )
    with suppress(OSError):  # the exit code still says it
        print(text, file=sys.stderr, flush=True)
    return error.exit_code


def _flush() -> None:
    """Write what is still to be written, so that a full disk is told by the exit code."""
    if sys.stdout is None:  # closed by the shell
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        raise output_error(error) from error


def _drop_output() -> None:
    """Keep Python from complaining at its exit about output that nobody takes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    run()
