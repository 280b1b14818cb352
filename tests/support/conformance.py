"""One small dataset of every family, as its publisher serves it, and what must become of it.

A recipe joins the suite of ``test_conformance.py`` by being there; its case is an entry of CASES:

    "lunar": Case("lunar/easy-v1", FOLDER, read_lunar, lambda: {"https://…/easy-v1.npz": b"…"}),

``read`` says what the rows must be. It reads the files with what their publisher would read them
with, and plain loops; it never imports anything of ``datasets_cli``.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest

from datasets_cli.catalogue.entries import families, load_recipe
from datasets_cli.config import Config
from datasets_cli.install.installation import Installation, install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipe import Resource
from datasets_cli.recipes.d4rl import catalogue as d4rl
from datasets_cli.recipes.neorl2 import catalogue as neorl2
from datasets_cli.recipes.robomimic import catalogue as robomimic
from datasets_cli.sources.http import Http
from tests.support import minari_values, ogbench_files
from tests.support.demo_pages import DATA, PUBLISHERS, pages
from tests.support.origin import GOOD, Fault, Origin
from tests.support.paths import TEST_DATA
from tests.support.rlds_files import BRIDGE, listed_pages, read_bridge
from tests.support.values import Expected, expect, read_source

DOOR = DATA / "d4rl" / "hand_dapg" / "door-v0_demos_clipped.hdf5"
SIMGLUCOSE = TEST_DATA / "neorl2"


@dataclass(frozen=True)
class Case:
    """A small dataset of one family.

    Args:
        id: the dataset, one of the catalogue.
        folder: its files, as the publisher has them.
        read: returns what the rows of those files must be, read by nothing of ours.
        published: returns ``{URL: bytes}`` of all that the publisher answers: the files, and the
            pages of its API that the recipe asks for.
        prepare: changes the catalogue, where the files are not those that it states.
    """

    id: str
    folder: Path
    read: Callable[[Path], Expected]
    published: Callable[[], Mapping[str, bytes]]
    prepare: Callable[[pytest.MonkeyPatch], None] = lambda patch: None

    @property
    def family(self) -> str:
        return self.id.partition("/")[0]

    def expected(self) -> Expected:
        """Return what must be on the disk."""
        return self.read(self.folder)


def published_families() -> list[str]:
    """Return the families that a publisher serves; files that ship with a recipe have none."""
    return [family for family in families() if load_recipe(family).folder is None]


def case_of(family: str) -> Case:
    """Return a family's case, or fail with what to add."""
    assert family in CASES, (
        f"The recipe {family} has no case in tests/conformance.py, so nothing shows that it works. "
        f"Add one to CASES: Case(id, folder, read, published), with a small dataset of {family} in "
        "its publisher's format, a function that reads its rows independently of the recipe, and "
        "the pages that serve it. docs/adding-a-dataset.md says more."
    )
    return CASES[family]


@contextmanager
def prepared(family: str) -> Iterator[Case]:
    """Give a family's case while the catalogue states its files."""
    case = case_of(family)
    with pytest.MonkeyPatch.context() as patch:
        case.prepare(patch)
        yield case


def install(case: Case, root: Path, layout: str) -> Path:
    """Download and convert a case from a server that does nothing wrong; return its folder."""
    config = Config(root=root)
    with Origin() as origin:
        http = Publisher(case, origin, config).http
        return install_dataset(case.id, config, InstallOptions(layout=layout), http=http).path


# The publisher.


class Loopback(Http):
    """Asks the server on loopback for everything, by ``host/path``, and hardly waits."""

    def __init__(self, config: Config, origin: Origin) -> None:
        super().__init__(config, retries=1, backoff_seconds=0.0)
        self._origin = origin

    def candidates(self, url: str) -> list[str]:
        return [self._origin.url + path_of(url)]


def path_of(url: str) -> str:
    return url.partition("://")[2]


class Publisher:
    """The server of one case.

    Args:
        case: what it serves.
        origin: how.
        config: of the client.

    ``content`` is what lies at each path, ``resources`` the files of the dataset, and ``asked`` the
    paths that the recipe asks for to find them.
    """

    def __init__(self, case: Case, origin: Origin, config: Config) -> None:
        self.case, self.origin, self.config = case, origin, config
        self.content = {path_of(url): data for url, data in case.published().items()}
        for path, data in self.content.items():
            origin.put(path, data)
        self.http = Loopback(config, origin)
        self.resources = Installation(config, InstallOptions(), self.http).plan(case.id).resources
        self.asked = [request.path[1:] for request in origin.requests]
        origin.requests.clear()

    def path(self, resource: Resource) -> str:
        """Return where a file is asked for first."""
        return path_of(resource.urls[0])

    def damage(self, resource: Resource, fault: Callable[[bytes], Fault]) -> None:
        """Spoil a file, but not the answers of the API that the recipe asks for before."""
        path = self.path(resource)
        self.origin.script(path, *[GOOD] * self.asked.count(path))
        self.origin.always(path, fault(self.content[path]))

    def heal(self, resource: Resource) -> None:
        self.origin.always(self.path(resource), GOOD)


@cache
def demo(name: str) -> dict[str, bytes]:
    """Return the pages of the demo that stand for one publisher."""
    folder = f"/{name}/"
    return {
        PUBLISHERS[name] + path.removeprefix(folder): data
        for path, data in pages().items()
        if path.startswith(folder)
    }


def bucket() -> dict[str, bytes]:
    """Return the pages of the demo's bucket, whose list is asked for by a prefix."""
    served = demo("gcs")
    (listing,) = [url for url in served if url.endswith("/o")]
    return {**served, f"{listing}?prefix=dqn/Pong/5/replay_logs/": served[listing]}


def state_door(patch: pytest.MonkeyPatch) -> None:
    """Let the catalogue state the size and checksum of the demo's file instead of D4RL's own."""
    data, table = DOOR.read_bytes(), d4rl._table
    stated = {"bytes": str(len(data)), "sha256": hashlib.sha256(data).hexdigest()}
    known = {**table(), "door-human-v0": table()["door-human-v0"] | stated}
    patch.setattr(d4rl, "_table", lambda: known)


LIFT = TEST_DATA / "robomimic" / "lift_low_dim.hdf5"


def state_lift(patch: pytest.MonkeyPatch) -> None:
    """Let the catalogue state the size and checksum of the file of two demonstrations."""
    data, name, table = LIFT.read_bytes(), "lift/ph/low_dim", robomimic._table
    stated = {"bytes": str(len(data)), "sha256": hashlib.sha256(data).hexdigest()}
    known = {**table(), name: table()[name] | stated}
    patch.setattr(robomimic, "_table", lambda: known)


def state_simglucose(patch: pytest.MonkeyPatch) -> None:
    """State the md5 of the train file that was cut from the published val file."""
    table = neorl2._table()
    md5 = hashlib.md5((SIMGLUCOSE / "Simglucose-train.npz").read_bytes()).hexdigest()
    known = {**table, "Simglucose": table["Simglucose"] | {"train_md5": md5}}
    patch.setattr(neorl2, "_table", lambda: known)


# What must become of the files.


def read_door(folder: Path) -> Expected:
    return expect(read_source(folder / DOOR.name))


def read_minari(folder: Path) -> Expected:
    """Every step is a row: Minari records one observation more than there are steps."""
    leaves = minari_values.expected(minari_values.by_h5py(folder))
    texts = minari_values.texts_by_h5py(folder)
    ends = np.flatnonzero(leaves["next", "done"]) + 1
    return Expected(leaves, [0, *ends.tolist()], recorded=True, texts=texts)


def read_simglucose(folder: Path) -> Expected:
    """The rows of train, then those of val; each row names its file."""
    splits = {name: np.load(folder / f"Simglucose-{name}.npz") for name in ("train", "val")}
    names = {
        "obs": "observations",
        "action": "actions",
        "reward": "rewards",
        "next_obs": "next_observations",
        "done": "terminals",
        "truncated": "timeouts",
    }
    source = {
        name: np.concatenate([file[key] for file in splits.values()]) for key, name in names.items()
    }
    texts = [name for name, file in splits.items() for _ in file["reward"]]
    return replace(expect(source), texts={("split",): texts})


def read_iris(folder: Path) -> Expected:
    """A row is a step that is rewarded by 1 and ends the trajectory; its action is the class."""
    header, _, data = (folder / "iris.arff").read_text().partition("@DATA\n")
    classes = header[header.index("{") + 1 : header.index("}")].split(",")
    rows = [line.split(",") for line in data.splitlines() if line and not line.startswith("%")]
    ones = np.ones(len(rows))
    observations = np.array([[float(cell) for cell in row[:-1]] for row in rows])
    actions = np.array([classes.index(row[-1]) for row in rows], np.int64)
    source = {"observations": observations, "actions": actions, "rewards": ones, "terminals": ones}
    return expect(source)


def read_pong(folder: Path) -> Expected:
    """Put the rows of all logs where they were written, and take the empty ones away.

    A log is a ring of C slots; row n lies in slot n % C. A log is written before its last slot is,
    and ``add_count`` is the next row's number, but in the last log its slot. Three empty rows stand
    before each episode.
    """
    names = {
        name: f"$store$_{name[:-1]}_ckpt"
        for name in ("observations", "actions", "rewards", "terminals")
    }
    written: dict[int, dict[str, np.ndarray]] = {}
    next_row = 0
    for log in range(len(list(folder.glob("add_count_ckpt.*.gz")))):
        ring = {key: load(folder / f"{name}.{log}.gz") for key, name in names.items()}
        num_slots, count = len(ring["actions"]), int(load(folder / f"add_count_ckpt.{log}.gz"))
        next_row = next_row + 1 + count if log and count < num_slots - 1 else count
        for row in range(max(0, next_row - num_slots), next_row):
            written[row] = {key: values[row % num_slots] for key, values in ring.items()}
    steps, num_empty = [], 3
    for row in range(next_row):
        if num_empty:
            num_empty -= 1
            continue
        steps.append(written[row])
        num_empty = 3 if written[row]["terminals"] else 0
    return expect({key: np.stack([step[key] for step in steps]) for key in names})


def load(path: Path) -> np.ndarray:
    with gzip.open(path) as file:
        values: np.ndarray = np.load(file)
    return values


def read_lift(folder: Path) -> Expected:
    """Read each demonstration in the order of its number; every step is a row."""
    names = {"actions": ("action",), "rewards": ("next", "reward")}
    names |= {name: ("info", name) for name in ("dones", "states")}
    rows: dict[tuple[str, ...], list[np.ndarray]] = {}
    splits, offsets = [], [0]
    with h5py.File(folder / LIFT.name) as file:
        masks = {name: {each.decode() for each in file["mask"][name]} for name in file["mask"]}
        for number, demo in enumerate(sorted(file["data"], key=lambda demo: int(demo[5:]))):
            steps = file["data"][demo].attrs["num_samples"]
            found = {key: file["data"][demo][name][:] for name, key in names.items()}
            for name, values in file["data"][demo]["obs"].items():
                found["observation", name] = values[:]
                found["next", "observation", name] = file["data"][demo]["next_obs"][name][:]
            for name in masks.keys() - {"train", "valid"}:
                found["info", "mask", name] = np.full(steps, demo in masks[name])
            found["next", "reward"] = found["next", "reward"][:, None]
            found["episode",] = np.full(steps, number)
            last = (np.arange(steps) == steps - 1)[:, None]
            for flag, ends in (("done", last), ("truncated", last), ("terminated", last & False)):
                found |= {(flag,): last & False, ("next", flag): ends}
            for key, values in found.items():
                rows.setdefault(key, []).append(values)
            splits += ["train" if demo in masks["train"] else "valid"] * steps
            offsets.append(offsets[-1] + int(steps))
    leaves = {key: np.concatenate(values) for key, values in rows.items()}
    return Expected(leaves, offsets, recorded=True, texts={("split",): splits})


CASES = {
    case.family: case
    for case in (
        Case("d4rl/door-human-v0", DOOR.parent, read_door, lambda: demo("d4rl"), state_door),
        Case(
            "minari/D4RL/door/human-v2",
            DATA / "minari" / "D4RL" / "door" / "human-v2" / "data",
            read_minari,
            lambda: demo("hf"),
        ),
        Case(
            "neorl2/Simglucose",
            SIMGLUCOSE,
            read_simglucose,
            lambda: {
                f"http://datasets.polixir.site/neorl2/Simglucose/{path.name}": path.read_bytes()
                for path in SIMGLUCOSE.glob("Simglucose-*.npz")
            },
            state_simglucose,
        ),
        Case(
            "openml/61",
            DATA / "openml" / "data" / "v1" / "download" / "61",
            read_iris,
            lambda: demo("openml"),
        ),
        Case(
            "atari_dqn/Pong/5~ckpt0-3",
            DATA / "atari_dqn" / "Pong" / "5" / "replay_logs",
            read_pong,
            bucket,
        ),
        Case(
            "robomimic/lift/ph/low_dim",
            LIFT.parent,
            read_lift,
            lambda: {f"{robomimic.STANFORD}lift/ph/low_dim.hdf5": LIFT.read_bytes()},
            state_lift,
        ),
        Case(
            "ogbench/pointmaze-medium-navigate-singletask-task1-v0",
            ogbench_files.FOLDER,
            ogbench_files.read_task1,
            ogbench_files.published,
        ),
        Case(
            "tfds/bridge_dataset/1.0.0",
            BRIDGE,
            read_bridge,
            lambda: listed_pages(BRIDGE, "gresearch", "robotics/bridge_dataset/1.0.0/"),
        ),
    )
}
