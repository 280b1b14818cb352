"""Every error this package raises on purpose, and the exit code that each gives.

    RldsError                     1   (also: anything unexpected)
    ├── UsageError                2   ValueError         a request that contradicts itself
    │   ├── EmptyBuffer           2   RuntimeError       there are no rows to draw
    │   ├── OutOfRange            2   IndexError         no row or trajectory has this number
    │   ├── UnknownKey            2   KeyError           no column has this key
    │   │   └── NoRewards         2   AttributeError     rewards are needed, and rows have none
    │   ├── WrongRows             2   rows do not fit the storage, or each other
    │   ├── WrongState            2   a dump or a state does not fit the buffer
    │   ├── WrongSize             2   a size that the rows or the memory do not allow
    │   ├── NotWritable           2   the storage, writer or file cannot be written
    │   └── Unsupported           2   NotImplementedError   possible elsewhere, not with this object
    ├── UnknownDataset            3   LookupError        no recipe has this name
    ├── DatasetNotInstalled       3   FileNotFoundError  known, but not under this cache root
    ├── MissingFile               3   FileNotFoundError  the file of a dump
    ├── IntegrityError            4   ValueError         bytes are not what they should be
    │   ├── SourceError           4   a publisher's file is damaged or not as its recipe expects
    │   └── DamagedDataset        4   an installed dataset is not what its manifest says
    ├── NetworkError              5   ConnectionError    no answer after retries
    │   └── OfflineError          5   a connection is needed and forbidden
    ├── AccessError               6   PermissionError    401, 403, 404, 410: closed or withdrawn
    ├── DiskFull                  7   OSError
    ├── LockedError               8   TimeoutError       another process works on this dataset
    ├── PartialFailure            9   some of several datasets failed
    └── ImmutableError            1   RuntimeError       something writes into a dataset

No error has 10: ``rlds diff`` exits with it where two datasets are different.

Each error is also the builtin beside it, which plain code would catch. A message says what failed,
what was expected, what was found, and what to do next. Addresses in it are without their secrets:
see ``public_url``. Arguments have the names that the caller wrote: see ``argument`` and
``by_reader``.

Two are warnings: ``UnverifiedDataset``, a dataset is opened whose files are not known to be the
publisher's; and ``KnownDefect``, a dataset is opened in whose rows the audit found a defect.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

# They say which file is meant; any other parameter may be a secret.
OPEN_PARAMETERS = frozenset({"alt", "delimiter", "generation", "prefix"})
HIDDEN = "***"
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_AFTER_ADDRESS = "\"'`.,:;)\ue001\ue003"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]*\]?|[^:\[\]]*)(:[0-9]*)?")
# Characters of private use, which no message has.
_ARGUMENT = re.compile("\ue000(\\w+)=?([^\ue001]*)\ue001")
_BY_READER = re.compile("\ue002([^\ue003]*)\ue003([^\ue001]*)\ue001")


def public_url(url: str) -> str:
    """Return an address without what may be secret in it, for everything that is shown or kept.

    Scheme, host, port and path stay. User, password and fragment are cut; so is each parameter of
    the query but those that say which file is meant (``OPEN_PARAMETERS``).

    >>> public_url("https://me:secret@example.org:8443/f?alt=media&token=secret")
    'https://example.org:8443/f?alt=media&***'
    """
    address, question_mark, query = url.partition("#")[0].partition("?")
    scheme, slashes, place = address.partition("://")
    if slashes:
        authority, slash, path = place.partition("/")
        host = authority.rpartition("@")[2]
        # A password with a "/", "?" or "#" of its own ends the authority early.
        shown = f"{host}{slash}{path}" if _HOST.fullmatch(host) else HIDDEN
        address = f"{scheme}://{shown}"
    elif not address.startswith("/"):  # an address whose scheme was forgotten
        address = address.rpartition("@")[2]
    return address + question_mark + "&".join(map(_public_parameter, query.split("&")))


def _public_parameter(parameter: str) -> str:
    # Not even the name: "?dG9rZW4=" is a token that ends with an equals sign.
    is_open = not parameter or parameter.partition("=")[0] in OPEN_PARAMETERS
    return parameter if is_open else HIDDEN


def public_text(text: str) -> str:
    """Return a text in which each address is as ``public_url`` gives it."""
    return _ADDRESS.sub(_public_match, text)


def _public_match(found: re.Match[str]) -> str:
    # What a sentence puts after an address is not of it: "tcp://host:8786" and tcp://host:8786.
    address = found[0].rstrip(_AFTER_ADDRESS)
    return public_url(address) + found[0][len(address) :]


def argument(name: str, value: str = "") -> str:
    """Return what stands for an argument in a message until it is known who reads it.

    In Python that is ``name`` or ``name=value``; on the command line it is ``--name`` or
    ``--name value``.

    Args:
        name: as Python has it.
        value: as Python has it, where the message has one.
    """
    return f"\ue000{name}{'=' * bool(value)}{value}\ue001"


def by_reader(command_line: str, python: str) -> str:
    """Return what stands for words of the command line and for others in Python, likewise."""
    return f"\ue002{command_line}\ue003{python}\ue001"


SOURCE = by_reader("--source", "source=")
MIRROR = by_reader("--mirror", "mirror (RLDS_MIRRORS)")
NO_VERIFY = by_reader("--no-verify", "verify=False")
ROOT = by_reader("--root or RLDS_HOME", "root= or RLDS_HOME")

Words = Callable[[str, str], str]
"""How an argument is named: of its name and value in Python."""


def as_in_python(name: str, value: str) -> str:
    """Return an argument as Python has it, and so a key of ``rlds.toml``."""
    return f"{name}={value}" if value else name


_words: list[Words] = [as_in_python]


@contextmanager
def arguments_named(words: Words) -> Iterator[None]:
    """Have this process speak to a reader at the command line, who writes arguments so."""
    _words.append(words)
    try:
        yield
    finally:
        _words.pop()


def for_reader(text: str) -> str:
    """Return a text with the names of arguments as its reader writes them."""
    words = _words[-1]
    text = _BY_READER.sub(lambda found: found[2 if words is as_in_python else 1], text)
    return _ARGUMENT.sub(lambda found: words(found[1], found[2]), text)


class RldsError(Exception):
    """Base of all errors of this package.

    Args:
        arguments: the message.
        argument: the name, in Python, of the argument at fault.
        id: the id of the dataset.
        path: the file or folder.
        key: the key of the column, a name or a tuple of names.
        row: the number of the first row at fault.
        expected: the value that was expected.
        found: the value that was found.
        advice: what to do next; the last sentence of the message.

    Each keyword is an attribute, None where it was not given. ``exit_code`` is the exit code of the
    command line. ``results`` has the result for each dataset where some of several failed.
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
        super().__init__(*arguments, **unknown)  # refuses keywords, by the name of the class
        self.argument, self.id, self.path, self.key = argument, id, path, key
        self.row, self.expected, self.found = row, expected, found
        self.advice = None if advice is None else for_reader(advice)
        self._set_message(arguments)

    def _set_message(self, arguments: tuple[object, ...]) -> None:
        # Whoever words a message, and whatever prints it: no secret of an address is in it.
        self._parts = tuple(
            public_text(each) if isinstance(each, str) else each for each in arguments
        )
        self.args = tuple(
            for_reader(each) if isinstance(each, str) else each for each in self._parts
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Raised by a worker, and read where its caller is.
        return type(self), self._parts, self.__dict__

    def append(self, text: str) -> None:
        """Add a text to the end of the message."""
        self._set_message((" ".join(map(str, self._parts)) + text,))

    def advise(self, advice: str) -> None:
        """Add what to do next to an error without advice."""
        self.append(f" {advice}")
        self.advice = for_reader(advice)

    def prepend(self, text: str) -> None:
        """Add a text to the beginning of the message."""
        self._set_message((text + " ".join(map(str, self._parts)),))

    def __str__(self) -> str:
        # LookupError and OSError subclasses would otherwise print a quoted or numbered form.
        return " ".join(str(argument) for argument in self.args)

    def to_json(self) -> dict[str, Any]:
        """Return the error as JSON values; the attributes that were given are among them."""
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
    """The request contradicts itself or something already installed."""

    exit_code = 2


class EmptyBuffer(UsageError, RuntimeError):
    """The buffer is empty, or no row has a priority."""


class OutOfRange(UsageError, IndexError):
    """The number of a row, trajectory or member is out of range."""


class UnknownKey(UsageError, KeyError):
    """No column, or no entry, has this key; the message lists the keys that exist."""


class WrongRows(UsageError):
    """Rows do not fit: other columns, shapes or dtypes than those of the storage, or too few."""


class WrongState(UsageError):
    """A state or a dump does not fit the buffer, sampler or writer that it is loaded into."""


class WrongSize(UsageError):
    """A size is out of range for these rows: of a batch, slice, storage or share."""


class NotWritable(UsageError):
    """The storage, the writer or the file cannot be written, or not in this way."""


class Unsupported(UsageError, NotImplementedError):
    """The object does not support this; another one does, which the message names."""


class NoRewards(UnknownKey, AttributeError):
    """The operation needs rewards, and the rows have no rewards."""

    @classmethod
    def of(cls, what: str, rows: str) -> NoRewards:
        """Return the error of ``what``, which needs the rewards of rows that have none."""
        return cls(
            f"{rows} has no rewards (no next.reward), and {what} needs them. preprocess() can add "
            "them.",
            key=("next", "reward"),
        )


class UnknownDataset(RldsError, LookupError):
    """No recipe knows this id; the message carries the nearest names."""

    exit_code = 3


class DatasetNotInstalled(RldsError, FileNotFoundError):
    """The id is known, but no dataset of that id is installed under the cache root."""

    exit_code = 3


class MissingFile(RldsError, FileNotFoundError):
    """The file of a dump does not exist."""

    exit_code = 3


class IntegrityError(RldsError, ValueError):
    """The bytes of a file differ from its checksum, format or manifest."""

    exit_code = 4


class SourceError(IntegrityError):
    """A publisher's file is damaged, or is not as its recipe expects."""


class DamagedDataset(IntegrityError):
    """An installed dataset differs from its manifest, or breaks an invariant of the format.

    ``newer`` where a newer version of this program wrote it, which this one cannot read.
    """

    newer = False


class NetworkError(RldsError, ConnectionError):
    """A server did not answer properly after all retries and mirrors."""

    exit_code = 5


class OfflineError(NetworkError):
    """A connection would be needed while offline mode is on."""


class AccessError(RldsError, PermissionError):
    """A server refuses the file, or no longer has it; ``missing`` where it only says the latter."""

    exit_code = 6
    missing = False


class DiskFull(RldsError, OSError):
    """The disk is full, or too small for the files to write."""

    exit_code = 7


class LockedError(RldsError, TimeoutError):
    """Another process holds the lock of this dataset for longer than the time limit."""

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
    """A dataset is opened whose raw files are not known to be the publisher's.

    Shown each time, unless a filter of the user's says otherwise:
    ``warnings.simplefilter("ignore", UnverifiedDataset)``.
    """


class KnownDefect(UserWarning):
    """A dataset is opened as it was published, and the audit found something wrong in its rows.

    Shown once a process and dataset; ``audit="ignore"`` opens it without.
    """
