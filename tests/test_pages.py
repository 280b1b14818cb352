"""What the pages show is so: Python runs, commands print it, and real files have it."""

from __future__ import annotations

import re
import runpy
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from tensordict import TensorDict

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipes.atari_dqn.catalogue import TRAPS as ATARI_TRAPS
from datasets_cli.recipes.d4rl.traps import TRAPS
from tests.support import executed, maze_files
from tests.support.executed import STAND_INS, Run
from tests.support.paths import DEMO_DATA, PROJECT, TEST_DATA

AT_MOST_NOT_RUN = 10
CHECKS: dict[str, Callable[[Run], None]] = {}
"""What is asked of a page's values once it has run."""


def after(page: str) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Have a function check what a page's blocks left."""

    def keep(check: Callable[[Run], None]) -> Callable[[Run], None]:
        CHECKS[page] = check
        return check

    return keep


@after("README.md")
def readme(run: Run) -> None:
    assert run.names["batch"]["observation"].shape == (256, 39)
    assert run.names["slices"].sample().reshape(-1, 32).batch_size == (8, 32)
    stacks = run.names["frames"].sample()["next", "observation"]
    assert (stacks.shape, str(stacks.dtype)) == ((32, 4, 84, 84), "torch.float32")
    assert 0 <= float(stacks.min()) < float(stacks.max()) <= 1


@after("SKILL.md")
def skill(run: Run) -> None:
    assert run.names["batch"]["observation"].shape == (256, 39)
    assert type(run.names["arrays"]["action"]) is np.ndarray
    assert run.names["slices"].shape == (8, 32)


@after("docs/collectors.md")
def collectors(run: Run) -> None:
    slices, rollout = run.names["slices"], run.names["rollout"]
    joined = slices["next", "observation"][:, :-1] == slices["observation"][:, 1:]
    assert bool(joined.all()) and run.names["batch"].shape == (4, 50)
    assert len(rollout) <= 50 and not rollout["next", "done"][:-1].any()


@after("docs/coming-from.md")
def coming_from(run: Run) -> None:
    names = run.names
    d4rl, d3rlpy = (
        block.recorded for block in executed.blocks("docs/coming-from.md") if block.recorded
    )
    assert d4rl in run.output and d3rlpy in run.output, "ours print the same"
    assert run.after[0]["timeouts"].nonzero()[0].tolist() == [909]  # the step after it is left out
    assert names["drawn"]["next"]["reward"].shape == (4, 1)
    assert run.after[2]["batch"]["observation"].shape == (256, 11)
    assert names["slices"].batch_size == (8, 32)
    assert len(names["small"]) == len(names["data"]) == 911
    theirs = next(each for each in run.after if "scores" in each)["scores"]
    assert names["scores"].tobytes() == theirs.tobytes()  # of ours, and of Minari before it


@after("docs/declarations.md")
def declarations(run: Run) -> None:
    assert run.names["buffer"].sample().shape == (256,) and len(run.names["digest"]) == 64


@after("docs/goals.md")
def goals(run: Run) -> None:
    batch = run.names["batch"]
    assert batch["relabelled"].shape == (256, 1) and run.names["goals"].shape == (256, 2)
    assert set(batch["next", "reward"].flatten().tolist()) == {0.0, 1.0}


@after("docs/mixtures.md")
def mixtures(run: Run) -> None:
    assert run.names["batch"]["member"].unique().tolist() == [0, 1]
    assert run.names["slices"].sample()["index"].reshape(-1, 32).diff().eq(1).all()
    assert run.names["everything"].sampler.draw.num_replicas == 3


@after("docs/numpy-and-jax.md")
def numpy_and_jax(run: Run) -> None:
    numpy, loop, device, corl, flashbax = run.after
    assert all(type(numpy["batch"][name]) is np.ndarray for name in ("observation", "index"))
    assert isinstance(numpy["tensordict"], TensorDict)
    assert 0 < float(loop["value"]) < 1
    assert device["losses"].shape == (1_000,) and device["losses"][-1] < device["losses"][0]
    assert corl["states"].shape == (256, 11) and corl["dones"].dtype == np.float32
    assert set(np.asarray(flashbax["batch"]["index"]).tolist()) <= {*range(100)}


@after("docs/offline-to-online.md")
def offline_to_online(run: Run) -> None:
    names = run.names
    assert int(names["is_offline"].sum()) == 128 and len(names["online"]) == 100
    assert len(names["earlier"]) == 100 and names["batch"].shape == (256,)


@after("docs/page.md")
def page(run: Run) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=.{43}\n", run.output)


@after("docs/preprocess.md")
def preprocess(run: Run) -> None:
    assert ("next", "cost") in run.names["storage"].dataset.keys
    assert len(datasets_cli.open_dataset("derived/normal")) == 911


@after("docs/python.md")
def python(run: Run) -> None:
    assert "derived/halved 500" in run.output and "expert-v2 is not installed" in run.output
    assert "d4rl/walker2d-random-v2" in run.output, "a download fails without a network"
    assert "recorded/cartpole-random 100" in run.output


@after("docs/replay.md")
def replay(run: Run) -> None:
    assert len(run.names["buffer"]) == 911 and run.names["batch"].shape[0] <= 256
    assert run.names["last"].shape == (441,) and len(run.names["two"]) == 2


@after("docs/sequences.md")
def sequences(run: Run) -> None:
    batch = run.names["batch"]
    assert batch.shape == (64, 20) and batch["returns_to_go"].shape == (64, 20, 1)
    assert sum(len(batch) for batch in run.names["epoch"]) == 911
    padded = [run.names["arrays"].sample() for _ in range(3)][-1]
    assert (padded["action"][~padded["attention_mask"]] == -10).all()


@after("docs/specs.md")
def specs(run: Run) -> None:
    first, names = executed.blocks("docs/specs.md")[0].code, run.after[0]
    assert names["batch"].batch_size == (32,) and names["four"].shape == (4,)
    for line in re.findall(r"^spec.*# tensor.*", first, re.MULTILINE):
        code, _, said = line.partition("  # ")
        assert repr(eval(code, names)) == said.partition(";")[0]


@after("docs/views.md")
def views(run: Run) -> None:
    names = run.names
    parts = len(names["training"]) + len(names["test"])
    assert parts == len(names["good"]) > len(names["training"])
    assert (
        names["view"].trajectories["number"].tolist()
        == names["good"].trajectories["number"].tolist()
    )


@pytest.fixture(scope="session")
def root_of_pages(
    root_with_hopper: Path, root_with_door: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A cache root with all that the pages' ids stand for, to be copied."""
    root = tmp_path_factory.mktemp("pages")
    for made in (root_with_hopper, root_with_door):
        shutil.copytree(made, root, dirs_exist_ok=True)
    assert main(["--root", str(root), "download", "demo/*", "-q", "--yes"]) == 0
    folder = DEMO_DATA / "minari" / "D4RL" / "door" / "human-v2" / "data"
    door = InstallOptions(source=str(folder), accept_any=True)
    install_dataset("minari/D4RL/door/human-v2", Config(root), door)
    ant = InstallOptions(source=str(TEST_DATA / "d4rl" / "cuts"), accept_any=True)
    install_dataset("d4rl/ant-medium-v0", Config(root), ant)
    glucose = InstallOptions(source=str(TEST_DATA / "neorl2"), accept_any=True)
    install_dataset("neorl2/Simglucose", Config(root), glucose)
    lift = TEST_DATA / "robomimic" / "lift_low_dim.hdf5"
    demonstrations = InstallOptions(source=str(lift), accept_any=True)
    install_dataset("robomimic/lift/ph/low_dim", Config(root), demonstrations)
    maze = InstallOptions(source=str(TEST_DATA / "ogbench"), accept_any=True)
    for view in ("singletask-task1", "oraclerep"):
        install_dataset(f"ogbench/pointmaze-medium-navigate-{view}-v0", Config(root), maze)
    maze_files.install(maze_files.unpack("open", root.with_suffix(".maze")), Config(root))
    return root


@pytest.mark.filterwarnings("ignore:Creating .*Updater:DeprecationWarning")  # TorchRL's
@pytest.mark.parametrize("page", executed.pages())
def test_a_page_shows_what_is_so(
    page: str, config: Config, root_of_pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page not in ("README.md", "SKILL.md"):  # these begin on a machine that has nothing
        shutil.copytree(root_of_pages, config.root, dirs_exist_ok=True)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("RLDS_OFFLINE", "1")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(DEMO_DATA / "minari"))
    torch.manual_seed(0)  # a loss falls for most seeds, and a page may say that it does
    run = Run(STAND_INS)
    run.all(executed.blocks(page))
    if page in CHECKS:
        CHECKS[page](run)


def test_a_snippet_that_is_wrong_fails_and_is_named_with_its_page(
    hopper: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (PROJECT / "docs" / "views.md").read_text(encoding="utf-8")
    broken = executed.blocks("docs/views.md", text.replace("replay.take(", "replay.tke("))
    with pytest.raises(AttributeError, match="tke") as raised:
        Run().all(broken)
    frame = raised.traceback[-1]
    assert str(frame.frame.code.raw.co_filename) == "<docs/views.md>"
    assert "replay.take(" in text.splitlines()[frame.lineno]


@pytest.mark.parametrize(
    ("shown", "is_so"),
    [
        ("derived/normal  911  /root/x  3.5 kB\nNot installed.\n", True),
        ("...\nNot installed.\n", True),
        ("derived/normal  910  /root/x  3.5 kB\nNot installed.\n", False),
        ("derived/normal  911  /root/x  3.5 kB\n", False),
        ("derived/normal  911  /root/x\nNot installed.\n", False),
    ],
)
def test_output_is_compared_but_for_what_differs_between_machines(shown: str, is_so: bool) -> None:
    printed = "derived/normal   911   /tmp/elsewhere/y  412.0 MB\nNot installed.\n"
    assert executed.alike(printed, shown) == is_so


def test_output_of_a_command_that_is_wrong_fails_and_is_named_with_its_page() -> None:
    block = executed.blocks("docs/x.md", "```console\n$ rlds --version\nrlds 0.0.0\n```\n")
    with pytest.raises(AssertionError, match=r"docs/x\.md:2: \$ rlds --version"):
        Run().all(block)


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    left_out = [block for page in executed.pages() for block in executed.blocks(page)]
    left_out = [block for block in left_out if block.reason]
    for block in left_out:
        print(f"{block.page}:{block.line}: {block.reason}")
    assert len(left_out) <= AT_MOST_NOT_RUN


CUTS = TEST_DATA / "d4rl" / "cuts"
FAMILIES = PROJECT / "docs" / "families"


@pytest.mark.parametrize(
    ("name", "timeouts", "jumps"),
    [("antmaze-large-play-v0", [998, 1997], [1000]), ("antmaze-umaze-v0", [700, 1401], [700])],
)
def test_timeouts_of_antmaze_are_in_the_rows_that_the_page_names(
    name: str, timeouts: list[int], jumps: list[int]
) -> None:
    with h5py.File(CUTS / f"{name}.hdf5") as file:
        steps = np.linalg.norm(np.diff(file["observations"][:, :2], axis=0), axis=1)
        assert np.flatnonzero(file["timeouts"]).tolist() == timeouts
    assert np.flatnonzero(steps > 1).tolist() == jumps
    page = (FAMILIES / "d4rl.md").read_text(encoding="utf-8")
    section = page.partition("## Timeouts of antmaze")[2].partition("\n## ")[0]
    assert f"`{name}`" in section and all(str(row) in section for row in [*timeouts, *jumps])


def test_terminals_of_antmaze_come_in_the_run_that_the_page_names() -> None:
    with h5py.File(CUTS / "antmaze-medium-diverse-v0.hdf5") as file:
        assert np.flatnonzero(file["terminals"]).tolist() == [64, 65, 66]


def test_the_pages_have_every_trap_and_its_source() -> None:
    page = (FAMILIES / "d4rl.md").read_text(encoding="utf-8")
    issues = set(re.findall(r"issue \d+", " ".join(trap.text for trap in TRAPS)))
    assert len(issues) > 8 and {issue for issue in issues if issue not in page} == set()
    atari = (FAMILIES / "atari_dqn.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in atari for name in ATARI_TRAPS)


def test_the_drawings_of_concepts_are_what_their_script_draws_with_text_to_select() -> None:
    page = (PROJECT / "docs" / "concepts.md").read_text(encoding="utf-8")
    for name, draw in runpy.run_path(str(PROJECT / "scripts" / "drawings"))["DRAWINGS"].items():
        kept = Path(PROJECT / "docs" / f"{name}.svg").read_text(encoding="utf-8")
        assert kept == str(draw()) and f"]({name}.svg)" in page, "run scripts/drawings"
        assert len(kept) <= 30_000 and "@media (prefers-color-scheme: dark)" in kept
        tags = [element.tag.partition("}")[2] for element in ElementTree.fromstring(kept).iter()]
        assert tags.count("text") > 15 and {"title", "desc"} < set(tags)
        assert "image" not in tags and "script" not in tags
