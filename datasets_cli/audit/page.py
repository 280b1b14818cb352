"""The page of errata: what rules find in files, and what readers make of these rows.

    python -m datasets_cli.audit.page [FILE OR FOLDER]... --readers FILE.py --out docs/errata.md

Files have their publisher's names. The file of readers has ``READERS``, functions by name.
"""

from __future__ import annotations

import argparse
import runpy
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from datasets_cli.audit.repaired import REPAIRS, SUFFIX
from datasets_cli.audit.repairs import MENDED
from datasets_cli.audit.report import load_report
from datasets_cli.audit.rules.facts import facts_table
from datasets_cli.audit.rules.registry import RULES
from datasets_cli.catalogue.registry import load_recipe
from datasets_cli.config import Config
from datasets_cli.core.quantities import counted
from datasets_cli.errors import UsageError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstalledDataset, InstallOptions
from datasets_cli.recipe import Resource, read_tsv
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest

HEAD = """# Errata of published datasets

Written by `python -m datasets_cli.audit.page` from the [rules](audit.md), the facts that they rest
on and what was run on published files. Rows are those of `rlds peek`, steps those of the file, both
from 0.
"""
FOUND = """
## What rules find in published files

`rlds download ID` installs what was published, `rlds download ID~repaired` the same with what the
column *repair* says. The columns after it say what others make of the first step of the repair.
TFDS needs TensorFlow: what it makes of such files is recorded
[elsewhere](families/d4rl.md#how-it-differs-elsewhere). Minari reads none of them. Evidence: *whole
file*, or *cut*: the first two episodes.
"""
SOUND = "\nNothing is found in the cuts of "
RULES_HEAD = """
## Rules

Cite a rule by name and version. Repair: A, exact from the file; B, a view is offered; C, told only.
"""
FACTS = "\n## Facts of environments that rules rest on\n"
TOLD = """
## Told

What no rule can find in the rows: others told it, and only an environment, another file or a person
can show it.
"""
Made = Mapping[str, Any]
Reader = Callable[[Path], Made]
"""Returns what a reader makes of a file: the ``step`` of each transition, int64 ``[n]``, whether
the file's next one ``follows``, bool ``[n]``, and the flags ``done`` and ``terminated``."""


@dataclass(frozen=True)
class AuditedFile:
    """What a file is, and the cells of the table for each finding in it."""

    id: str
    rows: tuple[list[str], ...]


def audited(path: Path, readers: Mapping[str, Reader]) -> AuditedFile:
    """Convert, audit and repair a file of D4RL, in a root that is gone afterwards."""
    name, resource = _published(path)
    sizes = {resource.size, *(older.size for older in resource.older)}
    evidence = "whole file" if path.stat().st_size in sizes else "cut"
    with tempfile.TemporaryDirectory() as folder:
        file, config = Path(folder) / "source" / resource.filename, Config(Path(folder) / "root")
        file.parent.mkdir()
        shutil.copyfile(path, file)
        made = _installed(name, file.parent, config)
        report = load_report(CacheRoot(config.root), read_manifest(made.path).content)
        findings = report.findings if report else ()
        steps = _repaired_steps(name, file.parent, config) if findings else {}
        read = {reader: each(file) for reader, each in readers.items()} if steps else {}
    rows = (
        [
            *(f"`{made.id}`", f"{found.rule} {found.version}", found.severity),
            *(f"{made.num_transitions:,}", found.where, _change(found.rule, steps)),
            *(_outcome(found.rule, steps, read.get(reader)) for reader in readers),
            evidence,
        ]
        for found in findings
    )
    return AuditedFile(made.id, tuple(rows))


@cache
def _by_filename() -> dict[str, str]:
    recipe = load_recipe("d4rl")
    names = (entry.name for entry in recipe.datasets(None))
    return {each.filename: name for name in names for each in recipe.resources(name, None)}


def _published(path: Path) -> tuple[str, Resource]:
    """Return the dataset that a file is of, by the publisher's name of it or the dataset's."""
    name = _by_filename().get(path.name, path.stem)
    (resource,) = load_recipe("d4rl").resources(name, None)
    return name, resource


def _installed(name: str, source: Path, config: Config) -> InstalledDataset:
    options = InstallOptions(accept_any=True, source=str(source))
    return install_dataset(f"d4rl/{name}", config, options)


def _repaired_steps(name: str, source: Path, config: Config) -> dict[str, list[list[int]]]:
    """Return the steps of the file that each repair changes, as runs; none where it is refused."""
    try:
        manifest = read_manifest(_installed(name + SUFFIX, source, config).path)
    except UsageError:
        return {}
    return {entry["rule"]: entry["steps"] for entry in manifest.metadata[REPAIRS]}


def _change(rule: str, steps: Mapping[str, list[list[int]]]) -> str:
    if rule not in steps:
        return ""
    (first, _), *_ = steps[rule]
    number = counted(sum(size for _, size in steps[rule]), "step")
    return f"{number} of the file, the first {first:,}: {MENDED[rule]}"


def _outcome(rule: str, steps: Mapping[str, list[list[int]]], made: Made | None) -> str:
    """Return what a reader makes of the first step that a repair changes."""
    if rule not in steps or made is None:
        return ""
    step = steps[rule][0][0]
    places = (made["step"] == step).nonzero()[0]
    if not len(places):
        return f"leaves step {step:,} out"
    follows, done, terminated = (
        made[flag][places[0]] for flag in ("follows", "done", "terminated")
    )
    end = "terminated" if terminated else "done" if done else "no end"
    return f"step {step:,}: {end}, {'' if follows else 'not '}followed by {step + 1:,}"


def page(paths: Iterable[Path], readers: Mapping[str, Reader]) -> str:
    """Return the page."""
    found = (each.rglob("*.hdf5") if each.is_dir() else [each] for each in paths)
    files = [audited(path, readers) for path in sorted(chain(*found))]
    heads = ["dataset", "rule", "severity", "rows", "where", "repair", *readers, "evidence"]
    sound = ", ".join(dict.fromkeys(f"`{each.id}`" for each in files if not each.rows))
    told = read_tsv(Path(__file__).with_name("told.tsv"))
    rules = (
        [each.name, str(each.version), each.severity, each.repair, each.meaning, each.source]
        for each in RULES
    )
    facts = ([f"`{each['datasets']}`", each["bound"], each["source"]] for each in facts_table())
    return "".join(
        (
            *(HEAD, FOUND, *_table(heads, chain(*(each.rows for each in files)))),
            *(SOUND, sound, ".\n", RULES_HEAD),
            *_table(["rule", "version", "severity", "repair", "meaning", "told first by"], rules),
            *(FACTS, *_table(["datasets", "bound", "fact and its source"], facts)),
            *(TOLD, *_table([*told[0]], (row.values() for row in told))),
        )
    )


def _table(heads: list[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield "\n"
    for cells in (heads, ["---"] * len(heads), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m datasets_cli.audit.page")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--readers", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    readers = runpy.run_path(str(options.readers))["READERS"] if options.readers else {}
    options.out.write_text(page(options.files, readers), encoding="utf-8")


if __name__ == "__main__":
    main()
