"""The training loop, to which functions are registered at named points.

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

from datasets_cli.errors import UsageError, WrongState, wrong_value
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
    """The functions of each point, in the order of their registration."""

    def __init__(self) -> None:
        self._functions: defaultdict[str, list[PointFunction]] = defaultdict(list)

    def register(self, point: str, function: PointFunction, **options: Any) -> None:
        """Add a function to a point."""
        if point not in POINTS:
            near = difflib.get_close_matches(str(point), POINTS, 1)
            raise wrong_value("dest", POINTS, point, f"Did you mean {near[0]}?" if near else None)
        if not callable(function):
            raise wrong_value("op", "a function", type(function))
        self._functions[point].append(partial(function, **options) if options else function)

    def functions(self, point: str) -> list[PointFunction]:
        """Return the functions of a point."""
        return self._functions[point]

    def apply(self, point: str, value: Any) -> Any:
        """Apply the functions of a point to a value one after another, and return the result."""
        for function in self._functions[point]:
            returned = function(value)
            value = value if returned is None else returned
        return value


LOSS = "loss"


class OptimiserStep:
    """The function at the point ``optimizer``: minimises the sum of all losses."""

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self.optimiser = optimiser
        self._parameters = [each for group in optimiser.param_groups for each in group["params"]]

    def __call__(
        self, losses: TensorDict, clip_grad_norm: bool, clip_norm: float | None, number: int
    ) -> TensorDict:
        """Take one step; return the losses with the norm of the gradients as ``grad_norm``."""
        parts = [value for key, value in losses.items() if key.startswith(LOSS)]
        if not parts:
            found = sorted(losses.keys())
            raise wrong_value("loss_module", f"entries whose names start with {LOSS!r}", found)
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
STATEFUL_PARTS = ("collector", "loss_module", "optimizer")


class Stateful(Protocol):
    """A part of the loop that has a state."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Load a state of ``state_dict``."""


class Logger(Protocol):
    """A logger of numbers, such as TorchRL's."""

    def log_scalar(self, name: str, value: float, step: int | None = None) -> Any:
        """Log a number at a count of frames."""


@accepts_keywords
class Trainer:
    """A training loop: collects batches, and takes optimisation steps after each.

    Args:
        collector: an iterable of TensorDicts ``[*B]`` of steps: a collector, or a list.
        total_frames: the number of frames after which training ends; None for the collector's end.
        frame_skip: the number of environment frames in a step; None for 1.
        optim_steps_per_batch: the number of optimisation steps after each batch.
        loss_module: a function of a sample that returns a TensorDict of scalars. Entries whose
            names start with ``loss`` are summed and minimised.
        optimizer: the optimiser of the parameters; None requires a function at the point
            ``optimizer``.
        clip_grad_norm: True if ``clip_norm`` limits the norm of all gradients together, False if it
            limits each value.
        clip_norm: the limit of the gradients; None for no limit.
        num_epochs: the number of times that the optimisation steps of a batch are repeated.
        progress_bar: show a progress bar of collected frames if stderr is a terminal.
        seed: the seed of torch, numpy, Python's ``random`` and the collector.
        save_trainer_interval: the number of frames between two saved states.
        save_trainer_file: the file of the state; None to save nothing.
        logger: receives the values of ``history`` by ``log_scalar(name, value, step=frames)``.
        log_interval: the number of frames between two logged values of a name.

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
                raise wrong_value(name, "1 or more", value)
        self.collector, self.loss_module, self.optimizer = collector, loss_module, optimizer
        self.total_frames, self.frame_skip = total_frames, frame_skip
        self.optim_steps_per_batch, self.num_epochs = optim_steps_per_batch, num_epochs
        self.clip_grad_norm, self.clip_norm = clip_grad_norm, clip_norm
        self.progress_bar = progress_bar
        self.save_trainer_interval = save_trainer_interval
        self.save_trainer_file = save_trainer_file
        self.logger, self.log_interval = logger, log_interval
        self._logged_at: dict[str, int] = {}
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
        """Register a function at a point of the loop.

        Args:
            dest: the point, such as ``"post_optim"``; all are in
                ``datasets_cli.trainer.trainer.POINTS``.
            op: the function.
            kwargs: further arguments of each call.

        Raises:
            UsageError: the point does not exist, or ``op`` is not callable.
        """
        self._points.register(dest, op, **kwargs)

    def register_module(self, module_name: str, module: Stateful) -> None:
        """Register an object whose ``state_dict`` is saved with the trainer's.

        Args:
            module_name: the key of the object's state.
            module: the object.

        Raises:
            UsageError: the name is in use.
        """
        if module_name in self._modules or module_name in (*STATEFUL_PARTS, "state"):
            raise UsageError(
                f"The trainer has a module {module_name!r} already.",
                argument="module_name",
                found=module_name,
                advice="Choose another name.",
            )
        self._modules[module_name] = module

    def train(self) -> None:
        """Collect and learn until ``total_frames`` or the end of the collector.

        At the end, the state is saved, and a collector with ``shutdown`` is shut down.

        Raises:
            UsageError: the trainer has no optimiser.
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
        """Take the optimisation steps after one batch, and log the means of their losses.

        Args:
            batch: the collected batch ``[*B]``, the input of the points ``pre_epoch`` and
                ``process_optim_batch``.
        """
        self._check_optimiser()
        points = self._points
        sums: defaultdict[str, float] = defaultdict(float)
        for function in points.functions("pre_optim_steps"):
            function()
        for _ in range(self.num_epochs):
            processed = points.apply("pre_epoch", batch)
            for _ in range(self.optim_steps_per_batch):
                for name, value in self._step(processed).items():
                    sums[name] += float(value.mean())
            for function in points.functions("post_epoch"):
                function()
        num_steps = self.num_epochs * self.optim_steps_per_batch
        self._record({name: total / num_steps for name, total in sums.items()})

    def save_trainer(self) -> None:
        """Write the state to ``save_trainer_file``, and replace an existing file atomically."""
        self._saved_at = self.collected_frames
        if self.save_trainer_file is None:
            return
        path = Path(self.save_trainer_file)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        torch.save(self.state_dict(), new)
        new.replace(path)

    def load_from_file(self, file: str | os.PathLike[str]) -> Trainer:
        """Load a file of ``save_trainer``, and return this trainer.

        Args:
            file: the path of the file.

        Raises:
            WrongState: the file is not the state of such a trainer.
        """
        try:
            state = torch.load(file, weights_only=True)
            self.load_state_dict(state)
        except (KeyError, TypeError, RuntimeError, pickle.UnpicklingError) as error:
            raise WrongState(
                f"{os.fspath(file)} is not the state of such a trainer ({error}).",
                path=file,
                advice="Create the trainer as before, and register the same modules.",
            ) from error
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loop and of its parts."""
        counts = {"collected_frames": self.collected_frames, "optim_steps": self.num_optim_steps}
        parts = {name: part.state_dict() for name, part in self._stateful().items()}
        return {**parts, "state": {**counts, "history": dict(self.history)}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state of ``state_dict``; ``train`` then continues from there.

        Args:
            state_dict: the state.

        Raises:
            WrongState: the state is from a trainer with other parts.
        """
        parts = self._stateful()
        if differing := sorted(parts.keys() ^ (state_dict.keys() - {"state"})):
            expected, found = sorted([*parts, "state"]), sorted(state_dict)
            raise WrongState(
                f"The state is from a trainer with other parts: {', '.join(differing)}. Expected: "
                f"{expected}. Found: {found}.",
                key=differing[0],
                expected=expected,
                found=found,
                advice="Register the same modules.",
            )
        for name, part in parts.items():
            part.load_state_dict(state_dict[name])
        state = state_dict["state"]
        self.collected_frames = self._saved_at = state["collected_frames"]
        self.num_optim_steps = state["optim_steps"]
        self.history = {name: list(values) for name, values in state["history"].items()}

    def _learn_from(self, collected: TensorDict) -> int:
        """Process one collected batch, learn from it, and return its frames."""
        points = self._points
        batch = points.apply("batch_process", collected)
        frames = _num_steps(batch) * self.frame_skip
        self.collected_frames += frames
        self._log("pre_steps_log", batch)
        if self.collected_frames >= (getattr(self.collector, "init_random_frames", None) or 0):
            self.optim_steps(batch)
        for function in points.functions("post_steps"):
            function()
        self._log("post_steps_log", batch)
        return frames

    def _step(self, batch: TensorDict) -> TensorDict:
        """Take one optimisation step, and return its losses, detached."""
        points = self._points
        sample = points.apply("process_optim_batch", batch)
        losses = self.loss_module(sample)
        points.apply("post_loss", sample)
        for function in points.functions("process_loss"):
            changed = function(sample, losses)
            losses = losses if changed is None else changed
        for number, function in enumerate(points.functions("optimizer")):
            changed = function(losses, self.clip_grad_norm, self.clip_norm, number)
            losses = losses if changed is None else changed
        self.num_optim_steps += 1
        for function in points.functions("post_optim"):
            function()
        self._log("post_optim_log", sample)
        detached: TensorDict = losses.detach()
        return detached

    def _log(self, point: str, batch: TensorDict) -> None:
        for function in self._points.functions(point):
            self._record(function(batch) or {})

    def _record(self, values: Mapping[str, Any]) -> None:
        frames = self.collected_frames
        for name, value in values.items():
            self.history.setdefault(name, []).append((frames, float(value)))
            if (
                self.logger is not None
                and frames - self._logged_at.get(name, 0) > self.log_interval
            ):
                self._logged_at[name] = frames
                self.logger.log_scalar(name, float(value), step=frames)

    def _check_optimiser(self) -> None:
        if not self._points.functions("optimizer"):
            raise UsageError(
                "The Trainer has no optimizer.",
                argument="optimizer",
                advice='Pass optimizer=, or register a function at the point "optimizer".',
            )

    def _stateful(self) -> dict[str, Stateful]:
        """Return the parts that have a state, by name."""
        parts = {name: getattr(self, name) for name in STATEFUL_PARTS}
        stateful = {name: part for name, part in parts.items() if hasattr(part, "state_dict")}
        return {**stateful, **self._modules}

    def _seed(self, seed: int) -> None:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        set_seed = getattr(self.collector, "set_seed", None)
        if set_seed is not None:
            set_seed(seed)


def _num_steps(batch: TensorDict) -> int:
    """Return the number of steps in a batch, without padding."""
    if MASK in batch.keys(include_nested=True):
        return int(batch[MASK].sum())
    return int(batch.numel())
