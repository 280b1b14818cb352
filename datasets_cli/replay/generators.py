"""The generators that draws come from: torch's global one, or one of an object's own."""

from __future__ import annotations

import torch

from datasets_cli.errors import UsageError


def choose_generator(generator: torch.Generator | None, seed: int | None) -> torch.Generator:
    """Return the generator that was given, a new one with a seed, or torch's global one.

    Raises:
        UsageError: both are given.
    """
    if generator is not None and seed is not None:
        raise UsageError("Give a generator or a seed, not both.")
    return generator or seeded(seed)


def seed_of(generator: torch.Generator) -> int | None:
    """Return what a pickled copy begins anew with; None for torch's global generator."""
    return None if generator is torch.default_generator else generator.initial_seed()


def seeded(seed: int | None) -> torch.Generator:
    """Return a new generator, or torch's global one where the seed is None."""
    return torch.default_generator if seed is None else torch.Generator().manual_seed(seed)
