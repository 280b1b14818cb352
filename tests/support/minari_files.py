"""Datasets in Minari's format: written by Minari's own writer, some then changed by h5py."""

from __future__ import annotations

import functools
import gzip
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import minari
import numpy as np
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer
from minari.dataset._storages.hdf5_storage import encode_frame

from tests.support.paths import TEST_DATA

DOOR = TEST_DATA / "minari" / "door-human-v2"
NAME = "test/built-v0"

DATA_FORMAT = "hdf5"
"""The form that ``write`` writes: ``hdf5``, ``arrow`` or ``parquet``."""


def unpack_door(datasets: Path) -> Path:
    folder = datasets / "D4RL" / "door" / "human-v2" / "data"
    folder.mkdir(parents=True)
    shutil.copy(DOOR / "metadata.json", folder)
    data = folder / "main_data.hdf5"
    with gzip.open(DOOR / "main_data.hdf5.gz") as packed, data.open("wb") as file:
        shutil.copyfileobj(packed, file)
    return folder


def box(*shape: int, dtype: type = np.float32) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, shape, dtype)


def frames(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def sample(space: spaces.Space, rows: int, rng: np.random.Generator) -> Any:
    """Return ``rows`` values of a space as Minari's buffers have them: a list at every leaf."""
    if isinstance(space, spaces.Dict):
        return {key: sample(item, rows, rng) for key, item in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(sample(item, rows, rng) for item in space.spaces)
    if isinstance(space, spaces.Text):
        return ["".join(rng.choice(list("abc"), rng.integers(1, 9))) for _ in range(rows)]
    space.seed(int(rng.integers(1 << 30)))
    return [space.sample() for _ in range(rows)]


def episode(
    steps: int,
    observation: spaces.Space,
    action: spaces.Space,
    rng: np.random.Generator,
    **changes: Any,
) -> EpisodeBuffer:
    """Return an episode that terminates; ``changes`` replace parts of it."""
    parts = {
        "seed": int(rng.integers(1 << 30)),
        "observations": sample(observation, steps + 1, rng),
        "actions": sample(action, steps, rng),
        "rewards": list(rng.normal(size=steps)),
        "terminations": [False] * (steps - 1) + [True],
        "truncations": [False] * steps,
        "infos": {},
    }
    return EpisodeBuffer(**(parts | changes))


def write(
    observation: spaces.Space, action: spaces.Space, episodes: list[EpisodeBuffer], **options: Any
) -> Path:
    """Write a dataset under ``MINARI_DATASETS_PATH`` with Minari's writer and return its folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of facts that these datasets need not state
        dataset = minari.create_dataset_from_buffers(
            NAME,
            episodes,
            observation_space=observation,
            action_space=action,
            data_format=DATA_FORMAT,
            **options,
        )
    return Path(dataset.spec.data_path)


def build(
    observation: spaces.Space,
    action: spaces.Space,
    lengths: tuple[int, ...] = (3, 1, 5),
    *,
    infos: Callable[[int], dict[str, Any]] = lambda steps: {},
    **options: Any,
) -> Path:
    rng = np.random.default_rng(7)
    buffers = [episode(n, observation, action, rng, infos=infos(n)) for n in lengths]
    return write(observation, action, buffers, **options)


def change(folder: Path, edit: Callable[[h5py.File], None]) -> Path:
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        edit(file)
    return folder


def change_metadata(folder: Path, **entries: Any) -> Path:
    """Replace entries of ``metadata.json``; None takes one away."""
    path = folder / "metadata.json"
    metadata = json.loads(path.read_text()) | entries
    metadata = {key: value for key, value in metadata.items() if value is not None}
    path.write_text(json.dumps(metadata))
    return folder


def edited(edit: Callable[[h5py.File], None]) -> Callable[[], Path]:
    """Return the builder of a plain dataset whose file an edit changes."""

    @functools.wraps(edit)
    def builder() -> Path:
        return change(build(box(2), box(1)), edit)

    return builder


def nested() -> Path:
    inner = spaces.Dict({"light switch": box(2), "kettle": box(7, dtype=np.float64)})
    return build(spaces.Dict({"achieved_goal": inner, "observation": box(5)}), box(4))


def tuples() -> Path:
    hand = spaces.Tuple((spaces.Discrete(5), box(2)))
    return build(spaces.Tuple((box(3), hand)), spaces.Tuple((box(1), spaces.Discrete(4))))


def discrete() -> Path:
    return build(spaces.Discrete(16), spaces.Discrete(4, start=1))


def multi() -> Path:
    observation = spaces.Dict({"bits": spaces.MultiBinary(6), "dice": spaces.MultiDiscrete([3, 9])})
    return build(observation, spaces.MultiDiscrete([[2, 3], [4, 5]]))


def text_in_dict() -> Path:
    mission = spaces.Text(10, charset="abc")
    return build(spaces.Dict({"mission": mission, "direction": spaces.Discrete(4)}), box(1))


def missions() -> Path:
    """As MiniGrid's: an image, a direction, and a mission that stays the same in an episode."""
    observation = spaces.Dict(
        {
            "mission": spaces.Text(200),
            "image": frames(7, 7, 3),
            "direction": spaces.Discrete(4),
        }
    )
    rng = np.random.default_rng(9)
    texts = ["go to the red ball", "go to the красный мяч 🟥", "", "a\nb\tc"]
    buffers = []
    for length, text in zip((3, 1, 5, 2), texts, strict=True):
        sampled = sample(observation, length + 1, rng) | {"mission": [text] * (length + 1)}
        buffers.append(episode(length, observation, spaces.Discrete(7), rng, observations=sampled))
    return write(observation, spaces.Discrete(7), buffers)


def changing_texts() -> Path:
    """Another text at every step, in observations, infos of both lengths, and part of an action."""
    word = spaces.Text(40)
    action = spaces.Dict({"say": word, "move": spaces.Discrete(3)})

    def infos(steps: int) -> dict[str, Any]:
        return {
            "told": [f"told {step} of {steps} é" for step in range(steps + 1)],
            "inner": {"heard": [f"heard {step}" for step in range(steps)]},
        }

    return build(spaces.Dict({"hint": word, "x": box(2)}), action, (4, 1, 7), infos=infos)


@edited
def texts_of_fixed_length(file: h5py.File) -> None:
    """Texts as h5py writes arrays of bytes, one of which is not UTF-8."""
    for name in file:
        steps = file[name]["rewards"].size
        file[name]["infos/note"] = np.array([b"a", b"caf\xe9", b""] * steps, "S9")[:steps]


TEXTS = [text_in_dict, missions, changing_texts, texts_of_fixed_length]
"""Builders of datasets with text."""


def small_frames() -> Path:
    return build(spaces.Dict({"image": frames(7, 7, 3)}), spaces.Discrete(7))


def raw_frames() -> Path:
    return build(frames(40, 36, 3), spaces.Discrete(7), jpeg_encoding=False)


def no_end_flag() -> Path:
    rng = np.random.default_rng(3)
    flags = {"terminations": [False] * 4, "truncations": [False] * 4}
    buffers = [episode(4, box(2), box(1), rng, **flags) for _ in range(3)]
    return write(box(2), box(1), buffers)


@edited
def no_infos(file: h5py.File) -> None:
    for name in file:
        del file[name]["infos"]


def infos_of_both_lengths() -> Path:
    def infos(steps: int) -> dict[str, Any]:
        states = np.arange(steps + 1, dtype=np.float32)
        return {
            "state": {"qpos": list(np.stack([states, -states], 1)), "on": [True] * (steps + 1)},
            "distance": list(states[:-1].astype(np.float64)),
        }

    return build(box(2), box(1), infos=infos)


def many_episodes() -> Path:
    """Twelve: by name, episode_10 and episode_11 come before episode_2."""
    return build(box(2), box(1), tuple(range(1, 13)))


@edited
def gap_in_numbers(file: h5py.File) -> None:
    file.move("episode_1", "episode_20")
    file.move("episode_2", "episode_9")


@edited
def no_seeds(file: h5py.File) -> None:
    del file["episode_1"].attrs["seed"]


@edited
def odd_numbers(file: h5py.File) -> None:
    """NaN, infinities and negative zero, which only a comparison of bytes tells from others."""
    file["episode_0/observations"][1] = [np.nan, -0.0]
    file["episode_0/rewards"][:2] = [-np.inf, -0.0]


@edited
def big_endian(file: h5py.File) -> None:
    for name in file:
        actions = file[name]["actions"][:]
        del file[name]["actions"]
        file[name]["actions"] = actions.astype(">f4")


def no_spaces() -> Path:
    folder = build(spaces.Dict({"a": box(2), "b": frames(7, 7)}), spaces.Discrete(3))
    return change_metadata(folder, observation_space=None, action_space=None)


def whole_rewards() -> Path:
    """An episode that never scores: its list of rewards has Python ints only, and is stored so."""
    rng = np.random.default_rng(4)
    rewards: list[list[float]] = [[0, 0, 0], [0, 0, 0.5], [0, 1, 0]]
    buffers = [episode(3, box(2), box(1), rng, rewards=values) for values in rewards]
    return write(box(2), box(1), buffers)


@edited
def odd_names_and_types(file: h5py.File) -> None:
    """Names that a tensordict's folder keeps for itself, and unsigned numbers of every size."""
    rng = np.random.default_rng(5)
    for name in file:
        infos, steps = file[name].require_group("infos"), file[name]["rewards"].size
        infos["shape"] = rng.integers(0, 2**16, steps, np.uint16)
        infos["device"] = rng.integers(0, 2**32, (steps + 1, 1), np.uint32)
        infos["_type"] = rng.integers(0, 2**64, steps + 1, np.uint64)
        infos["meta.json/x.memmap"] = rng.integers(0, 2**16, (steps, 2, 2), np.uint16)
        infos["text/device~"] = rng.random((steps, 0))
        infos["index"] = np.arange(steps)


def zero_width() -> Path:
    def edit(file: h5py.File) -> None:
        for name in file:
            file[name]["observations/goal"] = np.zeros((file[name]["rewards"].size + 1, 0))

    return change(build(spaces.Dict({"arm": box(2)}), box(1)), edit)


def scalars() -> Path:
    """Spaces without a dimension, and numbers of every size."""
    types = (np.int8, np.uint16, np.int32, np.uint64, np.float16, np.float64, np.uint8)
    parts = {f"{np.dtype(kind)}": spaces.Box(0, 9, (2, 3), kind) for kind in types}
    observation = spaces.Dict({"x": box(), **parts})
    return build(observation, spaces.Box(-1, 1, (), np.float64))


def infos_of_every_kind() -> Path:
    """Infos with a row for each observation; pairs where Minari's writer takes them."""

    def infos(steps: int) -> dict[str, Any]:
        rows = steps + 1
        states = np.arange(rows * 6, dtype=np.float32).reshape(rows, 3, 2)
        return {
            "on": [row % 2 == 0 for row in range(rows)],
            "count": list(range(rows)),
            "elapsed": [0.5 * row for row in range(rows)],
            "state": list(states),
            "said": [f"é {row}" for row in range(rows)],
            "inner": {"deep": {"q": list(states[:, 0]), "t": [1.5] * rows}},
            "both": (list(range(rows)), list(states[:, :, 0])),
        } | ({} if DATA_FORMAT == "hdf5" else {"pair": [[row, -row] for row in range(rows)]})

    return build(spaces.Dict({"arm": box(2)}), box(1), infos=infos)


PLAIN = [
    nested,
    tuples,
    discrete,
    multi,
    text_in_dict,
    small_frames,
    raw_frames,
    no_end_flag,
    no_infos,
    infos_of_both_lengths,
    many_episodes,
    gap_in_numbers,
    no_seeds,
    odd_numbers,
    big_endian,
    odd_names_and_types,
    no_spaces,
    whole_rewards,
    zero_width,
    scalars,
    infos_of_every_kind,
]
"""Builders of datasets whose every array is stored as it is."""


def jpeg_of_unequal_length() -> Path:
    return build(spaces.Dict({"camera": frames(40, 36, 3), "arm": box(2)}), frames(33, 47))


def jpeg_of_equal_length() -> Path:
    """Uniform frames compress to the same length: Minari stores a matrix of bytes."""
    rng = np.random.default_rng(5)
    shades = [[np.full((40, 36, 3), 8 * n + k, np.uint8) for k in range(4)] for n in range(3)]
    space = frames(40, 36, 3)
    buffers = [episode(3, space, box(1), rng, observations=shade) for shade in shades]
    return write(space, box(1), buffers)


def jpeg_of_both_kinds() -> Path:
    rng = np.random.default_rng(6)
    space = frames(40, 36)
    same = [np.full((40, 36), 100 + k, np.uint8) for k in range(4)]
    buffers = [episode(3, space, box(1), rng), episode(3, space, box(1), rng, observations=same)]
    return write(space, box(1), buffers)


def jpeg_beyond_the_spaces() -> Path:
    """Minari 0.5.3 encoded small frames, and those in infos, though no space makes them images."""
    pixels = np.random.default_rng(8).integers(0, 255, (4, 7, 7, 3), dtype=np.uint8)

    def edit(file: h5py.File) -> None:
        for path in ("observations", "infos/view"):
            file["episode_0"].pop(path, None)
            encoded = [encode_frame(frame) for frame in pixels]
            file["episode_0"].create_dataset(path, data=encoded, dtype=h5py.vlen_dtype(np.uint8))

    return change(build(frames(7, 7, 3), box(1), (3,)), edit)


def jpeg_in_a_tuple() -> Path:
    return build(spaces.Tuple((frames(40, 36, 3), spaces.Discrete(2), frames(32, 32))), box(1))


JPEG = [jpeg_of_unequal_length, jpeg_of_equal_length, jpeg_of_both_kinds, jpeg_in_a_tuple]
"""Builders of datasets with encoded frames."""

UNREADABLE = {
    gap_in_numbers: "Minari reads the episodes from 0 up to total_episodes",
    no_spaces: "Minari needs the spaces, or an environment that has them",
    zero_width: "Minari reads no array that its space lacks",
    texts_of_fixed_length: "Minari leaves bytes that are not UTF-8 as they are",
}
"""What Minari's own reader does not give; tests compare these with h5py."""
