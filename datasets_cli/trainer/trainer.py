"""The loop of collecting and learning: everything that it does beside that is registered.

trainer = Trainer(collector=collector, total_frames=50_000, optim_steps_per_batch=64,
loss_module=loss_module, optimizer=optimizer)
ReplayBufferTrainer(replay_buffer, batch_size=256).register(trainer)
trainer.train()
"""

from __future__ import annotations

import difflib
import os
import pickle
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from tensordict import TensorDict
from tqdm import tqdm

from datasets_cli.errors import UsageError
from datasets_cli.torchrl.keywords import accepts_keywords

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


MASK = ("collector", "mask")
OWN_PARTS = ("collector", "loss_module", "optimizer")


class Stateful(Protocol):
    """A part of a loop whose state is kept with the loop's."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Load what ``state_dict`` returned."""


class Logger(Protocol):
    """What shows numbers while a loop runs, as TorchRL's loggers do."""

    def log_scalar(self, name: str, value: float, step: int | None = None) -> Any:
        """Show a number, at a count of frames."""


@accepts_keywords
class Trainer:
    """Collects batches, and after each does some optimisation steps.

    Args:
        collector: gives TensorDicts ``[*B]`` of steps; what it is is up to you, a list too.
        total_frames: training ends when this many frames were collected; None: with the collector.
        frame_skip: frames of the environment that a step stands for; None: 1.
        optim_steps_per_batch: optimisation steps after each batch.
        loss_module: takes a sample and returns a TensorDict of scalars; those whose names begin
            with ``loss`` are summed and minimised. The parameters are the optimiser's.
        optimizer: updates the parameters; where None, a function at the point ``optimizer`` must.
        clip_grad_norm: ``clip_norm`` bounds the norm of all gradients together; else each value.
        clip_norm: the bound; None bounds nothing.
        num_epochs: how often the optimisation steps of a batch are repeated.
        progress_bar: draw a bar of the collected frames, where stderr is a terminal.
        seed: seeds torch, numpy, Python's ``random`` and the collector.
        save_trainer_interval: frames between two states that are saved.
        save_trainer_file: where the state is saved; nowhere where None.
        logger: shows what ``history`` keeps, by ``log_scalar(name, value, step=frames)``.
        log_interval: frames between two values of a name that the logger shows.

    Raises:
        UsageError: a number is out of range.
    """

    def __init__(
        self,
        *,
        collector: Iterable[TensorDict],
        total_frames: int | None,
        frame_skip: int | None = 1,
        optim_steps_per_batch: int,
        loss_module: Callable[[TensorDict], TensorDict],
        optimizer: torch.optim.Optimizer | None = None,
        clip_grad_norm: bool = True,
        clip_norm: float | None = None,
        num_epochs: int = 1,
        progress_bar: bool = True,
        seed: int | None = None,
        save_trainer_interval: int = 10_000,
        save_trainer_file: str | os.PathLike[str] | None = None,
        logger: Logger | None = None,
        log_interval: int = 10_000,
    ) -> None:
        frame_skip = 1 if frame_skip is None else frame_skip
        numbers = {"frame_skip": frame_skip}
        numbers |= {} if total_frames is None else {"total_frames": total_frames}
        numbers |= {"optim_steps_per_batch": optim_steps_per_batch, "num_epochs": num_epochs}
        numbers |= {"save_trainer_interval": save_trainer_interval, "log_interval": log_interval}
        for name, value in numbers.items():
            if value < 1:
                raise UsageError(f"{name} of a Trainer is {value}; expected 1 or more.")
        self.collector, self.loss_module, self.optimizer = collector, loss_module, optimizer
        self.total_frames, self.frame_skip = total_frames, frame_skip
        self.optim_steps_per_batch, self.num_epochs = optim_steps_per_batch, num_epochs
        self.clip_grad_norm, self.clip_norm = clip_grad_norm, clip_norm
        self.progress_bar = progress_bar
        self.save_trainer_interval = save_trainer_interval
        self.save_trainer_file = save_trainer_file
        self.logger, self.log_interval = logger, log_interval
        self._shown_at: dict[str, int] = {}
        self.collected_frames = 0
        self.num_optim_steps = 0
        self.history: dict[str, list[tuple[int, float]]] = {}
        self._points = Points()
        self._modules: dict[str, Stateful] = {}
        self._saved_at = 0
        if optimizer is not None:
            self.register_op("optimizer", OptimiserStep(optimizer))
        if seed is not None:
            self._seed(seed)

    def register_op(self, dest: str, op: PointFunction, **kwargs: Any) -> None:
        """Let a function take part in the loop.

        Args:
            dest: the point, see ``datasets_cli.trainer.trainer``.
            op: the function.
            kwargs: further arguments of each call.

        Raises:
            UsageError: there is no such point, or ``op`` cannot be called.
        """
        self._points.register(dest, op, **kwargs)

    def register_module(self, module_name: str, module: Stateful) -> None:
        """Keep the state of something with the loop's, under a name.

        Raises:
            UsageError: the name is taken.
        """
        if module_name in self._modules or module_name in (*OWN_PARTS, "state"):
            raise UsageError(f"The trainer has a module {module_name!r} already. Rename it.")
        self._modules[module_name] = module

    def train(self) -> None:
        """Collect and learn until ``total_frames`` were collected, or the collector ends.

        The collector is shut down after it, where it can be; the state is saved at the end.

        Raises:
            UsageError: nothing updates the parameters.
        """
        self._check_optimiser()
        bar = tqdm(total=self.total_frames, unit="fr", disable=None if self.progress_bar else True)
        bar.update(self.collected_frames)
        try:
            batches = iter(self.collector)
            while self.total_frames is None or self.collected_frames < self.total_frames:
                collected = next(batches, None)
                if collected is None:
                    break
                bar.update(self._learn_from(collected))
                if self.collected_frames - self._saved_at >= self.save_trainer_interval:
                    self.save_trainer()
            self.save_trainer()
        finally:
            bar.close()
            shutdown = getattr(self.collector, "shutdown", None)
            if shutdown is not None:
                shutdown()

    def optim_steps(self, batch: TensorDict) -> None:
        """Do the optimisation steps after one batch; the means of their losses are logged.

        Args:
            batch: what was collected, as the points ``pre_epoch`` and ``process_optim_batch`` get
                it.
        """
        self._check_optimiser()
        points = self._points
        sums: defaultdict[str, float] = defaultdict(float)
        for function in points.at("pre_optim_steps"):
            function()
        for _ in range(self.num_epochs):
            processed = points.hand_on("pre_epoch", batch)
            for _ in range(self.optim_steps_per_batch):
                for name, value in self._step(processed).items():
                    sums[name] += float(value.mean())
            for function in points.at("post_epoch"):
                function()
        num_steps = self.num_epochs * self.optim_steps_per_batch
        self._keep({name: total / num_steps for name, total in sums.items()})

    def save_trainer(self) -> None:
        """Write the state to ``save_trainer_file``; a file that is there is replaced at once."""
        self._saved_at = self.collected_frames
        if self.save_trainer_file is None:
            return
        path = Path(self.save_trainer_file)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        torch.save(self.state_dict(), new)
        new.replace(path)

    def load_from_file(self, file: str | os.PathLike[str]) -> Trainer:
        """Load what ``save_trainer`` wrote, and return this trainer.

        Raises:
            UsageError: the file is not the state of such a trainer.
        """
        try:
            state = torch.load(file, weights_only=True)
            self.load_state_dict(state)
        except (KeyError, TypeError, RuntimeError, pickle.UnpicklingError) as error:
            raise UsageError(
                f"{os.fspath(file)} is not the state of such a trainer ({error}). Make the trainer "
                "as the one that saved it, with the same modules registered."
            ) from error
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loop and of everything in it that has one."""
        counts = {"collected_frames": self.collected_frames, "optim_steps": self.num_optim_steps}
        parts = {name: part.state_dict() for name, part in self._stateful().items()}
        return {**parts, "state": {**counts, "history": dict(self.history)}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what ``state_dict`` returned; ``train`` then continues from there.

        Raises:
            UsageError: a part is missing in the state, or has no state here.
        """
        parts = self._stateful()
        if differing := sorted(parts.keys() ^ (state_dict.keys() - {"state"})):
            raise UsageError(
                f"The state of a trainer has {', '.join(sorted(state_dict))}, and this one keeps "
                f"{', '.join(sorted([*parts, 'state']))}: {', '.join(differing)} is in one "
                "of them. Register the same modules."
            )
        for name, part in parts.items():
            part.load_state_dict(state_dict[name])
        state = state_dict["state"]
        self.collected_frames = self._saved_at = state["collected_frames"]
        self.num_optim_steps = state["optim_steps"]
        self.history = {name: list(values) for name, values in state["history"].items()}

    def _learn_from(self, collected: TensorDict) -> int:
        """Do everything that follows from one collected batch; return its frames."""
        points = self._points
        batch = points.hand_on("batch_process", collected)
        frames = _num_steps(batch) * self.frame_skip
        self.collected_frames += frames
        self._log("pre_steps_log", batch)
        if self.collected_frames >= (getattr(self.collector, "init_random_frames", None) or 0):
            self.optim_steps(batch)
        for function in points.at("post_steps"):
            function()
        self._log("post_steps_log", batch)
        return frames

    def _step(self, batch: TensorDict) -> TensorDict:
        """Do one optimisation step and return its losses, detached."""
        points = self._points
        sample = points.hand_on("process_optim_batch", batch)
        losses = self.loss_module(sample)
        points.hand_on("post_loss", sample)
        for function in points.at("process_loss"):
            changed = function(sample, losses)
            losses = losses if changed is None else changed
        for number, function in enumerate(points.at("optimizer")):
            changed = function(losses, self.clip_grad_norm, self.clip_norm, number)
            losses = losses if changed is None else changed
        self.num_optim_steps += 1
        for function in points.at("post_optim"):
            function()
        self._log("post_optim_log", sample)
        detached: TensorDict = losses.detach()
        return detached

    def _log(self, point: str, batch: TensorDict) -> None:
        for function in self._points.at(point):
            self._keep(function(batch) or {})

    def _keep(self, values: Mapping[str, Any]) -> None:
        frames = self.collected_frames
        for name, value in values.items():
            self.history.setdefault(name, []).append((frames, float(value)))
            if self.logger is not None and frames - self._shown_at.get(name, 0) > self.log_interval:
                self._shown_at[name] = frames
                self.logger.log_scalar(name, float(value), step=frames)

    def _check_optimiser(self) -> None:
        if not self._points.at("optimizer"):
            raise UsageError(
                "Nothing updates the parameters: give the Trainer an optimizer, or register a "
                'function at the point "optimizer".'
            )

    def _stateful(self) -> dict[str, Stateful]:
        """Return everything that has a state to keep, by its name."""
        own = {name: getattr(self, name) for name in OWN_PARTS}
        stateful = {name: part for name, part in own.items() if hasattr(part, "state_dict")}
        return {**stateful, **self._modules}

    def _seed(self, seed: int) -> None:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        set_seed = getattr(self.collector, "set_seed", None)
        if set_seed is not None:
            set_seed(seed)


def _num_steps(batch: TensorDict) -> int:
    """Return the steps of a batch, without padding."""
    if MASK in batch.keys(include_nested=True):
        return int(batch[MASK].sum())
    return int(batch.numel())
