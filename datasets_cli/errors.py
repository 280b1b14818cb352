"""The errors of this package, and the exit code of each.

    RldsError                     1   (also: anything unexpected)
    ├── UsageError                2   ValueError         a request that contradicts itself
    │   ├── EmptyBuffer           2   RuntimeError       the buffer has no rows to draw
    │   ├── OutOfRange            2   IndexError         the number of a row or trajectory
    │   ├── UnknownKey            2   KeyError           the key of a column does not exist
    │   │   └── NoRewards         2   AttributeError     the rows have no rewards
    │   ├── WrongRows             2   rows do not match the storage, or each other
    │   ├── WrongState            2   a dump or a state does not match the buffer
    │   ├── WrongSize             2   a batch, slice or copy is too large or too small
    │   ├── NotWritable           2   the storage, writer or file cannot be written
    │   └── Unsupported           2   NotImplementedError   another class supports it
    ├── UnknownDataset            3   LookupError        no recipe has this name
    ├── DatasetNotInstalled       3   FileNotFoundError  not under this cache root
    ├── MissingFile               3   FileNotFoundError  a file of a dump
    ├── IntegrityError            4   ValueError         bytes are wrong
    │   ├── SourceError           4   a publisher's file is damaged or unexpected
    │   └── DamagedDataset        4   an installed dataset differs from its manifest
    ├── NetworkError              5   ConnectionError    no answer after retries
    │   └── OfflineError          5   offline mode forbids a connection
    ├── AccessError               6   PermissionError    401, 403, 404, 410: closed or withdrawn
    ├── DiskFull                  7   OSError
    ├── LockedError               8   TimeoutError       another process holds the lock of a dataset
    ├── PartialFailure            9   some of several datasets failed
    └── ImmutableError            1   RuntimeError       a dataset is read-only

Exit code 10 belongs to no error: ``rlds diff`` returns it for two different datasets.

Each error is also the builtin beside it. A message names the failure, the expected value, the value
found, and the next step. URLs in it are stripped of secrets: see ``public_url``. Arguments have the
names that the caller wrote: see ``argument`` and ``by_reader``.

Two are warnings: ``UnverifiedDataset`` for a dataset whose files may differ from the publisher's,
and ``KnownDefect`` for a dataset in whose rows the audit found a defect.
"""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

# These identify a file; any other parameter may be a secret.
OPEN_PARAMETERS = frozenset({"alt", "delimiter", "generation", "prefix"})
HIDDEN = "***"
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200
INSTALL_EXTRA = "Run in a clone of this project: pip install '.[{}]'"
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_AFTER_ADDRESS = "\"'`.,:;)\ue001\ue003"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]*\]?|[^:\[\]]*)(:[0-9]*)?")
# Private-use characters, which do not occur in messages.
_ARGUMENT = re.compile("\ue000(\\w+)=?([^\ue001]*)\ue001")
_BY_READER = re.compile("\ue002([^\ue003]*)\ue003([^\ue001]*)\ue001")


def install_extra(name: str) -> str:
    """Return the advice on how to install an extra, a set of optional dependencies."""
    return INSTALL_EXTRA.format(name)


def public_url(url: str) -> str:
    """Return a URL without its secrets, for messages and stored metadata.

    Scheme, host, port, path and ``OPEN_PARAMETERS`` stay. User, password, fragment and all other
    query parameters are removed.

    >>> public_url("https://me:secret@example.org:8443/f?alt=media&token=secret")
    'https://example.org:8443/f?alt=media&***'
    """
    address, question_mark, query = url.partition("#")[0].partition("?")
    scheme, slashes, place = address.partition("://")
    if slashes:
        authority, slash, path = place.partition("/")
        host = authority.rpartition("@")[2]
        # A "/", "?" or "#" in the password ends the authority early.
        shown = f"{host}{slash}{path}" if _HOST.fullmatch(host) else HIDDEN
        address = f"{scheme}://{shown}"
    elif not address.startswith("/"):  # a URL without a scheme
        address = address.rpartition("@")[2]
    return address + question_mark + "&".join(map(_public_parameter, query.split("&")))


def _public_parameter(parameter: str) -> str:
    # Not even the name: "?dG9rZW4=" is a token that ends with an equals sign.
    is_open = not parameter or parameter.partition("=")[0] in OPEN_PARAMETERS
    return parameter if is_open else HIDDEN


def public_text(text: str) -> str:
    """Return a text with ``public_url`` applied to each URL."""
    return _ADDRESS.sub(_public_match, text)


def _public_match(found: re.Match[str]) -> str:
    # Punctuation after a URL belongs to the sentence: "tcp://host:8786" and tcp://host:8786.
    address = found[0].rstrip(_AFTER_ADDRESS)
    return public_url(address) + found[0][len(address) :]


def argument(name: str, value: str = "") -> str:
    """Return a placeholder for an argument in a message.

    Python users read ``name`` or ``name=value``, users of the command line ``--name`` or
    ``--name value``.

    Args:
        name: the name in Python.
        value: the value in Python, if the message shows one.
    """
    return f"\ue000{name}{'=' * bool(value)}{value}\ue001"


def by_reader(command_line: str, python: str) -> str:
    """Return a placeholder for a text that differs between the command line and Python."""
    return f"\ue002{command_line}\ue003{python}\ue001"


SOURCE = by_reader("--source", "source=")
MIRROR = by_reader("--mirror", "mirror (RLDS_MIRRORS)")
NO_VERIFY = by_reader("--no-verify", "verify=False")
ROOT = by_reader("--root or RLDS_HOME", "root= or RLDS_HOME")

Words = Callable[[str, str], str]
"""Spells an argument for a reader, from its name and value in Python."""


def as_in_python(name: str, value: str) -> str:
    """Return an argument as written in Python, and as a key in ``rlds.toml``."""
    return f"{name}={value}" if value else name


_words: list[Words] = [as_in_python]


@contextmanager
def arguments_named(words: Words) -> Iterator[None]:
    """Spell the arguments in messages for the command line."""
    _words.append(words)
    try:
        yield
    finally:
        _words.pop()


def for_reader(text: str) -> str:
    """Return a text whose placeholders are replaced for its reader."""
    words = _words[-1]
    text = _BY_READER.sub(lambda found: found[2 if words is as_in_python else 1], text)
    return _ARGUMENT.sub(lambda found: words(found[1], found[2]), text)


Kind = TypeVar("Kind", bound="RldsError")


class RldsError(Exception):
    """Base of all errors of this package.

    Args:
        arguments: the message.
        argument: the name, in Python, of the argument at fault.
        id: the id of the dataset.
        path: the file or folder.
        key: the key of the column, or the path of an entry in a JSON or TOML file.
        row: the number of the first row at fault.
        expected: the value that was expected.
        found: the value that was found.
        advice: the next step for the user; the last sentence of the message.

    Each keyword is an attribute, and None by default. ``exit_code`` is the exit code of the command
    line. If some of several datasets failed, ``results`` has the result of each.
    """

    exit_code = 1
    results: Any = None

    def __init__(
        self,
        *arguments: object,
        argument: str | None = None,
        id: str | None = None,
        path: str | os.PathLike[str] | None = None,
        key: str | tuple[str, ...] | None = None,
        row: int | None = None,
        expected: object = None,
        found: object = None,
        advice: str | None = None,
        **unknown: object,
    ) -> None:
        if advice:
            arguments = (*arguments, advice)
        super().__init__(*arguments, **unknown)  # rejects keywords, naming the class
        self.argument, self.id, self.path, self.key = argument, id, path, key
        self.row, self.expected, self.found = row, expected, found
        self.advice = None if advice is None else for_reader(advice)
        self._set_message(arguments)

    def _set_message(self, arguments: tuple[object, ...]) -> None:
        # Here, so that no message has a secret of a URL, whichever code writes or prints it.
        self._parts = tuple(
            public_text(each) if isinstance(each, str) else each for each in arguments
        )
        self.args = tuple(
            for_reader(each) if isinstance(each, str) else each for each in self._parts
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Workers pickle errors.
        return type(self), self._parts, self.__dict__

    def as_kind(self, kind: type[Kind]) -> Kind:
        """Return the error as another class, with the same message and attributes."""
        other = kind(*self._parts)
        vars(other).update({name: getattr(self, name) for name in DETAILS})
        return other

    def append(self, text: str) -> None:
        """Append a text to the message."""
        self._set_message((" ".join(map(str, self._parts)) + text,))

    def advise(self, advice: str) -> None:
        """Add advice to an error without advice."""
        self.append(f" {advice}")
        self.advice = for_reader(advice)

    def prepend(self, text: str) -> None:
        """Put a text before the message."""
        self._set_message((text + " ".join(map(str, self._parts)),))

    def __str__(self) -> str:
        # LookupError and OSError subclasses would otherwise print a quoted or numbered form.
        return " ".join(str(argument) for argument in self.args)

    def to_json(self) -> dict[str, Any]:
        """Return the error as JSON values, with its attributes that are not None."""
        details = {name: getattr(self, name) for name in DETAILS}
        return {
            "type": type(self).__name__,
            "message": str(self),
            "exit_code": self.exit_code,
            **{name: _as_json(value) for name, value in details.items() if value is not None},
        }


DETAILS = ("argument", "id", "path", "key", "row", "expected", "found", "advice")


def _as_json(value: object) -> object:
    if isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (list, tuple)):
        return [_as_json(each) for each in value]
    return str(value)


class UsageError(RldsError, ValueError):
    """The request contradicts itself or an installed dataset."""

    exit_code = 2


def wrong_value(
    name: str,
    expected: object,
    found: object,
    advice: str | None = None,
    *,
    kind: type[RldsError] = UsageError,
) -> RldsError:
    """Return the error of an argument whose value is not the expected one.

    Args:
        name: the name of the argument in Python.
        expected: the expected value, a text that describes it, or the accepted values.
        found: the value; of a class, its name is shown.
        advice: the next step for the user.
        kind: the class of the error.

    >>> str(wrong_value("padding", ("left", "right"), "top"))
    "padding is 'top'; expected one of left, right."
    """
    shown = argument(name) if name.isidentifier() else name
    needed = str(expected)
    if isinstance(expected, tuple | list):
        needed = f"one of {', '.join(map(str, expected))}"
    text = _SHORT.repr(found)
    if isinstance(found, type):
        found = found.__name__
        text = f"of type {found}"
    message = f"{shown} is {text}; expected {needed}."
    return kind(message, argument=name, expected=expected, found=found, advice=advice)


def not_both(name: str, other: str, found: object = None) -> UsageError:
    """Return the error of an argument that cannot be combined with ``other``."""
    return UsageError(
        f"{argument(name)} cannot be combined with {other}.",
        argument=name,
        found=found,
        advice="Leave out one of them.",
    )


class EmptyBuffer(UsageError, RuntimeError):
    """The buffer is empty, or no row has a priority."""


class OutOfRange(UsageError, IndexError):
    """The number of a row, trajectory or member is out of range."""


class UnknownKey(UsageError, KeyError):
    """A column or entry with this key does not exist; the message lists the existing keys."""


class WrongRows(UsageError):
    """Rows have other columns, shapes or dtypes than the storage, or are too few."""


class WrongState(UsageError):
    """A state or a dump does not match the buffer, sampler or writer that loads it."""


class WrongSize(UsageError):
    """The size of a batch, slice, storage or share is out of range for these rows."""


class NotWritable(UsageError):
    """The storage, the writer or the file cannot be written, or not in this way."""


class Unsupported(UsageError, NotImplementedError):
    """The object does not support this; the message names an object that does."""


class NoRewards(UnknownKey, AttributeError):
    """The operation needs rewards, and the rows have no rewards."""

    @classmethod
    def of(cls, what: str, rows: str) -> NoRewards:
        """Return the error of an operation ``what`` that needs rewards."""
        return cls(
            f"{rows} has no rewards (no next.reward), and {what} needs them. preprocess() can add "
            "them.",
            key=("next", "reward"),
        )


class UnknownDataset(RldsError, LookupError):
    """The id is not in any catalogue; the message suggests similar ids."""

    exit_code = 3


class DatasetNotInstalled(RldsError, FileNotFoundError):
    """The dataset is not installed under this cache root."""

    exit_code = 3


class MissingFile(RldsError, FileNotFoundError):
    """A file of a dump does not exist."""

    exit_code = 3


class IntegrityError(RldsError, ValueError):
    """The bytes of a file differ from its checksum, format or manifest."""

    exit_code = 4


class SourceError(IntegrityError):
    """A publisher's file is damaged, or differs from the format that its recipe expects."""


class DamagedDataset(IntegrityError):
    """An installed dataset differs from its manifest, or breaks an invariant of the format.

    ``newer`` is True for a format that only a newer version of this program can read.
    """

    newer = False


class NetworkError(RldsError, ConnectionError):
    """All retries and mirrors failed."""

    exit_code = 5


class OfflineError(NetworkError):
    """A connection is needed, but offline mode is on."""


class AccessError(RldsError, PermissionError):
    """A server denies access to a file, or does not have it; ``missing`` is True for the latter."""

    exit_code = 6
    missing = False


class DiskFull(RldsError, OSError):
    """The disk is full, or too small for the files."""

    exit_code = 7


class LockedError(RldsError, TimeoutError):
    """Another process held the lock of this dataset for longer than the time limit."""

    exit_code = 8


class PartialFailure(RldsError):
    """Some of several datasets failed; the rest succeeded."""

    exit_code = 9

    @classmethod
    def of(
        cls,
        ids: Sequence[str],
        num_datasets: int,
        results: Any,
        *,
        one: str = "failed",
        several: str = "failed",
    ) -> PartialFailure:
        """Return the error that names the failed datasets.

        Args:
            ids: the ids of the failed datasets.
            num_datasets: the number of requested datasets.
            results: the result for each dataset.
            one: the verb of the message for one dataset.
            several: the verb of the message for several datasets.
        """
        what = several if ids[1:] else one
        if num_datasets == 1:
            error = cls(f"{ids[0]} {what}.")
        else:
            error = cls(f"{len(ids)} of {num_datasets} datasets {what}: {', '.join(ids)}.")
        error.results = results
        return error


class ImmutableError(RldsError, RuntimeError):
    """A dataset is read-only and cannot be written."""


class UnverifiedDataset(UserWarning):
    """A dataset is opened whose raw files may differ from the publisher's.

    Shown each time, unless a filter hides it: ``warnings.simplefilter("ignore",
    UnverifiedDataset)``.
    """


class KnownDefect(UserWarning):
    """A dataset is opened in whose published rows the audit found a defect.

    Shown once for each dataset in a process; ``audit="ignore"`` opens the dataset without it.
    """
