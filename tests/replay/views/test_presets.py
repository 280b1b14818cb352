"""View presets leave the rows that a slow walk over the trajectories leaves, in both layouts."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli import ExperienceReplay, ReplayBuffer, SliceSampler, declared_datasets
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import UnknownKey, UnverifiedDataset, UsageError, WrongRows
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.replay.queries import views as presets
from tests.support import maze_files
from tests.support.d4rl_cuts import CUTS, columns
from tests.support.refusals import refused
from tests.support.text_rows import ID, write

Runs = list[list[int]]


def opened(trajectories: list[dict[str, Any]], layout: str, root: Path) -> ExperienceReplay:
    """Install trajectories of steps, and open them."""
    joined = {name: [v for each in trajectories for v in each[name]] for name in trajectories[0]}
    states = np.array(joined["state"], np.float32).reshape(-1, 1)
    steps = {
        ("observation",): states[:, :1],
        ("next", "observation"): states + np.array(joined["moved"], np.float32).reshape(-1, 1),
        ("action",): np.array(joined["action"]),
        ("next", "info", "success"): np.array(joined["success"]),
        ("next", "reward"): np.arange(len(states)) / 2,
        ("next", "terminated"): np.array(joined["terminated"]),
        ("next", "truncated"): np.array(joined["truncated"]),
    }
    folder = write(root / "staging", layout, steps)
    (root / "datasets" / ID).parent.mkdir(parents=True, exist_ok=True)
    shutil.move(folder, root / "datasets" / ID)
    return ExperienceReplay(ID, 6, root=root, download=False, seed=0)


def runs_in(view: ExperienceReplay) -> Runs:
    """Return the rows of the dataset that a view has, trajectory by trajectory."""
    rows = view[:]["next", "reward"].flatten().mul(2).long()
    return [part.tolist() for part in rows.split(view.trajectories["length"].tolist())]


@st.composite
def steps(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return trajectories, each of which ends by a terminal, or is cut off."""
    made = []
    for length in draw(st.lists(st.sampled_from([1, 1, 2, 5, 9]), min_size=1, max_size=9)):
        end, last = draw(st.booleans()), [False] * (length - 1)
        some = st.lists(st.sampled_from([0, 0, 1]), min_size=length, max_size=length)
        made.append(
            {
                "state": draw(some),
                "moved": draw(some),
                "action": draw(some),
                "success": [each == 1 for each in draw(some)],
                "terminated": [*last, end],
                "truncated": [*last, not end],
            }
        )
    return made


def left_by_walking(text: str, trajectories: list[dict[str, Any]]) -> Runs:
    """Return what a preset leaves, worked out step by step."""
    left: Runs = []
    row, was_success = 0, False
    for each in trajectories:
        rows = [*range(row, row + len(each["state"]))]
        row = rows[-1] + 1
        if text.startswith("first-success"):
            flags = each["success" if "flag" in text else "terminated"]
            stop = flags.index(True) + 1 if True in flags else len(flags)
            left.append([] if was_success and flags[0] else rows[:stop])
            was_success = flags[-1]
        elif text.startswith("no-timeouts"):
            is_cut = each["truncated"][-1] and not each["terminated"][-1]
            left.append([] if is_cut and "whole" in text else rows[:-1] if is_cut else rows)
        else:
            actions, least = each["action"], 3 if "length=3" in text else 1
            still = [moved == 0 for moved in each["moved"]]
            if "action" in text:
                still = [False, *(now == before for before, now in pairwise(actions))]
            left.append([])
            for is_still, pairs in groupby(zip(still, rows, strict=True), lambda pair: pair[0]):
                some = [number for _, number in pairs]
                if is_still and len(some) >= least:
                    left.append([])
                else:
                    left[-1] += some
    return [run for run in left if run]


PRESETS = (
    "first-success",
    "first-success:flag=next.info.success",
    "no-timeouts",
    "no-timeouts:whole=1",
    "no-idle",
    "no-idle:epsilon=0.5,length=3",
    "no-idle:of=action",
    "no-idle:length=3,of=action",
)


@settings(max_examples=8)
@given(
    layout=st.sampled_from(["ted", "compact"]),
    trajectories=steps(),
    block=st.sampled_from([1, 3, 100]),
)
def test_presets_leave_what_a_walk_over_all_steps_leaves(
    layout: str, trajectories: list[dict[str, Any]], block: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        replay = opened(trajectories, layout, Path(folder))
        patch.setattr(presets, "BLOCK_ROWS", block)
        for text in PRESETS:
            expected = left_by_walking(text, trajectories)
            try:
                assert runs_in(replay.filter(text)) == expected, text
            except UsageError:  # there is nothing that it could leave out
                flag = "success" if "flag" in text else ENDS[text.partition(":")[0]]
                is_single = all(len(each["state"]) == 1 for each in trajectories)
                assert is_single or not any(any(each[flag]) for each in trajectories)


ENDS = {"first-success": "terminated", "no-timeouts": "truncated"}

# real files, whose rows are told by numpy and h5py alone


def installed(cut: str, layout: str, root: Path) -> str:
    """Convert a real piece of a published file."""
    source = str(CUTS[cut].lay_out(root / "source"))
    options = InstallOptions(accept_any=True, source=source, layout=layout)
    install_dataset(f"d4rl/{CUTS[cut].name}", Config(root), options)
    return f"d4rl/{CUTS[cut].name}"


def check_steps(view: ExperienceReplay, cut: str, steps: np.ndarray) -> None:
    """Check that a view has these steps of the file of a cut, and no others."""
    file, batch = columns(cut), view[:]
    assert np.array_equal(batch["observation"].numpy(), file["observations"][steps])
    assert np.array_equal(batch["action"].numpy(), file["actions"][steps])
    assert np.array_equal(batch["info", "goal"].numpy(), file["infos/goal"][steps])


def test_of_a_run_of_terminals_in_antmaze_only_the_first_is_left(tmp_path: Path) -> None:
    cut = "antmaze-medium-diverse-v0"
    id = installed(cut, "ted", tmp_path)
    with pytest.warns(UnverifiedDataset):
        view = ExperienceReplay(id, root=tmp_path, audit="ignore", view="first-success")
    terminals = columns(cut)["terminals"] != 0
    steps = np.flatnonzero(~(terminals & np.append(False, terminals[:-1])))
    assert terminals.sum() == 3 and len(steps) == 65
    check_steps(view, cut, steps)
    assert np.flatnonzero(view[:]["next", "done"].numpy()).tolist() == [64]


def test_steps_before_a_time_limit_and_slow_ones_of_antmaze_are_left_out(tmp_path: Path) -> None:
    cut = "antmaze-umaze-v0"
    id, file = installed(cut, "compact", tmp_path), columns(cut)
    with pytest.warns(UnverifiedDataset):
        replay = ExperienceReplay(id, root=tmp_path)
    # The step of a timeout has no successor and is no row: that before it is the last.
    timeouts = np.flatnonzero(file["timeouts"])
    rows = np.delete(np.arange(len(file["timeouts"])), timeouts)
    check_steps(replay.filter("no-timeouts"), cut, np.setdiff1d(rows, timeouts - 1))
    assert len(replay.filter("no-timeouts:whole=1")) == 0
    moved = np.diff(file["observations"].astype(np.float64), axis=0)
    is_slow = np.linalg.norm(moved, axis=1)[rows] <= 0.1
    slow = np.split(rows[is_slow], np.flatnonzero(np.diff(rows[is_slow]) > 1) + 1)
    long = np.concatenate([run for run in slow if len(run) >= 3])
    view = replay.filter("no-idle:epsilon=0.1,length=3")
    assert 0 < len(long) < is_slow.sum()
    check_steps(view, cut, np.setdiff1d(rows, long))


def test_an_agent_in_a_maze_stops_at_its_first_success(tmp_path: Path) -> None:
    source = maze_files.unpack("open", tmp_path / "source")
    id = maze_files.install(source, Config(tmp_path), "ted")
    replay = ExperienceReplay(id, root=tmp_path, view="first-success:flag=next.info.success")
    with h5py.File(source / "main_data.hdf5") as file:
        rewards = [file[f"episode_{number}"]["rewards"][:] for number in range(len(file))]
        actions = [file[f"episode_{number}"]["actions"][:] for number in range(len(file))]
    stops = [int(np.flatnonzero(each)[0]) + 1 for each in rewards]
    assert replay.trajectories["length"].tolist() == stops
    expected = np.concatenate([each[:stop] for each, stop in zip(actions, stops, strict=True)])
    assert np.array_equal(replay[:]["action"].numpy(), expected)


# what a preset is


STEPS = [
    {
        "state": [0, 1, 2, 3, 4, 5],
        "moved": [1, 0, 0, 0.1, 1, 1],
        "action": [0, 0, 1, 1, 2, 2],
        "success": [False] * 6,
        "terminated": [False] * 6,
        "truncated": [False] * 5 + [True],
    }
]


@pytest.fixture
def replay(tmp_path: Path) -> ExperienceReplay:
    return opened(STEPS, "ted", tmp_path)


def digest_of(view: ExperienceReplay) -> str:
    assert view.storage.dataset.selection is not None
    return view.storage.dataset.selection.digest


def test_the_arguments_of_a_preset_stand_in_the_digest_of_its_view(
    replay: ExperienceReplay,
) -> None:
    asked = ["no-idle", "no-idle:epsilon=0.0", "no-idle:epsilon=0.05", "no-idle:length=2,epsilon=0"]
    views = [replay.filter(text) for text in asked]
    assert all(runs_in(view) == [[0], [3, 4, 5]] for view in views)
    first, same, wider, longer = map(digest_of, views)
    assert first == same and len({first, wider, longer}) == 3
    assert digest_of(pickle.loads(pickle.dumps(views[2]))) == wider


def test_slices_do_not_run_on_where_steps_were_left_out(replay: ExperienceReplay) -> None:
    view = replay.filter("no-idle")
    sampler = SliceSampler(slice_len=2)
    buffer = ReplayBuffer(storage=view.storage, sampler=sampler, batch_size=200)
    drawn = buffer.sample()["next", "reward"].mul(2).reshape(-1, 2)
    assert {*map(tuple, drawn.tolist())} == {(3.0, 4.0), (4.0, 5.0)}


def test_what_a_preset_leaves_is_written_with_ends_where_it_cuts(
    replay: ExperienceReplay, config: Config, tmp_path: Path
) -> None:
    view = replay.filter("no-idle")
    written = view.preprocess(lambda batch: batch, dest=tmp_path / "new", num_workers=0)
    rows = written.get(torch.arange(len(written)))
    assert rows["next", "reward"].flatten().mul(2).tolist() == [0, 3, 4, 5]
    assert rows["next", "truncated"].flatten().tolist() == [True, False, False, True]


def test_preprocess_and_declared_data_take_presets(
    replay: ExperienceReplay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = '[data.{}]\ndataset = "{}"\nviews = [{{ filter = "no-idle:epsilon={}" }}]\n'
    texts = [table.format(name, ID, epsilon) for name, epsilon in (("x", 0), ("y", 0.05))]
    Path("rlds.toml").write_text("".join(texts))
    one, other = declared_datasets(root=tmp_path)
    assert one.num_transitions == other.num_transitions == 4 and one.digest != other.digest
    call = ["--root", str(tmp_path), "preprocess", ID, "--name", "new", "--cast", "float32"]
    assert main([*call, "--where", "no-idle:epsilon=0.05"]) == 0
    assert len(ExperienceReplay("derived/new", root=tmp_path)) == 4


IDLE = ["epsilon", "length", "of"]


@pytest.mark.parametrize(
    ("text", "error", "attributes"),
    [
        ("first-sucess", UsageError, {"advice": "Did you mean first-success?"}),
        ("no-timeout:whole=1", UsageError, {"advice": "Did you mean no-timeouts?"}),
        ("no-idle:epsilon", UsageError, {"expected": IDLE, "found": "epsilon"}),
        ("no-idle:epsilon=nan", UsageError, {"expected": IDLE, "found": "epsilon=nan"}),
        ("no-idle:length=0", UsageError, {"expected": IDLE, "found": "length=0"}),
        ("no-idle:width=3", UsageError, {"expected": IDLE, "found": "width=3"}),
        ("no-timeouts:whole=2", UsageError, {"expected": ["whole"], "found": "whole=2"}),
        ("no-idle:length=2,length=3", UsageError, {"found": "length=2,length=3"}),
        ("first-success:flag=next", UsageError, {"argument": "flag", "expected": "one column"}),
        ("no-idle:of=nothing", UnknownKey, {"id": ID, "key": ("nothing",)}),
        ("first-success", WrongRows, {"id": ID, "key": ("next", "terminated")}),
    ],
)
def test_a_preset_that_does_not_fit_these_rows_is_refused(
    replay: ExperienceReplay, text: str, error: type[UsageError], attributes: dict[str, Any]
) -> None:
    with refused(error, **attributes):
        replay.filter(text)
