"""The families, first screen of ``rlds list``; imported on a terminal alone, for it has rich."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from datasets_cli.cli.terminal import has_colour

if TYPE_CHECKING:
    from datasets_cli import DatasetRecord


def families_table(records: list[DatasetRecord], width: int) -> list[str]:
    """Return a line for every family: how many datasets it has, and how many are installed.

    Args:
        records: every known dataset.
        width: columns of the terminal.
    """
    known = Counter(record.id.partition("/")[0] for record in records)
    here = Counter(record.id.partition("/")[0] for record in records if record.installed)
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    drawn.add_column("FAMILY", no_wrap=True)
    drawn.add_column("DATASETS", justify="right", no_wrap=True)
    drawn.add_column("INSTALLED", justify="right", no_wrap=True)
    for family, count in known.items():
        drawn.add_row(family, f"{count:,}", f"[green]{here[family]:,}[/]" if here[family] else "-")
    # The names of emojis are a large file.
    console = Console(
        width=width, force_terminal=has_colour(), no_color=not has_colour(), emoji=False
    )
    with console.capture() as captured:
        console.print(drawn)
    return [line.rstrip() for line in captured.get().splitlines() if line.strip()]
