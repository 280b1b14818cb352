"""The documentation is true: its code runs, and it names every command, option and exit code."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import runpy
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tensordict import TensorDict
from typer.main import get_command

import datasets_cli
from datasets_cli import HindsightStrategy, errors
from datasets_cli.catalogue import registry
from datasets_cli.cli.main import app, main
from datasets_cli.config import Config
from datasets_cli.errors import UsageError
from datasets_cli.install.install import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.manager.verify import verify_installed as verify
from tests.support import maze_files, public_names
from tests.support.paths import DEMO_DATA, PROJECT, TEST_DATA

Capture = pytest.CaptureFixture[str]
COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]


def blocks(document: str, language: str) -> list[str]:
    text = (PROJECT / document).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_section_that_names_its_options(name: str) -> None:
    text = (PROJECT / "docs" / "commands.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## rlds {name}\n")[2].partition("\n## ")[0]
    assert section
    assert f"`rlds {name}" in text.partition("\n## ")[0], "the table of commands"
    options = [option for param in COMMANDS[name].params for option in param.opts]
    for option in options:
        if option.startswith("--") and option != "--help":
            assert option in section, f"{option} is not in docs/commands.md"


def test_every_exit_code_is_documented() -> None:
    text = (PROJECT / "docs" / "commands.md").read_text(encoding="utf-8")
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    for code in {cls.exit_code for cls in classes if issubclass(cls, errors.RldsError)}:
        assert f"\n| {code} |" in text


def test_the_readmes_python_runs_on_the_demo(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids that stand for the published ones are those that the README names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLDS_OFFLINE", "1")
    demos = {"d4rl/hopper-medium-v2": "demo/door-human", "atari_dqn/Pong/5": "demo/pong"}
    text = " ".join((PROJECT / "README.md").read_text(encoding="utf-8").split())
    for published, demo in demos.items():
        assert f"`{demo}` (for `{published}`)" in text
        assert main(["download", demo, "-q"]) == 0
    [sample] = [
        block.replace("d4rl/hopper-medium-v2", "demo/door-human").replace(
            "atari_dqn/Pong/5", "demo/pong"
        )
        for block in blocks("README.md", "python")
    ]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(sample, names)
    assert names["slices"].sample().reshape(-1, 32).batch_size == (8, 32)
    stacks = names["frames"].sample()["next", "observation"]
    assert (stacks.shape, str(stacks.dtype)) == ((32, 4, 84, 84), "torch.float32")
    assert 0 <= float(stacks.min()) < float(stacks.max()) <= 1


def test_the_readme_is_read_in_three_minutes_and_shows_what_a_terminal_does(tmp_path: Path) -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 120
    picture = runpy.run_path(str(PROJECT / "scripts" / "picture"))
    drawn = picture["drawn"](picture["screen"]())
    assert drawn == picture["PICTURE"].read_text(encoding="utf-8"), "run scripts/picture"


def test_the_pictures_of_the_page_on_looking_are_what_their_script_draws(tmp_path: Path) -> None:
    lines = runpy.run_path(str(PROJECT / "scripts" / "pictures"))["draw"](tmp_path / "drawn")
    page = (PROJECT / "docs" / "look.md").read_text(encoding="utf-8")
    assert "\n".join(lines) in page, "run scripts/pictures, and copy what it prints"
    pictures = sorted((tmp_path / "drawn").iterdir())
    for picture in pictures:
        kept = PROJECT / "docs" / picture.name
        assert f"]({picture.name})" in page and kept.stat().st_size < 150_000
        if picture.suffix == ".svg":
            assert kept.read_text() == picture.read_text(), "run scripts/pictures"
        else:
            with Image.open(kept) as old, Image.open(picture) as new:
                assert (np.asarray(old) == np.asarray(new)).all(), "run scripts/pictures"
    assert len(pictures) == 3


def test_the_python_of_the_page_on_preprocessing_runs(
    hopper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [block] = blocks("docs/preprocess.md", "python")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(block.replace("num_workers=4", "num_workers=0"), names)
    assert ("next", "cost") in names["storage"].dataset.keys


def test_the_pages_on_declarations_and_commands_run(
    hopper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mycode.py").write_text("def scale(batch):\n    return batch\n")
    (tmp_path / "rlds.toml").write_text(blocks("docs/declarations.md", "toml")[0])
    names: dict[str, Any] = {"__name__": "__main__"}
    for page in ("docs/declarations.md", "docs/commands.md"):
        for block in blocks(page, "python"):
            exec(block, names)
    assert names["buffer"].sample().shape == (256,) and len(names["digest"]) == 64
    assert len(datasets_cli.open_dataset("derived/normal")) == 911


def test_every_page_with_python_is_run() -> None:
    tests = (PROJECT / "tests").rglob("test_*docs.py")
    run = "".join(path.read_text(encoding="utf-8") for path in tests)
    for page in sorted((PROJECT / "docs").glob("*.md")):
        if page.name != "scaling.md" and blocks(f"docs/{page.name}", "python"):  # it needs clusters
            assert page.name in run, page.name


def test_the_episodes_of_the_page_on_buffers_are_in_the_demo_data_too(
    config: Config,
) -> None:
    assert main(["download", "demo/door-human", "-q"]) == 0
    [episodes] = [each for each in blocks("docs/replay.md", "python") if "sample_episodes" in each]
    names: dict[str, Any] = {}
    exec(episodes.replace("d4rl/hopper-medium-v2", "demo/door-human"), names)
    assert names["last"].shape == (100,) and len(names["two"]) == 2


def test_the_python_of_the_page_on_buffers_runs(hopper: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks("docs/replay.md", "python"):
        exec(block.replace("num_workers=4", "num_workers=0"), names)
    assert len(names["buffer"]) == 911 and names["batch"].shape[0] <= 256


def test_the_python_of_the_page_on_numpy_and_jax_runs(hopper: str) -> None:
    found = []
    for block in blocks("docs/numpy-and-jax.md", "python"):
        found.append({"__name__": "__main__"})
        exec(block, found[-1])
    numpy, loop, device, corl, scan, flashbax = found
    assert all(type(numpy["batch"][name]) is np.ndarray for name in ("observation", "index"))
    assert isinstance(numpy["tensordict"], TensorDict)
    assert 0 < float(loop["value"]) < 1
    assert device["losses"].shape == (1_000,) and device["losses"][-1] < device["losses"][0]
    assert corl["states"].shape == (256, 11) and corl["dones"].dtype == np.float32
    assert scan["losses"].shape == (8,)
    assert set(np.asarray(flashbax["batch"]["index"]).tolist()) <= {*range(100)}


def test_the_python_of_the_page_on_mixtures_runs(hopper: str) -> None:
    names: dict[str, Any] = {}
    for block in blocks("docs/mixtures.md", "python"):
        exec(block.replace("hopper-expert-v2", "hopper-medium-v2"), names)
    assert names["batch"]["member"].unique().tolist() == [0, 1]
    assert names["slices"].sample()["index"].reshape(-1, 32).diff().eq(1).all()
    assert names["everything"].sampler.draw.num_replicas == 3


def test_the_python_of_the_page_on_views_runs(
    hopper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks("docs/views.md", "python"):
        code = block.replace("take(0.1", "take(0.5").replace("split(0.9", "split(0.5")
        exec(code, names)  # of two trajectories
    parts = len(names["training"]) + len(names["test"])
    assert parts == len(names["good"]) > len(names["again"]) == len(names["training"])
    assert (
        names["view"].trajectories["number"].tolist()
        == names["good"].trajectories["number"].tolist()
    )


def test_the_python_of_the_page_on_specs_runs(hopper: str) -> None:
    first, forms = blocks("docs/specs.md", "python")
    names: dict[str, Any] = {}
    exec(first, names)
    assert names["batch"].batch_size == (32,) and names["four"].shape == (4,)
    for line in re.findall(r"^spec.*# tensor.*", first, re.MULTILINE):
        code, _, said = line.partition("  # ")
        assert repr(eval(code, names)) == said.partition(";")[0]
    exec(forms, names)


def test_the_python_of_the_page_on_sequences_runs(hopper: str) -> None:
    first, loop = blocks("docs/sequences.md", "python")
    names: dict[str, Any] = {}
    exec(first, names)
    assert names["batch"].shape == (64, 20) and names["batch"]["returns_to_go"].shape == (64, 20, 1)
    assert sum(len(batch) for batch in names["epoch"]) == 911
    padded = [names["arrays"].sample() for _ in range(3)][-1]
    assert (padded["action"][~padded["attention_mask"]] == -10).all()
    exec(loop, names)
    assert len(names["losses"]) == 3 and np.isfinite(names["losses"]).all()


def test_the_python_of_the_page_on_goals_runs_on_a_recorded_maze(
    config: Config, tmp_path: Path
) -> None:
    maze = maze_files.install(maze_files.unpack("open", tmp_path / "source"), config)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks("docs/goals.md", "python"):
        exec(block.replace("minari/D4RL/pointmaze/umaze-v2", maze), names)
    assert names["batch"]["relabelled"].shape == (256, 1) and names["goals"].shape == (256, 2)
    assert set(names["batch"]["next", "reward"].flatten().tolist()) == {0.0, 1.0}


def test_the_page_on_goals_names_every_strategy() -> None:
    text = (PROJECT / "docs" / "goals.md").read_text(encoding="utf-8")
    assert re.findall(r'^\| `"(\w+)"` \|', text, re.MULTILINE) == list(HindsightStrategy)


def test_the_page_for_those_who_come_from_elsewhere_runs(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our blocks run in their order on an empty root; those of other packages are Python."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLDS_OFFLINE", "1")
    text = (PROJECT / "docs" / "coming-from.md").read_text(encoding="utf-8")
    folders = {
        "~/.d4rl/datasets": f"{TEST_DATA}/d4rl/cuts --no-verify",  # it is no whole published file
        "~/.minari/datasets": str(DEMO_DATA / "minari"),
    }
    for old, new in folders.items():
        assert old in text
        text = text.replace(old, new)
    names: dict[str, Any] = {"__name__": "__main__"}
    ours, theirs, commands = [], [], []
    for block, command in re.findall(r"```python\n(.*?)```|`rlds (.*?)`", text, re.DOTALL):
        if command:
            assert main(shlex.split(command)) == 0, command
            commands.append(command.split()[0])
        elif block.startswith("# there"):
            ast.parse(block)
            theirs.append(block)
        else:
            assert block.startswith("# here")
            exec(block, names)
            ours.append(dict(names))
    assert len(ours) == len(theirs) == text.count("```") // 4 == 6, "blocks come in pairs"
    assert commands == ["download", "list", "download"]
    assert ours[0]["dataset"].keys() == {
        *("observations", "actions", "next_observations", "rewards", "terminals", "timeouts")
    }
    assert [len(array) for array in names["arrays"]] == [len(names["whole"])] * 5 == [910] * 5
    assert names["drawn"]["next"]["reward"].shape == (4, 1)
    assert names["batch"]["observation"].shape == (256, 11)
    assert names["slices"].batch_size == (8, 32)
    assert 0 < names["score"] < 1
    assert len(names["small"]) == len(names["data"]) == 911
    for example in ("import d4rl", "load_d4rl_dataset", "d3rlpy", "import minari", "from torchrl"):
        assert example in "".join(theirs)


def test_the_python_of_the_page_on_the_package_runs(
    hopper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("RLDS_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    everything = blocks("docs/python.md", "python")
    for block in everything:
        exec(block, names)
    output = capsys.readouterr().out
    assert "derived/halved 500" in output and "d4rl/hopper-expert-v2 is not installed" in output
    assert "['derived/halved-again']" in output
    assert "d4rl/walker2d-random-v2" in output, "a download fails without a network"
    assert names["batch"].shape == (256,)
    for verb in public_names.verbs():
        assert f"datasets_cli.{verb}(" in "".join(everything), f"docs/python.md never calls {verb}"


def test_the_recipe_of_the_guide_installs(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = next(
        block for block in blocks("docs/adding-a-dataset.md", "python") if "RECIPE" in block
    )
    (tmp_path / "lunar.py").write_text(code)
    ends = np.array([False, False, True, False, True])
    columns = {"obs": np.arange(10.0).reshape(5, 2), "act": np.arange(5), "rew": np.arange(5.0)}
    np.savez(tmp_path / "easy-v1.npz", **columns, term=np.zeros(5, bool), last=ends)
    package = importlib.import_module("datasets_cli.recipes")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    registry.families.cache_clear()
    try:
        install_dataset(
            "lunar/easy-v1", config, InstallOptions(source=str(tmp_path), accept_any=True)
        )
        assert verify("easy-v1", config).successors["dropped_steps"] == 2
        (tmp_path / "easy-v1.npz").rename(tmp_path / "easy-v1-windy.npz")
        windy = InstallOptions(
            source=str(tmp_path), accept_any=True, options={"wind": "on", "force": "4"}
        )
        with pytest.raises(UsageError, match=r"lunar has no option force\. Expected: wind=off\|on"):
            install_dataset("lunar/easy-v1", config, windy)
        folder = install_dataset(
            "lunar/easy-v1", config, replace(windy, options={"wind": "on"})
        ).path
        assert folder.name == "easy-v1~windy"
    finally:
        registry.families.cache_clear()


def test_the_glossary_has_each_word_once_and_names_what_exists() -> None:
    text = (PROJECT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\*.+?) \| (.+) \| `(.+?)` \|$", text, re.MULTILINE)
    assert len(rows) == text.count("\n| *"), "a row has another form"
    words = [word for row in rows for word in re.findall(r"\*(.+?)\*", row[0])]
    assert len(words) == len(set(words)) and len(words) >= 50
    for _, _, place in rows:
        if place.endswith(".py"):
            assert (PROJECT / "datasets_cli" / place).is_file(), place
            continue
        module, _, name = place.rpartition(".")
        assert isinstance(getattr(importlib.import_module(f"datasets_cli.{module}"), name), type)


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*PROJECT.glob("*.md"), *(PROJECT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"


def modules() -> list[str]:
    packages = [datasets_cli, importlib.import_module("datasets_cli.recipes")]
    return [
        found.name
        for package in packages
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]


WITH_EXAMPLES = {
    *("cli.terminal", "errors", "quantities", "experience.replay"),
    *("store.cache_root", "replay.several.offline_to_online", "replay.several.weights"),
    *("replay.draws.prioritized", "replay.transforms.images", "replay.transforms.scaling"),
    *("replay.transforms.entries", "torchrl.cat_frames"),
}


def test_examples_in_docstrings_are_true(door: str) -> None:
    found = set()
    for name in modules():
        module = importlib.import_module(name)
        num_written = sum(len(test.examples) for test in doctest.DocTestFinder().find(module))
        results = doctest.testmod(module)
        assert (results.failed, results.attempted) == (0, num_written), f"{name}: skipped or wrong"
        if num_written:
            found.add(name.removeprefix("datasets_cli."))
    assert found == WITH_EXAMPLES


def test_every_test_that_the_page_on_reliability_names_is_there() -> None:
    page = (PROJECT / "docs/reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"([\w/]+\.py)::(\w+)", page)
    missing = [
        (file, name)
        for file, name in named
        if f"def test_{name}(" not in (PROJECT / "tests" / file).read_text(encoding="utf-8")
    ]
    assert len(named) > 100 and missing == []


def test_the_python_of_the_page_on_offline_to_online_runs(
    hopper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks("docs/offline-to-online.md", "python"):
        exec(block.replace("1_000_000", "10_000"), names)
    assert int(names["is_offline"].sum()) == 128 and len(names["online"]) == 100
    assert len(names["earlier"]) == 100 and names["batch"].shape == (256,)


def test_make_bench_runs_every_benchmark_that_the_page_names() -> None:
    page = (PROJECT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    (loop,) = re.findall(r"for name in ([a-z ]+); do", (PROJECT / "Makefile").read_text())
    named = re.findall(r"^\| `python benchmarks/(\w+)\.py` \|", page, re.MULTILINE)
    assert sorted(loop.split()) == sorted(named)
