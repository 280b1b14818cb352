"""The card of a dataset: description, size, columns, statistics, licence, citation, loading."""

from __future__ import annotations

import json
import re
import textwrap
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from typing import Literal, get_args

from datasets_cli.catalogue.names import KnownId
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import check_choice, takes_fields
from datasets_cli.core.progress import ProgressOptions
from datasets_cli.core.quantities import human_bytes, human_count, printable
from datasets_cli.schema.columns import show_key
from datasets_cli.verbs.cite import cite, origin
from datasets_cli.verbs.info import DatasetInfo, dataset_info
from datasets_cli.verbs.stats import DatasetStatistics, dataset_stats

Format = Literal["md", "hf"]
LICENCES = ("cc-by-4.0", "cc-by-sa-4.0", "cc0-1.0", "mit", "apache-2.0", "bsd-3-clause")
"""Licences of publishers, with their names at Hugging Face."""

_BOUNDS = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
SIZES = ["n<1K", *(f"{low}<n<{high}" for low, high in pairwise(_BOUNDS)), "n>1T"]
"""The size categories of Hugging Face, by number of rows."""


@dataclass(frozen=True)
class DatasetCard(JsonForm):
    """A dataset's card; ``str`` gives its text.

    Args:
        id: the full id.
        format: ``"md"`` or ``"hf"``.
        text: the text of the card.
    """

    id: str
    format: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class CardCall(ProgressOptions, KnownId):
    """The arguments of ``dataset_card``.

    Args:
        format: ``"md"``, Markdown; ``"hf"``, the README of a dataset on Hugging Face.
    """

    _: KW_ONLY
    format: Format = field(
        default="md",
        metadata={"help": "Format of the card: Markdown, or a README for Hugging Face (hf)."},
    )


@dataclass(frozen=True)
class Code:
    """A code block of a card."""

    language: str
    text: str


Rows = list[dict[str, str]]
Part = str | Code | Rows
"""A part of a card: a paragraph, code, or the rows of a table by their headings."""


@takes_fields(CardCall)
def dataset_card(call: CardCall) -> DatasetCard:
    """Return the card of a dataset. For an installed one, missing statistics are computed.

    Raises:
        UnknownDataset: no recipe and no folder has this name; the message suggests ids.
        UsageError: the format is unknown.
    """
    check_choice("format", call.format, get_args(Format))
    config = call.chosen_config()
    info = dataset_info(call.id, config=config)
    statistics = None
    if info.installed:
        statistics = dataset_stats(info.id, progress=call.progress, config=config)
    blocks = []
    for heading, part in parts_of_card(info, statistics, str(cite(info.id, config=config))):
        blocks += [f"## {heading}"] if heading else []
        blocks += [_as_markdown(part)] if part else []
    head = _front_matter(info) if call.format == "hf" else ""
    text = "\n\n".join([f"{head}# {_md(info.id)}", *blocks]) + "\n"
    return DatasetCard(info.id, call.format, text)


def parts_of_card(
    info: DatasetInfo, statistics: DatasetStatistics | None, bibtex: str
) -> Iterator[tuple[str, Part]]:
    """Yield the parts of a card, each after the heading that it begins, if it begins one."""
    manifest, details = info.manifest, dict(info.details or {})
    for name in ("known_traps", "trap_rules"):
        details.pop(name, None)
    yield "", info.title or "A dataset of your own."
    yield from (("", text) for text in origin(manifest))
    facts = {
        "state": f"{info.state}: {info.problem}" if info.problem else info.state,
        "transitions": human_count(info.num_transitions),
        "trajectories": human_count(info.num_trajectories),
        "download": human_bytes(info.download_bytes) if info.download_bytes else "",
        "on disk": human_bytes(info.size_bytes) if info.installed else "",
        "content": manifest.content if manifest else "",
        **{
            name.replace("_", " "): textwrap.shorten(str(value), 400)
            for name, value in details.items()
            if value
        },
    }
    yield "Size and origin", [{"": name, " ": text} for name, text in facts.items() if text]
    if manifest:
        columns = [
            {"column": show_key(each.key), "type": each.dtype, "shape": str(list(each.shape))}
            for each in manifest.all_columns
        ]
        yield "Columns", columns
    if statistics:
        yield "Statistics", statistics.table()
        yield from (("", remark) for remark in statistics.remarks)
        yield "Returns and lengths", statistics.trajectory_table()
    notes = manifest.metadata.get("notes", ()) if manifest else ()
    for number, text in enumerate(dict.fromkeys([*info.known_traps, *notes])):
        yield "" if number else "Known traps and notes", text
    yield "Licence and citation", f"Licence: {info.licence or 'not stated'}."
    yield "", f"Homepage: {info.homepage}" if info.homepage else ""
    yield "", Code("bibtex", bibtex)
    if not (manifest and manifest.parent):
        yield "How to load it", Code("sh", f"rlds download {info.id}")
    load = f'from datasets_cli import ExperienceReplay\n\nreplay = ExperienceReplay("{info.id}", '
    yield "", Code("python", f"{load}batch_size=256)\nbatch = replay.sample()")


def _plain(text: str) -> str:
    """Return a text in one line, without control characters."""
    return printable(" ".join(text.split()))


def _md(text: str) -> str:
    """Return a text with Markdown characters escaped."""
    escaped = re.sub(r"([\\`*_\[\]<>|~&#!$])", r"\\\1", _plain(text))
    return re.sub(r"^(\d*)([-+=.)])(?=[-=\s]|$)", r"\1\\\2", escaped)  # else a list, or a heading


def _lines(code: str) -> str:
    return "\n".join(printable(line) for line in code.splitlines())


def heads_of(rows: Rows) -> list[str]:
    """Return the headings of a table whose columns are not empty."""
    return [head for head in rows[0] if head.strip() == "" or any(row[head] for row in rows)]


def _as_markdown(part: Part) -> str:
    if isinstance(part, str):
        return _md(part)
    if isinstance(part, Code):
        longest = max(map(len, re.findall("`+", part.text)), default=0)
        fence = "`" * max(3, longest + 1)
        return f"{fence}{part.language}\n{_lines(part.text)}\n{fence}"
    heads = heads_of(part)
    rows = [" | ".join(_md(row[head]) for head in heads) for row in part]
    lines = [" | ".join(heads), " | ".join("---" for _ in heads), *rows]
    return "\n".join(f"| {line} |" for line in lines)


def _front_matter(info: DatasetInfo) -> str:
    """Return the metadata of a README for Hugging Face: YAML with JSON strings."""
    stated = info.licence or ""
    licence = "-".join(stated.casefold().split())
    known = licence if licence in LICENCES else "other" if stated else "unknown"
    lines = [f"pretty_name: {_yaml(info.id)}", f"license: {known}"]
    lines += [f"license_name: {_yaml(stated)}"] if known == "other" else []
    lines += ["task_categories:", "- reinforcement-learning", "tags:"]
    lines += [f"- {_yaml(tag)}" for tag in ("offline-rl", "rlds-cli", info.id.partition("/")[0])]
    if info.num_transitions:
        power = bisect_right([10**digits for digits in range(3, 13)], info.num_transitions)
        lines += ["size_categories:", f"- {SIZES[power]}"]
    return "\n".join(["---", *lines, "---", "", ""])


def _yaml(text: str) -> str:
    return json.dumps(_plain(text), ensure_ascii=False)
