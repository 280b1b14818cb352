"""Which datasets several ids mean, also where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.errors import UsageError
from tests.support.refusals import refused

VERBS: dict[str, Callable[..., Any]] = {
    "download": datasets_cli.download,
    "plan_download": datasets_cli.plan_download,
    "delete": datasets_cli.delete,
    "verify": datasets_cli.verify,
    "audit_datasets": datasets_cli.audit_datasets,
    "disk_usage": datasets_cli.disk_usage,
    "find_overlap": datasets_cli.find_overlap,
    "repair": datasets_cli.repair,
    "match_datasets": datasets_cli.match_datasets,
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
def test_no_id_at_all_is_refused(verb: Callable[..., Any], config: Config, door: str) -> None:
    for ids in ([], (), iter(())):
        with refused(UsageError, argument="ids"):
            verb(ids, config=config)
    assert (config.root / "datasets" / door).exists()
