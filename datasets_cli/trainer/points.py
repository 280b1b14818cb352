"""The points of a training loop where functions take part.

    for batch in collector:
        batch = batch_process(batch)
        pre_steps_log(batch)                       returns what is logged, a dict, or None
        pre_optim_steps()
        for each epoch:
            batch = pre_epoch(batch)
            for each optimisation step:
                sample = process_optim_batch(batch)
                losses = loss_module(sample)
                post_loss(sample)
                losses = process_loss(sample, losses)
                losses = optimizer(losses, clip_grad_norm, clip_norm, number)
                post_optim()
                post_optim_log(sample)             as pre_steps_log
            post_epoch()
        post_steps()
        post_steps_log(batch)                      as pre_steps_log

The names are TorchRL's. A function at a point that hands something on may return None, and changes
nothing then.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError

POINTS = (
    "batch_process",
    "pre_steps_log",
    "pre_optim_steps",
    "pre_epoch",
    "process_optim_batch",
    "post_loss",
    "process_loss",
    "optimizer",
    "post_optim",
    "post_optim_log",
    "post_epoch",
    "post_steps",
    "post_steps_log",
)

PointFunction = Callable[..., Any]


class Points:
    """The functions of each point, in the order in which they were registered."""

    def __init__(self) -> None:
        self._functions: defaultdict[str, list[PointFunction]] = defaultdict(list)

    def register(self, point: str, function: PointFunction, **options: Any) -> None:
        """Add a function to a point."""
        if point not in POINTS:
            near = difflib.get_close_matches(str(point), POINTS, 1)
            meant = f" Did you mean {near[0]}?" if near else ""
            raise UsageError(
                f"A training loop has no point {point!r}.{meant} Expected one of: "
                f"{', '.join(POINTS)}."
            )
        if not callable(function):
            raise UsageError(
                f"What is registered at {point} must be callable; found {type(function).__name__}."
            )
        self._functions[point].append(partial(function, **options) if options else function)

    def at(self, point: str) -> list[PointFunction]:
        """Return the functions of a point."""
        return self._functions[point]

    def hand_on(self, point: str, value: Any) -> Any:
        """Call the functions of a point, each with what the one before it returned."""
        for function in self._functions[point]:
            returned = function(value)
            value = value if returned is None else returned
        return value


LOSS = "loss"


class OptimiserStep:
    """Updates the parameters by the sum of all losses; the function of the point ``optimizer``."""

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self.optimiser = optimiser
        self._parameters = [each for group in optimiser.param_groups for each in group["params"]]

    def __call__(
        self, losses: TensorDict, clip_grad_norm: bool, clip_norm: float | None, number: int
    ) -> TensorDict:
        """Do one step and return the losses, with the norm of the gradients as ``grad_norm``."""
        parts = [value for key, value in losses.items() if key.startswith(LOSS)]
        if not parts:
            raise UsageError(
                f"The loss module returned no loss: expected entries whose names begin with {LOSS}"
                f", found {', '.join(sorted(losses.keys())) or 'none'}."
            )
        self.optimiser.zero_grad(set_to_none=True)
        torch.stack([part.mean() for part in parts]).sum().backward()
        bound = clip_norm if clip_norm is not None and clip_grad_norm else float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, bound)
        if clip_norm is not None and not clip_grad_norm:
            torch.nn.utils.clip_grad_value_(self._parameters, clip_norm)
        self.optimiser.step()
        detached: TensorDict = losses.detach()
        return detached.set("grad_norm", norm)
