"""The package's face: its names, its verbs, and the command line, which is made of them."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import pydoc
import subprocess
import sys
import textwrap
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import pytest

import datasets_cli
from datasets_cli import errors, exchange, verbs
from datasets_cli.cli.main import main
from datasets_cli.config import Config, load_config
from datasets_cli.core.options import argument_docs
from datasets_cli.core.progress import silent
from datasets_cli.errors import PartialFailure, UsageError
from datasets_cli.experience.opening import OpenOptions
from datasets_cli.replay.mixing.mixture import MixtureOptions
from datasets_cli.torchrl.slice_samplers import SliceArguments
from tests.conftest import DOOR
from tests.support import public_names
from tests.support.paths import PROJECT, parsed
from tests.support.refusals import check_refused

Capture = pytest.CaptureFixture[str]
VERBS = public_names.verbs()
REGENERATE = "run python -m tests.support.public_names"
PUBLIC: dict[str, Any] = {
    name: getattr(importlib.import_module(module), name)
    for module in public_names.MODULES
    for names in public_names.groups(module).values()
    for name in names
}
CLASSES = {name: thing for name, thing in PUBLIC.items() if isinstance(thing, type)}


def is_protocol(thing: Any) -> bool:
    return getattr(thing, "_is_protocol", False)


# Names


@pytest.mark.parametrize("module", public_names.TABLES)
def test_a_module_of_names_has_those_of_its_table(module: str) -> None:
    face = importlib.import_module(module)
    homes = public_names.homes(face)
    assert sorted({*face.__all__} - {"__version__"}) == sorted(homes)
    for name, place in homes.items():
        home, _, own_name = place.partition(":")
        defining = importlib.import_module(f"datasets_cli.{home}")
        thing = getattr(face, name)
        assert thing is vars(defining)[own_name or name]
        assert getattr(thing, "__module__", defining.__name__) == defining.__name__
    with pytest.raises(AttributeError, match=rf"{module}.*nosuch"):
        face.nosuch  # noqa: B018


def statements(text: str) -> set[str]:
    found = set()
    for node in ast.parse(text).body:
        is_import = isinstance(node, ast.ImportFrom)
        parts = [ast.ImportFrom(node.module, [x], 0) for x in node.names] if is_import else [node]
        found |= {ast.unparse(part) for part in parts}
    return found


@pytest.mark.parametrize("module", public_names.TABLES)
def test_type_checkers_and_editors_see_the_same_names(module: str) -> None:
    stub = public_names.path_of(module).with_suffix(".pyi").read_text(encoding="utf-8")
    assert statements(stub) == statements(public_names.stub(module)), REGENERATE


def test_no_name_is_in_two_tables_and_none_is_also_a_module() -> None:
    assert sum(map(len, public_names.TABLES.values())) == len(public_names.HOMES)
    modules = {module.name for module in pkgutil.iter_modules(datasets_cli.__path__)}
    assert not modules & set(datasets_cli.__all__)


def test_dir_also_shows_the_public_modules() -> None:
    assert set(dir(datasets_cli)) == {*datasets_cli.__all__, *datasets_cli._MODULES}
    for name in datasets_cli._MODULES:
        assert getattr(datasets_cli, name) is importlib.import_module(f"datasets_cli.{name}")


def test_every_verb_is_public() -> None:
    rooms = [
        each.name
        for room in (verbs, exchange)
        for each in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
    ]
    names = "project.open", "ui.server", "ui.export"
    files = [f"datasets_cli.{name}" for name in names]
    found = {
        name
        for module in map(importlib.import_module, (*rooms, *files))
        for name, thing in vars(module).items()
        if inspect.isfunction(thing)
        and thing.__module__ == module.__name__
        and {"root", "config"} <= inspect.signature(thing).parameters.keys()
        and not name.startswith("_")
    }
    assert found == set(VERBS)


def test_the_page_has_the_table_of_names() -> None:
    page = public_names.PAGE.read_text(encoding="utf-8")
    assert public_names.with_tables(page) == page, REGENERATE
    for name in PUBLIC:
        assert f"`{name}`" in page.partition("## All names")[2], name


# Start-up


def test_python_dash_m_is_the_command_line(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rlds {datasets_cli.__version__}\n"
    assert printed(capsys, "--version") == {"version": datasets_cli.__version__}
    command = [sys.executable, "-m", "datasets_cli", "nosuch"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


# The command line


def taken(verb: str) -> type:
    kind: type = getattr(datasets_cli, verb).__taken__
    return kind


def is_of_the_face(node: ast.AST) -> TypeGuard[ast.Attribute]:
    is_of_a_name = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return is_of_a_name and node.value.id == "datasets_cli"


def used_besides_verbs(path: Path) -> set[str]:
    """Return what a file of the command line imports or calls that is no verb and not light.

    What a verb takes, a dataclass, may be imported from where it is declared.
    """
    light = ("errors", "config", "version", "core.options", "core.quantities", "core.system_errors")
    light += ("core.progress", "core.progress_display")
    allowed = {f"datasets_cli.{name}" for name in light}
    # What the verbs return and take is public, and so may be named here.
    classes = {name for name, thing in CLASSES.items() if thing.__module__ not in allowed}
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            modules = {each.name for each in node.names if each.name.startswith("datasets_cli")}
            found |= modules - {"datasets_cli"}
        elif is_of_the_face(node):
            found |= {node.attr} - {*VERBS}
        elif isinstance(node, ast.ImportFrom) and node.module in public_names.TABLES:
            found |= {each.name for each in node.names} - classes
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("datasets_cli"):
            module = str(node.module)
            takes = {each.__name__ for name in VERBS for each in taken(name).__mro__[:-1]}
            is_taken = {each.name for each in node.names} <= takes
            is_own = is_taken or module.startswith("datasets_cli.cli")
            found |= set() if is_own else {module} - allowed
    return found


def test_the_command_line_calls_the_verbs_and_nothing_else_of_the_library() -> None:
    files = [*(PROJECT / "datasets_cli" / "cli").glob("*.py")]
    assert len(files) > 5
    found = {file.name: used for file in files if (used := used_besides_verbs(file))}
    assert not found


def test_no_module_of_the_library_calls_a_verb_as_the_command_line_does() -> None:
    for path in (PROJECT / "datasets_cli").rglob("*.py"):
        if path.parent.name == "cli" or "import datasets_cli" not in path.read_text():
            continue
        for node in ast.walk(parsed(path)):
            if is_of_the_face(node):
                assert node.attr not in VERBS, path


# What the verbs return


def printed(capsys: Capture, *arguments: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def as_json(result: Any) -> Any:
    document = [each.to_json() for each in result] if isinstance(result, list) else result.to_json()
    return json.loads(json.dumps(document))


def test_json_of_list_and_info(door: str, capsys: Capture) -> None:
    assert as_json(datasets_cli.list_datasets()) == printed(capsys, "list")
    assert as_json(datasets_cli.list_datasets("kitchen", family="d4rl")) == printed(
        capsys, "list", "kitchen", "--family", "d4rl"
    )
    assert as_json(datasets_cli.list_datasets(["door*"], installed=True)) == printed(
        capsys, "list", "door*", "--installed"
    )
    for id in (door, "hopper-medium-v2", "atari_dqn/Venture/1"):
        assert as_json(datasets_cli.dataset_info(id)) == printed(capsys, "info", id)
    record = printed(capsys, "list", door)[0]
    assert list(record) == [
        "id",
        "state",
        "installed",
        "download_bytes",
        "bytes",
        "num_transitions",
        "num_trajectories",
        "audit",
    ]
    unknown = {"family", "version", "licence", "citation", "homepage", "title", "details"}
    assert set(printed(capsys, "info", "hopper-medium-v2")) == {*record, *unknown} - {"audit"}
    copy = {"path", "manifest", "content", "layout", "audited"}
    assert set(printed(capsys, "info", door)) == {*record, *unknown, *copy}


def test_json_of_download(door_source: str, config: Config, capsys: Capture) -> None:
    (plan,) = datasets_cli.plan_download(DOOR, source=door_source)
    assert as_json([plan]) == printed(
        capsys, "download", DOOR, "--source", door_source, "--dry-run"
    )
    assert (plan.installed, plan.folder.exists()) == (False, False)
    found = datasets_cli.download(DOOR, source=Path(door_source), verify=False, progress=silent)
    (dataset,) = found.datasets
    assert dataset.path == config.root / "datasets" / DOOR
    assert (dataset.num_transitions, dataset.layout) == (1495, "ted")
    assert dataset.unverified[0].startswith("not verified")
    assert as_json(found) == printed(capsys, "download", DOOR)
    assert as_json(datasets_cli.plan_download(DOOR)) == printed(
        capsys, "download", DOOR, "--dry-run"
    )


def test_json_of_path_verify_and_delete(door: str, capsys: Capture) -> None:
    assert as_json(datasets_cli.dataset_path(door)) == printed(capsys, "path", door)
    assert as_json(datasets_cli.verify()) == printed(capsys, "verify")
    assert as_json(datasets_cli.verify(door, quick=True)) == printed(
        capsys, "verify", door, "--quick"
    )
    assert as_json(datasets_cli.delete(door, dry_run=True)) == printed(
        capsys, "delete", door, "--dry-run"
    )
    (gone,) = printed(capsys, "delete", door, "--yes")
    assert gone == {"id": door, "bytes": gone["bytes"], "deleted": True, "state": "unverified"}


def test_json_of_convert_and_preprocess(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert as_json(datasets_cli.convert(door, "compact")) == printed(
        capsys, "convert", door, "--layout", "compact"
    )
    (tmp_path / "face_functions.py").write_text("def same(batch):\n    return batch\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    same = importlib.import_module("face_functions").same
    arguments = ["preprocess", door, "--fn", "face_functions:same", "--name", "same"]
    preview = datasets_cli.preprocess_columns(door, same, "same")
    assert as_json(preview) == printed(capsys, *arguments, "--dry-run")
    assert preview.columns["next.reward"] == ("float32", (1,))
    written = datasets_cli.preprocess(door, same, "same", num_frames=10)
    assert (written.id, written.num_transitions) == ("derived/same", 10)
    datasets_cli.delete("derived/same")
    assert as_json(written) == printed(capsys, *arguments, "--num", "10", "--workers", "0")


def test_json_of_the_demo(capsys: Capture) -> None:
    found = [as_json(result) for result in datasets_cli.run_demo()]
    stops = printed(capsys, "demo")
    for document in [*found, *stops]:
        # The port, the temporary folder and the time are those of one run.
        for name in ("path", "resources"):
            document.pop(name)
    assert found == stops


def test_a_folder_is_taken_for_its_path(door: str) -> None:
    folder = datasets_cli.dataset_path(door)
    assert Path(folder) == folder.path and f"{folder}" == str(folder.path)
    assert (Path(folder) / "manifest.json").is_file()


# Where the verbs work


def test_every_verb_takes_a_root_or_a_config_and_not_both(tmp_path: Path) -> None:
    both: dict[str, Any] = {"root": tmp_path, "config": load_config()}
    calls = []
    for name in VERBS:
        verb = getattr(datasets_cli, name)
        parameters = inspect.signature(verb).parameters
        assert {parameters[each].kind.name for each in both} == {"KEYWORD_ONLY"}, name
        needed = {each.name: "x" for each in parameters.values() if each.default is each.empty}
        needed |= {"columns": {}} if "columns" in needed else {}
        calls.append(("root=.* and config= cannot be combined", partial(verb, **needed, **both)))
    check_refused(UsageError, calls)


def test_a_root_is_where_a_verb_works(door: str, config: Config, tmp_path: Path) -> None:
    assert datasets_cli.list_datasets(installed=True, root=tmp_path / "elsewhere") == []
    (record,) = datasets_cli.list_datasets(installed=True, root=str(config.root))
    assert record.id == door
    (same,) = datasets_cli.list_datasets(installed=True, config=config)
    assert same == record


def test_several_downloads_give_what_is_installed_and_why_the_others_are_not(door: str) -> None:
    offline = load_config(offline=True)
    told: list[str] = []
    with pytest.raises(PartialFailure) as caught:
        datasets_cli.download(
            [door, "hopper-medium-v2"],
            config=offline,
            progress=silent,
            on_result=lambda result: told.append(result.id),
        )
    results = caught.value.results
    assert [dataset.id for dataset in results.datasets] == [door]
    assert isinstance(results.failures[0].error, errors.OfflineError)
    assert caught.value.__cause__ is results.failures[0].error
    assert told == [door, "hopper-medium-v2"]
    with pytest.raises(errors.OfflineError):
        datasets_cli.download("hopper-medium-v2", config=offline, progress=silent)


def test_progress_is_drawn_on_a_terminal_alone(
    door_source: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets_cli.download(DOOR, source=door_source, verify=False)
    assert "transitions written" not in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    datasets_cli.download(DOOR, source=door_source, verify=False, force=True)
    assert "transitions written" in capsys.readouterr().err


# Short forms


def test_short_forms_mean_the_same_as_options(capsys: Capture) -> None:
    logs = str(PROJECT / "recipes/demo/data/atari_dqn/Pong/5/replay_logs")
    for arguments in ("-o checkpoints=0:1", "--option checkpoints=0:1", "--checkpoints 0:1"):
        words = ["Pong/5", *arguments.split(), "--source", logs, "--dry-run"]
        (plan,) = printed(capsys, "download", *words)
        assert plan["id"] == "atari_dqn/Pong/5~ckpt0-1"


# Arguments that help() shows


# A protocol is not called, nor is traj, and an error is made of its message.
CALLED = {
    name: thing
    for name, thing in PUBLIC.items()
    if not (is_protocol(thing) or name == "traj")
    and not (isinstance(thing, type) and issubclass(thing, Exception))
}


def test_every_argument_is_written_out() -> None:
    # The keywords of a Composite are names of its user's, those of a GymEnv are gymnasium.make's,
    # and those of a dataset by its prefix are those of the family's class.
    of_families = {"load_dataset", "OfflineToOnlineReplayBuffer"}
    takes_any = set()
    for name, thing in CALLED.items():
        parameters = inspect.signature(thing).parameters.values()
        if inspect.Parameter.VAR_KEYWORD in {parameter.kind for parameter in parameters}:
            takes_any.add(name)
    assert takes_any == {"Composite", "GymEnv", *of_families}


def test_a_misspelt_keyword_names_the_class_that_was_called() -> None:
    classes = [
        kind
        for name, kind in CLASSES.items()
        if not is_protocol(kind) and not issubclass(kind, Enum) and name != "Composite"
    ]
    assert len(classes) > 100
    check_refused(
        TypeError, [(kind.__name__, partial(kind, a_misspelt_keyword=1)) for kind in classes]
    )


SHOWN: list[Callable[..., Any]] = [
    *(datasets_cli.SliceSampler, datasets_cli.SliceSamplerWithoutReplacement),
    *(datasets_cli.PrioritizedSliceSampler, datasets_cli.TensorDictReplayBuffer),
    *(datasets_cli.D4RLExperienceReplay, datasets_cli.download),
]


def test_help_shows_every_argument_with_its_type() -> None:
    for called in SHOWN:
        text = pydoc.plain(pydoc.render_doc(called))
        parameters = inspect.signature(called).parameters.values()
        assert len(parameters) >= 10
        for parameter in parameters:
            assert parameter.annotation is not parameter.empty, parameter.name
            assert f"{parameter.name}: {parameter.annotation!r}" in text, parameter.name


PLAIN: list[type] = [
    *(datasets_cli.ExperienceReplay, datasets_cli.Mixture),
    *(datasets_cli.ReplayBuffer, datasets_cli.TensorDictReplayBuffer, datasets_cli.RandomSampler),
    *(datasets_cli.PrioritizedSampler, datasets_cli.SliceSampler),
    datasets_cli.SamplerWithoutReplacement,
]
CHECKED_TOGETHER = {
    "ExperienceReplay": OpenOptions,
    "Mixture": MixtureOptions,
    "SliceSampler": SliceArguments,
}


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__name__)
def test_the_constructors_that_are_called_most_are_plain(kind: Any) -> None:
    source = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(kind.__init__))))
    (function,) = (node for node in source.body if isinstance(node, ast.FunctionDef))
    written = [*function.args.args, *function.args.kwonlyargs][1:]
    own_docs = type("OwnDocs", (), {"__doc__": kind.__doc__})
    assert [each.arg for each in written] == [*argument_docs(own_docs)]
    assert all(each.annotation is not None for each in written)
    options = CHECKED_TOGETHER.get(kind.__name__, kind)
    shown = inspect.signature(kind).parameters
    assert {name: (each.default, each.annotation) for name, each in shown.items()} == {
        name: (each.default, each.annotation)
        for name, each in inspect.signature(options).parameters.items()
    }
