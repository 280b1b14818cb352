"""The step of an optimiser: gradients of the losses, clipped, and one update."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError

LOSS = "loss_"


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
