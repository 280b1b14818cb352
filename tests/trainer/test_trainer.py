"""The trainer and its parts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    LazyTensorStorage,
    OfflineToOnline,
    PrioritizedSampler,
    ReplayBuffer,
    ReplayBufferTrainer,
    TensorDictReplayBuffer,
    Trainer,
    UsageError,
)
from datasets_cli.errors import Unsupported, WrongSize, WrongState
from datasets_cli.trainer.trainer import POINTS, OptimiserStep
from tests.support.refusals import refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.trainers import trainers


class Squares(torch.nn.Module):
    """Learns ``y`` of ``x``, and writes the error of each row into the sample."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 1)
        torch.nn.init.constant_(self.linear.weight, 0.1)
        torch.nn.init.constant_(self.linear.bias, 0.0)

    def forward(self, batch: TensorDict) -> TensorDict:
        error = (self.linear(batch["x"]) - batch["y"]).square()
        batch["td_error"] = error.detach().squeeze(-1)
        return TensorDict({"loss_squares": error.mean()}, [])


class Collector:
    """Batches of ten rows, the same for the same seed; it can continue where it was."""

    def __init__(self, num_batches: int = 6) -> None:
        self.num_batches, self.given, self.is_shut = num_batches, 0, False

    def __iter__(self) -> Iterator[TensorDict]:
        while self.given < self.num_batches:
            x = torch.randn(10, 3, generator=torch.Generator().manual_seed(self.given))
            self.given += 1
            yield TensorDict({"x": x, "y": x.sum(-1, keepdim=True)}, [10])

    def shutdown(self) -> None:
        self.is_shut = True

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = state["given"]


def buffer(prioritised: bool = False) -> TensorDictReplayBuffer:
    sampler = PrioritizedSampler(100, 0.7, 0.5) if prioritised else None
    return TensorDictReplayBuffer(
        storage=LazyTensorStorage(100),
        sampler=sampler,
        batch_size=4,
        generator=torch.Generator().manual_seed(0),
    )


def trainer(collector: Any = None, **options: Any) -> tuple[Trainer, Squares]:
    loss = Squares()
    optimizer = torch.optim.Adam(loss.parameters(), 0.05)
    arguments = {"total_frames": 60, "optim_steps_per_batch": 3, "progress_bar": False, **options}
    return (
        Trainer(
            collector=collector or Collector(), loss_module=loss, optimizer=optimizer, **arguments
        ),
        loss,
    )


def weights(loss: Squares) -> list[float]:
    return [value for part in loss.parameters() for value in part.flatten().tolist()]


def test_without_total_frames_training_ends_with_the_collector() -> None:
    made, _ = trainer(total_frames=None, frame_skip=None)
    made.train()
    assert (made.collected_frames, made.num_optim_steps) == (60, 18)


@pytest.mark.filterwarnings("ignore:OptimizerHook:FutureWarning")
@pytest.mark.parametrize("name", ["loss", "loss_squares", "lossless"])
def test_the_losses_that_train_are_those_that_torchrl_minimises(name: str) -> None:
    found = []
    for kind in (OptimiserStep, trainers.OptimizerHook):
        loss = Squares()
        step = kind(torch.optim.SGD(loss.parameters(), 0.1))
        error = loss(TensorDict({"x": torch.ones(2, 3), "y": torch.ones(2, 1)}, [2]))
        step(TensorDict({name: error["loss_squares"]}, []), True, None, 0)
        found.append(weights(loss))
    assert found[0] == found[1] != weights(Squares())


@pytest.mark.parametrize("clip", [(True, None), (True, 0.1), (False, 0.01)])
def test_training_is_the_loop_written_by_hand(clip: tuple[bool, float | None]) -> None:
    made, learned = trainer(clip_grad_norm=clip[0], clip_norm=clip[1])
    ReplayBufferTrainer(buffer()).register(made)
    made.train()

    wanted, rows = Squares(), buffer()
    optimizer = torch.optim.Adam(wanted.parameters(), 0.05)
    for batch in Collector():
        rows.extend(batch)
        for _ in range(3):
            loss = wanted(rows.sample())["loss_squares"]
            optimizer.zero_grad()
            loss.backward()
            if clip[1] is not None and clip[0]:
                torch.nn.utils.clip_grad_norm_(wanted.parameters(), clip[1])
            elif clip[1] is not None:
                torch.nn.utils.clip_grad_value_(wanted.parameters(), clip[1])
            optimizer.step()
    assert weights(learned) == weights(wanted)
    assert (made.collected_frames, made.num_optim_steps) == (60, 18)
    assert made.collector.is_shut  # type: ignore[attr-defined]


def test_the_three_lines_of_the_page_do_what_register_does() -> None:
    found = []
    for by_lines in (False, True):
        made, loss = trainer()
        rb_trainer = ReplayBufferTrainer(replay_buffer=buffer(), batch_size=5)
        if by_lines:
            made.register_op("batch_process", rb_trainer.extend)
            made.register_op("process_optim_batch", rb_trainer.sample)
            made.register_op("post_loss", rb_trainer.update_priority)
        else:
            rb_trainer.register(made)
        made.train()
        found.append(weights(loss))
    assert found[0] == found[1]


def test_every_point_is_reached_in_the_order_of_the_page() -> None:
    made, _ = trainer(total_frames=10, optim_steps_per_batch=2)
    reached: list[str] = []
    for point in POINTS:
        made.register_op(point, lambda *_, name: reached.append(name), name=point)
    made.train()
    step = ["process_optim_batch", "post_loss", "process_loss", "optimizer", "post_optim"]
    step.append("post_optim_log")
    wanted = ["batch_process", "pre_steps_log", "pre_optim_steps", "pre_epoch", *step, *step]
    assert reached == [*wanted, "post_epoch", "post_steps", "post_steps_log"]


def test_history_has_the_values_of_log_points_with_their_frames() -> None:
    made, _ = trainer(total_frames=20)
    made.register_op("pre_steps_log", lambda batch: {"rows": len(batch)})
    made.train()
    assert made.history["rows"] == [(10, 10.0), (20, 10.0)]
    assert [frames for frames, _ in made.history["loss_squares"]] == [10, 20]
    assert made.history["grad_norm"][0][1] > 0


def test_priorities_follow_the_errors_of_the_last_sample() -> None:
    rows = buffer(prioritised=True)
    made, _ = trainer(total_frames=10, optim_steps_per_batch=1)
    ReplayBufferTrainer(rows).register(made)
    samples: list[TensorDict] = []
    made.register_op("post_loss", samples.append)
    made.train()
    first = {int(i): float(e) for i, e in zip(samples[0]["index"], samples[0]["td_error"])}  # noqa: B905
    again = rows.sample(200)
    untouched = max(first.values()) + 1
    seen = dict(zip(again["index"].tolist(), again["priority_weight"].tolist(), strict=True))
    by_error = sorted((error for i, error in first.items() if i in seen))
    by_weight = sorted((i for i in first if i in seen), key=lambda i: -seen[i])
    assert untouched and [first[i] for i in by_weight] == pytest.approx(by_error)


def test_a_run_that_was_saved_and_loaded_ends_as_one_run(tmp_path: Path) -> None:
    whole, wanted = trainer()
    ReplayBufferTrainer(buffer()).register(whole)
    whole.train()
    half, _ = trainer(total_frames=30, save_trainer_file=tmp_path / "state.pt")
    ReplayBufferTrainer(buffer()).register(half)
    half.train()
    rest, learned = trainer()
    ReplayBufferTrainer(buffer()).register(rest)
    rest.load_from_file(tmp_path / "state.pt").train()
    assert weights(learned) == weights(wanted)
    assert rest.history == whole.history


def test_a_state_of_other_modules_is_refused(tmp_path: Path) -> None:
    made, _ = trainer(save_trainer_file=tmp_path / "state.pt")
    made.save_trainer()
    other, _ = trainer()
    ReplayBufferTrainer(buffer()).register(other)
    with refused(WrongState, key="replay_buffer"):
        other.load_from_file(tmp_path / "state.pt")


def test_learning_begins_after_the_random_frames() -> None:
    collector = Collector()
    collector.init_random_frames = 30  # type: ignore[attr-defined]
    made, _ = trainer(collector)
    made.train()
    assert made.num_optim_steps == 3 * 4  # after batches 3, 4, 5, 6


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> list[float]:
        made, _ = trainer(seed=seed, total_frames=10)
        made.train()
        return torch.rand(3).tolist()

    assert run(1) == run(1) != run(2)


@pytest.mark.parametrize(
    ("point", "advice"), [("post_los", "Did you mean post_loss?"), ("x", None)]
)
def test_an_unknown_point_is_refused(point: str, advice: str | None) -> None:
    with refused(UsageError, argument="dest", expected=POINTS, found=point, advice=advice):
        trainer()[0].register_op(point, print)
    with refused(UsageError, argument="op", found="int"):
        trainer()[0].register_op("post_loss", 3)  # type: ignore[arg-type]


def test_a_loop_without_an_optimiser_is_refused() -> None:
    made = Trainer(
        collector=Collector(),
        total_frames=10,
        optim_steps_per_batch=1,
        loss_module=Squares(),
        progress_bar=False,
    )
    with refused(UsageError, argument="optimizer"):
        made.train()


def test_losses_without_a_loss_are_refused() -> None:
    made, _ = trainer()
    made.loss_module = lambda batch: TensorDict({"squares": torch.zeros(())}, [])
    with refused(UsageError, argument="loss_module", found=["squares"]):
        made.train()


def test_a_logger_gets_the_history_at_intervals() -> None:
    class Shown(list[Any]):
        def log_scalar(self, name: str, value: float, step: int | None = None) -> None:
            self.append((name, step, value))

    shown = Shown()
    loop, _ = trainer(logger=shown, log_interval=15)
    loop.train()
    values = dict(loop.history["loss_squares"])
    steps = [(step, value) for name, step, value in shown if name == "loss_squares"]
    assert steps == [(step, values[step]) for step in (20, 40, 60)]


@pytest.mark.parametrize("name", ["log_interval", "total_frames", "num_epochs"])
def test_numbers_below_1_are_refused(name: str) -> None:
    with refused(UsageError, argument=name, found=0):
        trainer(**{name: 0})


def test_the_name_of_a_module_is_unique() -> None:
    loop, _ = trainer()
    with refused(UsageError, argument="module_name", found="optimizer"):
        loop.register_module("optimizer", ReplayBufferTrainer(buffer()))


# A replay buffer in a training loop: flattened, padded, moved, refused.


def trajectories() -> TensorDict:
    """Two rows of three steps; the second one ends by itself."""
    done = torch.tensor([[0, 0, 0], [0, 0, 1]], dtype=torch.bool)[..., None]
    flags = {"done": done, "terminated": done, "truncated": torch.zeros_like(done)}
    return TensorDict({"x": torch.arange(6.0).view(2, 3), "next": flags}, [2, 3])


def made(**options: Any) -> ReplayBufferTrainer:
    return ReplayBufferTrainer(
        TensorDictReplayBuffer(storage=LazyTensorStorage(50)), batch_size=4, **options
    )


def test_flattened_rows_end_as_truncated_unless_they_are_done() -> None:
    batch = trajectories()
    found = made(flatten_tensordicts=True).extend(batch)
    assert found["x"].tolist() == [0, 1, 2, 3, 4, 5]
    assert found["next", "truncated"].flatten().tolist() == [0, 0, 1, 0, 0, 0]
    assert found["next", "done"].flatten().tolist() == [0, 0, 1, 0, 0, 1]
    assert not batch["next", "truncated"].any()  # the caller's batch stays as it is


def test_the_mask_says_which_steps_are_stored() -> None:
    batch = trajectories()
    batch["collector", "mask"] = torch.tensor([[1, 1, 0], [1, 1, 1]], dtype=torch.bool)
    assert made(flatten_tensordicts=True).extend(batch)["x"].tolist() == [0, 1, 3, 4, 5]


def test_a_dataset_and_a_buffer_are_sampled_as_one_and_written_to_the_second() -> None:
    offline, online = (TensorDictReplayBuffer(storage=LazyTensorStorage(9)) for _ in range(2))
    offline.extend(TensorDict({"x": -torch.ones(3)}, [3]))
    both = ReplayBufferTrainer(OfflineToOnline(offline, online, fraction=0.5), batch_size=4)
    both.extend(TensorDict({"x": torch.ones(2)}, [2]))
    assert (len(offline), len(online)) == (3, 2)
    assert both.sample()["x"].tolist() == [-1, -1, 1, 1]
    both.update_priority(both.sample())  # of no effect where neither has priorities


def test_padding_is_marked() -> None:
    padded = made(max_dims=[-1, 5]).extend(trajectories())
    assert padded.shape == (2, 5)
    assert padded["x"].tolist() == [[0, 1, 2, 0, 0], [3, 4, 5, 0, 0]]
    assert padded["collector", "mask"].tolist() == [[True] * 3 + [False] * 2] * 2


def test_without_options_a_batch_is_stored_as_it_is() -> None:
    rb_trainer = made()
    rb_trainer.extend(trajectories())
    assert len(rb_trainer.replay_buffer) == 2
    sampled = rb_trainer.sample(trajectories())
    assert (sampled.shape, sampled.device) == ((4, 3), torch.device("cpu"))


def test_the_state_is_that_of_the_buffer() -> None:
    first, second = made(), made()
    first.extend(trajectories())
    second.load_state_dict(first.state_dict())
    assert second.replay_buffer[:]["x"].tolist() == trajectories()["x"].tolist()


@pytest.mark.parametrize(
    ("options", "error", "argument"),
    [
        ({"memmap": True}, Unsupported, "memmap"),
        ({"flatten_tensordicts": True, "max_dims": [3]}, UsageError, "max_dims"),
    ],
)
def test_options_without_an_effect_are_refused(
    options: dict[str, Any], error: type[UsageError], argument: str
) -> None:
    with refused(error, argument=argument):
        made(**options)


@pytest.mark.parametrize("max_dims", [[5], [1, 5]])
def test_a_batch_that_does_not_fit_is_refused(max_dims: list[int]) -> None:
    with refused(WrongSize, argument="max_dims", expected=(2, 3), found=tuple(max_dims)):
        made(max_dims=max_dims).extend(trajectories())


def test_priorities_of_a_plain_buffer_are_refused() -> None:
    plain = ReplayBuffer(storage=LazyTensorStorage(9), sampler=PrioritizedSampler(9, 0.7, 0.5))
    with refused(Unsupported, argument="replay_buffer", found="ReplayBuffer"):
        ReplayBufferTrainer(plain)
