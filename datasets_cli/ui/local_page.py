"""State shared by all routes of the page: cache root, installed datasets, templates."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from datasets_cli.catalogue.names import known_ids
from datasets_cli.config import Config
from datasets_cli.core.checked_json import encode
from datasets_cli.core.quantities import counted, human_bytes, human_count, printable
from datasets_cli.errors import DatasetNotInstalled, UnknownDataset, UsageError
from datasets_cli.install.find import is_installed, open_installed
from datasets_cli.sources.temporary_folders import delete_with, temporary_folder
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.tables import load_summary

if TYPE_CHECKING:
    from datasets_cli.store.arrays import DatasetArrays

FOLDER = Path(__file__).parent
LOCK_SECONDS = 2.0
MOST_CHARACTERS = 200  # of an id
MOST_BYTES = 1 << 30  # that are read for a page
LARGEST = 2**48
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.@+~=-]*"
_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+(e[-+]?\d+)?|nan|-?inf")


class IdConvertor(Convertor[str]):
    """``{id:dataset}`` in an address: an id, whose characters stand there unchanged."""

    regex = rf"{_PART}(?:/{_PART})*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("dataset", IdConvertor())


@dataclass(frozen=True)
class LocalPage:
    """The page of one cache root."""

    config: Config
    apart: Path

    @classmethod
    def of(cls, config: Config) -> LocalPage:
        """Return the page of a configuration; no request opens a socket or waits long for locks."""
        apart = temporary_folder(in_memory=False)
        page = cls(replace(config, offline=True, lock_timeout=LOCK_SECONDS), apart)
        delete_with(page, apart)
        return page

    @property
    def root(self) -> CacheRoot:
        """The cache root, which stays unchanged; computed tables live as long as the page."""
        return CacheRoot(self.config.root, self.apart)

    def known_id(self, text: str) -> str:
        """Return a text that is the id of a dataset of the catalogue or of this disk."""
        # Any other text may be the path of a folder, which `check_id` would search.
        if len(text) > MOST_CHARACTERS or not re.fullmatch(IdConvertor.regex, text):
            raise UsageError(
                f"{text[:MOST_CHARACTERS]!r} is not an id, such as d4rl/door-human-v0.",
                found=text[:MOST_CHARACTERS],
            )
        if not is_installed(self.root, text) and text not in known_ids(self.root):
            raise UnknownDataset(
                f"Unknown dataset {text}.", id=text, advice="See the catalogue for all ids."
            )
        return text

    def installed(self, text: str) -> DatasetArrays:
        """Open an installed dataset by its full id; nothing else is looked for on the disk."""
        if not is_installed(self.root, self.known_id(text)):
            raise DatasetNotInstalled(
                f"{text} is not installed.", id=text, advice=f"Run: rlds download {text}"
            )
        return open_installed(text, self.config)

    def has_statistics(self, manifest: Manifest) -> bool:
        """Return whether statistics of a dataset are known, so that no row is read for them."""
        return load_summary(self.root, manifest.content) is not None

    def are_statistics_quick(self, manifest: Manifest) -> bool:
        """Return whether statistics of a dataset are known, or all numbers of it are few."""
        return self.has_statistics(manifest) or is_small(manifest)

    def render(
        self, request: Request, template: str, status_code: int = 200, **values: Any
    ) -> HTMLResponse:
        """Return a page rendered from a template."""
        return HTMLResponse(self.text(template, request=request, **values), status_code)

    def text(self, template: str, **values: Any) -> str:
        """Return the text of a page rendered from a template."""
        return _templates().get_template(template).render(page=self, **values)


def page_of(request: Request) -> LocalPage:
    """Return the page that a request is for."""
    page = request.app.state.page
    assert isinstance(page, LocalPage)
    return page


def json_response(document: Any, status_code: int = 200) -> Response:
    """Return values as a JSON response; callers replace numbers that are not finite by None."""
    text = json.dumps(document, default=encode, allow_nan=False)
    return Response(text, status_code, media_type="application/json")


def is_small(*manifests: Manifest) -> bool:
    """Return whether all numbers of datasets may be read for a page."""
    num_bytes = (
        each.num_transitions * sum(column.row_bytes for column in each.columns)
        for each in manifests
    )
    return sum(num_bytes) <= MOST_BYTES


def whole_number(request: Request, name: str, default: int, least: int = 0) -> int:
    """Return a whole number of the query of an address, or its default."""
    text = request.query_params.get(name, "") or str(default)
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise UsageError(f"{name} is {text[:40]!r}; expected a whole number, {least} or more.")
    return max(least, min(int(text), LARGEST))


@cache
def _templates() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(FOLDER / "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"bytes": human_bytes, "count": human_count, "counted": counted}
    environment.filters["plain"] = _plain
    environment.tests["numeric"] = lambda text: bool(_NUMBER.fullmatch(str(text)))
    return environment


def _plain(value: object) -> str:
    """Return a text without what moves a cursor, or turns the direction of writing."""
    return "\n".join(map(printable, str(value).split("\n")))
