"""The versions of random orders: one that an earlier program began continues as it began."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import whole_number
from datasets_cli.replay.orders.order import ListedOrder, Order
from datasets_cli.replay.orders.permutation import permutation

ORDER_VERSION = "order_version"
"""Where a state says of which version its order is; states from before version 2 do not."""

RANDPERM, PERMUTATION = 1, 2
"""The versions: the order is that of ``torch.randperm``, or of ``permutation``."""


def shuffled_order(num_items: int, seed: int, version: int) -> Order:
    """Return a random order of the items 0 ... N - 1."""
    if version == PERMUTATION:
        return permutation(num_items, seed)
    generator = torch.Generator().manual_seed(seed)
    return ListedOrder(torch.randperm(num_items, generator=generator).numpy())


def version_in(state: Mapping[str, Any]) -> int:
    """Return of which version the order of a state is."""
    version = whole_number(ORDER_VERSION, state.get(ORDER_VERSION, RANDPERM))
    if version not in (RANDPERM, PERMUTATION):
        raise UsageError(
            f"The order of an epoch is of version {RANDPERM} or {PERMUTATION}, not {version}. "
            "Where a newer version of this program saved it, upgrade."
        )
    return version
