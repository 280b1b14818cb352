"""Wrong calls and wrong data: each ends with its exit code, says what to do, and leaves nothing."""

from __future__ import annotations

import gzip
import importlib
import io
import itertools
import json
import os
import re
import resource
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import datasets_cli
from datasets_cli import errors
from datasets_cli.cli.main import main
from datasets_cli.core.progress import silent
from datasets_cli.errors import UsageError
from datasets_cli.store.sealed_json import seal
from tests.support.origin import Fault, Origin
from tests.support.paths import DEMO_DATA, TEST_DATA
from tests.support.refusals import check_refused, refused

Capture = pytest.CaptureFixture[str]


Spoil = Callable[[Path], None]

DOOR = "sources/door/door-v0_demos_clipped.hdf5"
UNPLUGGED = "sources/unplugged/run_1-00000-of-00050"


def make_places(place: Path) -> None:
    """Fill a folder: ``root``, ``sources/<family>``, ``file``, a link to nowhere, and a module."""
    sources = place / "sources"
    shutil.copytree(DEMO_DATA / "d4rl" / "hand_dapg", sources / "door")
    shutil.copytree(DEMO_DATA / "minari/D4RL/door/human-v2/data", sources / "minari")
    shutil.copytree(DEMO_DATA / "atari_dqn/Pong/5/replay_logs", sources / "pong")
    (sources / "iris").mkdir()
    for name, path in {
        "description.json": "api/v1/json/data/61",
        "features.json": "api/v1/json/data/features/61",
        "dataset.arff": "data/v1/download/61/iris.arff",
    }.items():
        shutil.copy(DEMO_DATA / "openml" / path, sources / "iris" / name)
    (sources / "unplugged").mkdir()
    record = TEST_DATA / "rl_unplugged" / "asterix_run_1-00000-of-00001"
    shutil.copy(record, place / UNPLUGGED)
    for number in range(1, 50):
        (sources / "unplugged" / f"run_1-{number:05d}-of-00050").symlink_to(record)
    (sources / "empty").mkdir()
    (place / "file").touch()
    (place / "nowhere").symlink_to(place / "missing" / "folder")
    (place / "wrong_functions.py").write_text(MODULE)
    for id in ("demo/door-human", "demo/iris", "demo/pong"):
        datasets_cli.download(id, root=place / "root", progress=silent)
    datasets_cli.download(
        "minari/my/door-v0", source=sources / "minari", root=place / "root", progress=silent
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(place)
        function = importlib.import_module("wrong_functions").same
        datasets_cli.preprocess("demo/iris", function, "same", root=place / "root", progress=silent)


MODULE = """
import sys
def same(batch): return batch
def broken(batch): raise KeyError("reward")
def nothing(batch): return None
def shorter(batch): return batch[1:].exclude("_row")
def leaving(batch): sys.exit(3)
number = 3
"""


# Files of sources and of installed datasets


def empty(name: str) -> Spoil:
    return lambda place: (place / name).write_bytes(b"") and None


def short(name: str, share: float = 0.5) -> Spoil:
    return lambda place: os.truncate(place / name, int((place / name).stat().st_size * share))


def flipped(name: str, position: int = -40) -> Spoil:
    def spoil(place: Path) -> None:
        data = bytearray((place / name).read_bytes())
        data[position] ^= 0xFF
        (place / name).write_bytes(data)

    return spoil


def text(name: str, content: str = "<!DOCTYPE html><title>Quota exceeded</title>") -> Spoil:
    return lambda place: (place / name).write_text(content) and None


def gone(name: str) -> Spoil:
    return lambda place: (place / name).unlink()


def moved(folder: str, name: str) -> Spoil:
    """A folder of the cache root under another name: a foreign one, or that of another id."""
    return lambda place: shutil.move(place / folder, (place / folder).parent / name) and None


def copied(source: str, name: str) -> Spoil:
    return lambda place: shutil.copy(place / source, place / name) and None


def linked(name: str) -> Spoil:
    def spoil(place: Path) -> None:
        (place / name).rename(place / "elsewhere")
        (place / name).symlink_to(place / "elsewhere")

    return spoil


def instead(name: str, make: Callable[[Path], object]) -> Spoil:
    def spoil(place: Path) -> None:
        (place / name).unlink()
        make(place / name)

    return spoil


def piped(name: str) -> Spoil:
    return instead(name, os.mkfifo)


def a_folder(name: str) -> Spoil:
    return instead(name, Path.mkdir)


# JSON


def edited(name: str, **entries: Any) -> Spoil:
    """A JSON document with other entries; None leaves one out."""

    def spoil(place: Path) -> None:
        document = json.loads((place / name).read_bytes()) | entries
        kept = {key: value for key, value in document.items() if value is not None}
        (place / name).write_text(json.dumps(kept))

    return spoil


def manifest(id: str, **entries: Any) -> Spoil:
    """A manifest with other entries and a digest that fits."""

    def spoil(place: Path) -> None:
        path = place / "root" / "datasets" / id / "manifest.json"
        path.write_bytes(seal(json.loads(path.read_bytes()) | entries))

    return spoil


# HDF5


def without(*names: str) -> Spoil:
    def spoil(place: Path) -> None:
        with h5py.File(place / DOOR, "a") as file:
            for name in names:
                del file[name]

    return spoil


# Frames of Atari


def checkpoint(kind: str, number: int) -> str:
    return f"sources/pong/$store$_{kind}_ckpt.{number}.gz"


def array(name: str, values: np.ndarray) -> Spoil:

    def spoil(place: Path) -> None:
        buffer = io.BytesIO()
        np.save(buffer, values)
        (place / name).write_bytes(gzip.compress(buffer.getvalue()))

    return spoil


@dataclass(frozen=True)
class Wrong:
    """A call, its exit code, the message's words on what to do, and what is wrong with the data.

    In the call ``{url}`` is a server.
    """

    call: str
    code: int
    words: str
    spoil: Spoil | None = None

    def __str__(self) -> str:
        spoiled = self.spoil.__qualname__.partition(".")[0] if self.spoil else ""
        return f"{self.call} {spoiled}".strip()


TO_COPY = re.compile(r"((Example|Not found): |(: |, then )(rlds|pip) )(?!.*\. )")
AN_ID = "Expected family/name"
SOURCE = "Pass the folder with the publisher's files under their original names"
IRIS, PONG = "root/datasets/demo/iris", "root/datasets/demo/pong"
MINARI, SAME = "root/datasets/minari/my/door-v0", "root/datasets/derived/same"
META, EPISODES = "sources/minari/metadata.json", "sources/minari/main_data.hdf5"
PAGE, FEATURES, ARFF = (
    f"sources/iris/{name}" for name in ("description.json", "features.json", "dataset.arff")
)
FRAMES, ENDS = checkpoint("observation", 1), checkpoint("terminal", 1)

GET_DOOR = "download d4rl/door-human-v0 --no-verify --source sources/door"
GET_MINARI = "download minari/my/new-v0 --source sources/minari"
GET_IRIS = "download openml/61 --source sources/iris"
GET_PONG = "download atari_dqn/Pong/5 --checkpoints 0:3 --source sources/pong"
GET_ASTERIX = "download atari_dqn/Asterix/1 --upstream rl_unplugged --source sources/unplugged"
FUNCTION = "--fn wrong_functions:same --workers 0"

WORDS = [
    Wrong("nosuch", 2, "See: rlds --help"),
    Wrong("uninstall demo/iris", 2, "Did you mean rlds delete?"),
    *(
        Wrong(f"{word} x", 2, f"Did you mean rlds {meant}?")
        for word, meant in (("rm", "delete"), ("show", "info"), ("ls", "list"), ("verfy", "verify"))
    ),
    Wrong("download", 2, "needs ID. Example: rlds download"),
    Wrong("convert", 2, "needs ID and --layout"),
    Wrong("convert demo/iris", 2, "needs --layout ted|compact. Example: rlds convert"),
    Wrong(
        "preprocess demo/iris --name x",
        2,
        "or a transform such as --cast float32. Example:",
    ),
    Wrong("config get", 2, "rlds config --help"),
    Wrong("recipe show d4r", 3, "Did you mean d4rl?"),
    Wrong("recipe new d4rl", 2, "See: rlds recipe list"),
    Wrong("recipe check nowhere.py", 2, "FAMILY.py"),
    Wrong("recipe check wrong_functions.py", 1, "must define RECIPE"),
    Wrong("data add x", 2, "needs --dataset ID. Example: rlds data add"),
    Wrong("data add x --dataset demo/iris --split 1,1", 2, "sum up to at most 1, such as 0.9,0.1"),
    Wrong("data add x --dataset demo/iris --part 1", 2, "--part and --seed need --split"),
    Wrong("list --nosuch", 2, "See: rlds list --help"),
    Wrong("list --fam d4rl", 2, "--family"),
    Wrong("list --root", 2, "--root needs a value: --root PATH"),
    Wrong("list --json=yes", 2, "'--json' does not take a value"),
    Wrong("list --family nosuch", 2, "atari_dqn, d4rl, demo, minari"),
    Wrong("list --filter 'nosuch>1'", 2, "size, download, disk, transitions, trajectories, with"),
    Wrong("list --filter 'size>big'", 2, "such as 'size>1GB'"),
    Wrong("list -n 0", 2, "--num is 0; expected 1 or more"),
    Wrong("list --columns nosuch", 2, "expected some of id, family, state, size"),
    Wrong("list --search ' '", 2, "A search needs a word"),
    Wrong("score hopper-medium-v2 high", 2, "'high'; expected finite numbers"),
    *(
        Wrong(f"list --mirror {mirror}", 2, "PREFIX=REPLACEMENT")
        for mirror in ("x", "http://a/=ftp://b/")
    ),
    Wrong("download demo/iris --workers x", 2, "expected a whole number"),
    Wrong("download demo/iris --layout tde", 2, "expected one of ted, compact"),
    Wrong("download demo/iris --layout compact", 2, "rlds convert --layout compact demo/iris"),
    *(
        Wrong(f"download Pong/5 -o {option}", 2, "is not NAME=VALUE. Example: -o checkpoints=0:5")
        for option in ("checkpoints", "checkpoints=", "=0:5", "=")
    ),
    Wrong("download demo/pong --checkpoints 0:1", 2, "no option checkpoints"),
    Wrong("download atari_dqn/Pong/1 --checkpoints 5:2", 2, "Example: --checkpoints 0:5"),
    Wrong("download atari_dqn/Pong/1 --upstream x", 2, "auto, dqn_replay, rl_unplugged"),
    Wrong("download atari_dqn/Pong/1 --checkpoints 0:1 -o checkpoints=0:2", 2, "0:2 and 0:1"),
    Wrong("download hopper-medium-v2 --offline", 5, "--source DIR"),
    Wrong("download 'd4rl/hopper-*'", 2, "--yes"),
    Wrong("download d4rl/hopper-medium-v2 minari/nosuch --offline", 9, "2 of 2 datasets failed"),
    Wrong("delete demo/iris", 2, "--yes"),
    Wrong("prune nowhere", 2, "'nowhere' does not exist"),
    Wrong("preprocess demo/iris --name x --cast int64", 2, "--cast is 'int64'"),
    Wrong("preprocess demo/iris --name x --n-step 3", 2, "--n-step needs --gamma, the discount"),
    Wrong("preprocess demo/iris --name x --cast float32 --fn a:b", 2, "--fn and --cast"),
    *(
        Wrong(f"preprocess demo/pong --name x --n-step 3 --gamma 1 {option}", 2, words)
        for option, words in (
            ("--num 7", "--returns-to-go and --n-step need whole trajectories"),
            ("--num 7", "--max-trajectories"),
            ("--per transition", "need --per chunk, the default, since"),
            ("--normalize nope", "--normalise: demo/pong has no column nope"),
            ("--cast action=bool", "--cast: action has the number"),
            ("--cast action=bool", "It was found in rows 0 to 961"),
        )
    ),
    Wrong("preprocess --n-step 3", 2, "--n-step needs ID, --fn and --name, too"),
    Wrong("record CartPole-v1 --name x --steps 5 --check-actions foo", 2, "'--check-actions'"),
    Wrong("record CartPole-v1 --name x", 2, "--episodes N or --steps N"),
    Wrong("record Cart-v9 --name x --steps 5", 2, "MODULE:ID"),
    Wrong("record CartPole-v1 --name x --steps 5 --policy mycode", 2, "MODULE:FUNCTION"),
]
IDS = [
    *(Wrong(f"info '{id}'", 2, AN_ID) for id in ("", "..", "/", "d4rl/", "日本/x")),
    Wrong(f"info {'x' * 201}", 2, AN_ID),
    Wrong("path 'demo/*'", 2, "is a glob. Expected one id."),
    Wrong(f"preprocess 'demo/?' --name x {FUNCTION}", 3, "See: rlds list --installed"),
    Wrong("info d4rl", 3, "rlds list 'd4rl/*'"),
    Wrong("info hopper-medium-v99", 3, "Did you mean d4rl/hopper-medium-v2"),
    Wrong("info atari_dqn/Pong", 3, "Did you mean atari_dqn/Pong/1"),
    Wrong("download hopper", 3, "rlds list hopper"),
    Wrong("download recorded/x", 3, "written by rlds record"),
    Wrong("download derived/nosuch", 3, "rlds list --installed 'derived/*'"),
    Wrong("download derived/same --force", 3, "written by rlds preprocess"),
    Wrong("path d4rl/pen-human-v0", 3, "Run: rlds download d4rl/pen-human-v0"),
    Wrong("delete demo/iris nosuch 'zz*' --yes", 3, "2. No installed dataset matches 'zz*'"),
    Wrong("verify nosuch d4rl/pen-human-v0", 3, "Run: rlds download d4rl/pen-human-v0"),
    Wrong("verify demo/iris nosuch --json", 9, "Not found: nosuch"),
    Wrong("download 'zz*' 'yy*'", 3, "2. No known dataset matches 'yy*'"),
]
FUNCTIONS = [
    Wrong(f"preprocess demo/iris --fn {fn} --name x --workers 0", code, words)
    for fn, code, words in (
        ("wrong_functions", 2, "is not MODULE:FUNCTION, such as"),
        ("nosuchmodule:f", 2, "the module nosuchmodule is neither in"),
        ("wrong_functions:f", 2, "the module wrong_functions has no f"),
        ("wrong_functions:number", 2, "not a function"),
        ("wrong_functions:broken", 1, "KeyError: 'reward'"),
        ("wrong_functions:nothing", 2, "must return a TensorDict with one row for each"),
        ("wrong_functions:shorter", 2, "that drops rows must return _row"),
        ("wrong_functions:leaving", 1, "line 7, in leaving"),
    )
]
FUNCTIONS += [
    Wrong(f"preprocess demo/iris --name '' {FUNCTION}", 2, AN_ID),
    Wrong(f"preprocess demo/iris --name ../x {FUNCTION}", 2, AN_ID),
    Wrong(
        f"preprocess demo/pong --name same {FUNCTION}",
        2,
        "or delete it first: rlds delete derived/same",
    ),
    Wrong(f"preprocess demo/iris --name x {FUNCTION} --per row", 2, "'chunk', 'trajectory'"),
    Wrong("audit --show -1", 2, "greater than or equal to 0"),
    Wrong(f"preprocess d4rl/pen-human-v0 --name x {FUNCTION}", 3, "Run: rlds download"),
]
ROOTS = [
    Wrong("list --root ''", 2, "The cache root is empty text. Pass a folder as --root"),
    Wrong("list --root file/below", 2, "is not a folder. Check --root and RLDS_HOME"),
    Wrong("verify --root nowhere", 2, "heck --root and RLDS_HOME"),
    Wrong(
        "download demo/iris --root /proc/nosuch",
        2,
        "choose another cache root with --root or RLDS_HOME",
    ),
    Wrong("path demo/iris --root sources", 3, "Run: rlds download demo/iris"),
    Wrong("info foreign/x", 3, "See: rlds list", moved(IRIS, "x")),
    Wrong("verify demo/pang --json", 4, "rlds repair demo/pang", moved(PONG, "pang")),
    Wrong("delete iris --yes", 3, "rlds download", gone(f"{IRIS}/manifest.json")),
]
SOURCES = [
    Wrong("download d4rl/pen-human-v0 --source missing", 2, SOURCE),
    Wrong("download d4rl/pen-human-v0 --source file", 4, "another --mirror or --source"),
    Wrong("download d4rl/pen-human-v0 --source ''", 2, "expected a folder, or a URL"),
    Wrong("download d4rl/pen-human-v0 --source ftp://x/y", 2, "http:// or https://"),
    Wrong("download d4rl/pen-human-v0 --source sources/door", 2, SOURCE),
    Wrong("download openml/61 --source sources/empty", 2, "as description.json"),
    Wrong("download minari/my/a-v0 minari/my/b-v0 --source sources/minari", 2, "one dataset"),
    Wrong("download d4rl/door-human-v0 --source {url}missing", 6, "or --source DIR|URL"),
    Wrong("download d4rl/door-human-v0 --source {url}closed", 6, "or --source DIR|URL"),
    Wrong("download d4rl/door-human-v0 --source {url}page", 4, "--mirror or --source"),
    Wrong("download openml/62 --source sources/iris", 4, "found 61. Check --source"),
    Wrong("download minari/D4RL/pen/human-v2 --source sources/minari", 4, "Check --source"),
    Wrong("download atari_dqn/Pong/5 --source sources/pong", 4, "--checkpoints 0:3"),
    Wrong(GET_PONG.replace("0:3", "1:5"), 2, "lacks 3, 4 of --checkpoints 1:5. Choose fewer"),
    Wrong(GET_DOOR.replace("--no-verify ", ""), 4, "--no-verify accepts the file anyway"),
]
FILES = [
    *(
        Wrong(GET_DOOR, code, words, spoil)
        for spoil, code, words in (
            (empty(DOOR), 4, "--mirror or --source"),
            (text(DOOR), 4, "found a web page. Try another --mirror or --source"),
            (gone(DOOR), 2, SOURCE),
            (copied(EPISODES, DOOR), 4, "Check the files at --source"),
            (without("actions", "rewards"), 4, "Check the files at --source"),
        )
    ),
    *(
        Wrong(GET_MINARI, code, words, spoil)
        for spoil, code, words in (
            (text(META, "{"), 4, "metadata.json is not JSON"),
            (edited(META, data_format="arrow"), 2, SOURCE),
        )
    ),
    *(
        Wrong(GET_IRIS, code, words, spoil)
        for spoil, code, words in (
            (text(PAGE), 4, "description.json is not JSON"),
            (text(FEATURES, "null"), 4, "Check --mirror or --source"),
            (short(ARFF), 4, "--no-verify accepts the file anyway"),
        )
    ),
    *(
        Wrong(GET_PONG, 4, words, spoil)
        for spoil, words in (
            (gone(FRAMES), "Complete it, or choose other checkpoints"),
            (text(FRAMES), "--mirror or --source"),
            (flipped(FRAMES), "Download it again"),
            (array(ENDS, np.zeros(5, np.uint8)), "Check the files at --source"),
        )
    ),
    Wrong(GET_ASTERIX, 4, "Check the files at --source", flipped(UNPLUGGED, 5000)),
]
AGAIN = "Run: rlds repair demo/iris"
INSTALLED = [
    *(
        Wrong("verify demo/iris --json", 4, AGAIN, spoil(f"{IRIS}/action.memmap"))
        for spoil in (short, flipped, piped)
    ),
    *(
        Wrong("download demo/iris", 4, AGAIN, spoil(f"{IRIS}/manifest.json"))
        for spoil in (flipped, linked, a_folder)
    ),
    Wrong("download demo/iris", 4, AGAIN, gone(f"{IRIS}/action.memmap")),
    Wrong("verify --json", 4, AGAIN, copied(f"{PONG}/manifest.json", f"{IRIS}/manifest.json")),
    Wrong("verify --json", 4, AGAIN, copied(f"{MINARI}/meta.json", f"{IRIS}/meta.json")),
    Wrong("verify --json", 4, AGAIN, manifest("demo/iris", layout="x")),
    Wrong("verify --json", 4, "Upgrade: install", manifest("demo/iris", format_version=9)),
    Wrong("repair --json", 9, "Upgrade: install", manifest("demo/iris", format_version=9)),
    Wrong(
        "repair derived/same --json",
        9,
        "rlds delete derived/same, then rlds preprocess demo/iris --name same --fn "
        "wrong_functions:same",
        gone(f"{SAME}/done.memmap"),
    ),
    Wrong("convert demo/iris --layout compact", 4, AGAIN, flipped(f"{IRIS}/action.memmap")),
    Wrong(
        "convert demo/pong --layout ted",
        4,
        "Run: rlds repair demo/pong",
        flipped(f"{PONG}/frames/observation.zst", 100),
    ),
    Wrong(f"preprocess demo/iris --name x {FUNCTION}", 4, AGAIN, gone(f"{IRIS}/done.memmap")),
    Wrong(
        "verify derived/same --json",
        4,
        "Run: rlds repair derived/same",
        short(f"{SAME}/observation.memmap"),
    ),
]
TABLES = {"words": WORDS, "ids": IDS, "functions": FUNCTIONS, "roots": ROOTS, "sources": SOURCES}
TABLES |= {"files": FILES, "installed": INSTALLED}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("places")
    make_places(place)
    return place


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Origin() as origin:
        name = "door-v0_demos_clipped.hdf5"
        origin.put(f"page/{name}", b"<!DOCTYPE html>".ljust(3_118_318))
        origin.always(f"closed/{name}", Fault(status=403))
        yield origin.url


@pytest.fixture
def fresh(places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """What makes a copy of the places the working directory, with its cache root in use."""
    path, numbers = [*sys.path], itertools.count()

    def copied() -> Path:
        copy = shutil.copytree(places, tmp_path / f"places {next(numbers)}", symlinks=True)
        monkeypatch.setenv("RLDS_HOME", str(copy / "root"))
        monkeypatch.chdir(copy)
        monkeypatch.setattr(sys, "path", [*path])
        return copy

    return copied


@pytest.fixture
def place(fresh: Callable[[], Path]) -> Path:
    return fresh()


def listing(place: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every file; the lock files stay where they were made."""
    paths = (f"{folder}/{name}" for folder, _, names in os.walk(place) for name in names)
    found = {path[len(str(place)) + 1 :]: os.lstat(path) for path in paths}
    return {
        name: (stat.st_size, stat.st_mtime_ns)
        for name, stat in found.items()
        if "/locks" not in name and not name.endswith(".lock")
    }


def check(wrong: Wrong, place: Path, url: str, capsys: Capture) -> None:
    if wrong.spoil:
        wrong.spoil(place)
    before = listing(place)
    assert main(shlex.split(wrong.call.format(url=url))) == wrong.code
    output = capsys.readouterr()
    if "--json" in wrong.call.split():
        error = json.loads(output.err)["error"]
        assert getattr(errors, error["type"]).exit_code == error["exit_code"] == wrong.code
        message, _ = error["message"], json.loads(output.out)
    else:
        assert output.out == ""
        message = output.err[output.err.rindex("rlds: ") :].strip()
        # Of several datasets each failure is told before.
        assert output.err.count("rlds: ") == 1 or wrong.code == 9
    assert wrong.words in message + output.out
    assert "\n\n" not in message and len(message) < 1000
    assert "Traceback" not in output.err
    # A sentence ends with one full stop; an id or a command to copy is followed by none.
    assert message.endswith(".") or TO_COPY.search(message)
    assert not re.search(r"\w\.\.(\s|$)", message)
    assert listing(place) == before


@pytest.mark.parametrize("table", TABLES)
def test_a_wrong_call_says_what_to_do_and_leaves_nothing(
    table: str, fresh: Callable[[], Path], url: str, capsys: Capture
) -> None:
    place, offenders = fresh(), []
    for wrong in TABLES[table]:
        try:
            check(wrong, place, url, capsys)
        except AssertionError as error:
            offenders.append(f"{wrong}: {error}")
        if wrong.spoil:
            place = fresh()
    assert not offenders, "\n".join(offenders)


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """Let no file have more bytes, which is to this process what a full disk is."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("call", [GET_MINARI, "convert demo/iris --layout compact"])
def test_a_full_disk_exits_with_7_and_leaves_nothing(
    call: str, place: Path, capsys: Capture
) -> None:
    before = listing(place)
    with small_disk(500):
        assert main(shlex.split(call)) == 7
    output = capsys.readouterr()
    assert "Make room" in output.err and output.out == ""
    assert listing(place) == before


def test_a_wrong_call_in_python_raises_the_documented_error(place: Path) -> None:
    before = listing(place)
    rlds, opened = datasets_cli, partial(datasets_cli.ExperienceReplay, batch_size=4)
    usage: list[tuple[str, Callable[[], Any]]] = [
        ("ted, compact", lambda: rlds.download("demo/iris", layout="x")),
        (AN_ID, lambda: rlds.download("demo/../x")),
        ("0 or more", lambda: rlds.download("openml/61", num_workers=-1)),
        ("atari_dqn", lambda: rlds.list_datasets(family="x")),
        ("not a folder", lambda: rlds.list_datasets(root=place / "file")),
        ("must return a TensorDict", lambda: rlds.preprocess("demo/iris", lambda batch: None, "x")),
        ("Check root and RLDS_HOME", lambda: opened("demo/iris", root=place / "file")),
    ]
    unknown: list[tuple[str, Callable[[], Any]]] = [
        ("See: rlds list", lambda: rlds.download("nosuch")),
        (r"rlds list 'd4rl/\*'", lambda: rlds.dataset_info("d4rl")),
        (r"2\. y is not a known", lambda: rlds.delete(["x", "y"])),
        ("See: rlds list", lambda: rlds.open_dataset("x")),
    ]
    refusals = [
        *check_refused(errors.UsageError, usage),
        *check_refused(errors.UnknownDataset, unknown),
        *check_refused(
            errors.DatasetNotInstalled, [("rlds download", lambda: rlds.dataset_path("iris"))]
        ),
        *check_refused(
            errors.PartialFailure, [("Not found: x", lambda: rlds.verify(["demo/iris", "x"]))]
        ),
    ]
    assert not any("\n\n" in str(refusal) for refusal in refusals)
    with refused(UsageError, argument="batch_size", found=0):
        opened("demo/iris", batch_size=0)
    assert listing(place) == before


def test_the_command_that_a_damaged_dataset_names_makes_it_again(
    place: Path, capsys: Capture
) -> None:
    for name in (MINARI, SAME, PONG):
        os.truncate(place / name / "trajectories.npy", 10)
    assert main(["verify", "--json"]) == 4
    for result in json.loads(capsys.readouterr().out):
        if not result["ok"]:
            repair = words_of(result["error"]["message"].partition("Run: ")[2])
            assert main(["--json", *repair]) == (9 if result["id"] == "derived/same" else 0)
            [outcome] = json.loads(capsys.readouterr().out)
            if outcome["error"]:
                delete, preprocess = outcome["error"].partition("Recreate it: ")[2].split(", then ")
                assert main([*words_of(delete), "--yes"]) == main(words_of(preprocess)) == 0
                capsys.readouterr()
    assert main(["verify"]) == 0


def words_of(command: str) -> list[str]:
    name, *words = shlex.split(command)
    assert name == "rlds"
    return words
