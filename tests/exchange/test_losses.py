"""Every feature of a dataset in every written format: kept, named as lost, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from datasets_cli import (
    compare_datasets,
    create_dataset,
    export_dataset,
    import_dataset,
    plan_import,
)
from datasets_cli.config import Config
from datasets_cli.errors import SourceError, UsageError
from datasets_cli.schema.columns import show_key
from datasets_cli.store.manifest import read_manifest
from tests.exchange.features import COUNT, FEATURES, LENGTHS

MADE_AGAIN = ("done", "terminated", "truncated", "next.done")
METADATA = "metadata of the dataset"
FORMATS = ("npz", "d4rl", "minari", "torchrl", "parquet")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("feature", FEATURES)
def test_nothing_is_lost_without_a_word(
    config: Config, tmp_path: Path, feature: str, format: str
) -> None:
    steps, path = FEATURES[feature](), tmp_path / "out"
    lengths = LENGTHS if len(steps["next", "reward"]) == COUNT else [1]
    create_dataset("mine/a", steps, lengths=lengths, info={"title": "é"}, config=config)
    columns = read_manifest(config.root / "datasets/mine/a").all_columns
    named = _named_as_lost(format, path, config)
    lost = named - {METADATA}
    assert lost <= {show_key(each.key) for each in columns}
    try:
        export_dataset("mine/a", format, path, allow_loss=True, config=config)
        import_dataset(path, "mine/b", map=_unguessed(path), layout="ted", config=config)
    except UsageError as error:
        assert any(show_key(key) in str(error) for key in steps) or "needs action" in str(error)
    except SourceError as error:  # what every dataset has is among the lost
        assert lost & {"action", "next.reward"} or "info.a.b" in str(error)
    else:
        found = compare_datasets("mine/a", "mine/b", config=config)
        assert {show_key(each.key) for each in found.only[0]} == lost
        metadata = read_manifest(config.root / "datasets/mine/b").metadata
        assert METADATA in named or metadata["title"] == "é"
        assert not found.only[1] and found.trajectory is None
        assert not [each for each in found.columns if each.num_different]


def _named_as_lost(format: str, path: Path, config: Config) -> set[str]:
    losses = export_dataset("mine/a", format, path, dry_run=True, config=config).losses
    return {loss.partition(": ")[0] for loss in losses}


def _unguessed(path: Path) -> dict[str, str]:
    """Return the columns whose names are no known ones, as keys of these names."""
    dropped = [each.partition(": ") for each in plan_import(path, "mine/b").dropped]
    assert all("no key is mapped" in why or "is read as" in why for _, _, why in dropped), dropped
    return {name.replace("/", "."): name for name, _, _ in dropped if name not in MADE_AGAIN}
