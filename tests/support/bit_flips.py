"""A child process that flips one bit of a dataset after another and reads what is left.

It runs apart from the tests, so that a signal ends it and not them. The parent writes one flip as
JSON to a line of its standard input, and reads one outcome from a line of its standard output.
"""

from __future__ import annotations

import hashlib
import json
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase, is_non_tensor

from datasets_cli import FrameStack, ReplayBuffer, SliceSampler
from datasets_cli.errors import DamagedDataset
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.schema.mapping import DeviceOptions
from datasets_cli.store.check import check_digests
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.manifest import read_manifest

MOST_SECONDS = 20  # for one flip; then SIGALRM ends the process
MOST_MEMORY = 8 << 30
NUM_READS = 20
NUM_VARIANTS = 8  # how often the reads are drawn: what each must give is known


@dataclass(frozen=True)
class Flip:
    """One bit of one file of a dataset: 8 times the byte, and the bit in it.

    The seed chooses the reads, whether rows are copied into memory, and whether the bit flips
    before or after the dataset is opened.
    """

    folder: str
    name: str
    bit: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """``refused``, ``same`` or ``other`` values, or ``foreign``: another exception.

    ``is_found`` says whether ``check_digests`` names the file.
    """

    kind: str
    is_found: bool
    text: str


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:

    def flip() -> None:
        with path.open("r+b") as file:
            file.seek(bit // 8)
            (byte,) = file.read(1)
            file.seek(bit // 8)
            file.write(bytes([byte ^ 1 << bit % 8]))

    flip()
    try:
        yield
    finally:
        flip()


def read_all(storage: DatasetStorage, seed: int) -> str:
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    digest = hashlib.sha256()
    reads = _reads(storage, generator)
    for number in range(NUM_READS):
        _add(digest, reads[number % len(reads)]())
    return digest.hexdigest()


def _reads(storage: DatasetStorage, generator: torch.Generator) -> list[Callable[[], Any]]:
    num_rows, keys = len(storage), storage.dataset.keys

    def some(count: int) -> torch.Tensor:
        return torch.randint(num_rows, (count,), generator=generator)

    def sample(**by: Any) -> Any:
        sampler = SliceSampler(slice_len=3, strict_length=False, **by)
        return ReplayBuffer(storage=storage, sampler=sampler, batch_size=12).sample()

    def column() -> Any:
        return storage.column(keys[int(torch.randint(len(keys), (), generator=generator))])

    frames = FrameStack(storage, 4, key="pixels")
    stack = FrameStack(storage, 3, key=("observation", "float32"))
    return [
        lambda: storage.get(some(8)),
        lambda: storage.get(torch.arange(num_rows)),
        lambda: storage.get(torch.tensor([num_rows - 1, 0])),
        column,
        lambda: frames.get(some(6)),
        lambda: stack.get(some(6)),
        lambda: frames.get(torch.arange(num_rows)),
        sample,
        lambda: sample(traj_key="episode"),
        lambda: sample(end_key=("next", "done")),
        lambda: storage.offsets,
        lambda: [storage.dataset.final[key] for key in storage.dataset.final.keys],
        lambda: (storage.dataset.final.steps, storage.dataset.final.episodes),
    ]


def _add(digest: Any, found: Any) -> None:
    if isinstance(found, torch.Tensor):
        digest.update(str((found.dtype, tuple(found.shape))).encode())
        digest.update(found.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    elif is_non_tensor(found):
        digest.update(repr(found.tolist()).encode())
    elif isinstance(found, TensorDictBase):
        for name in sorted(found.keys()):
            digest.update(name.encode())
            _add(digest, found.get(name))
    elif isinstance(found, np.ndarray):
        digest.update(repr(found.tolist()).encode())
    elif isinstance(found, tuple | list):
        for item in found:
            _add(digest, item)


def try_flip(flip: Flip, expected: dict[tuple[str, int], str]) -> Outcome:
    folder, variant = Path(flip.folder), flip.seed % NUM_VARIANTS
    options = DeviceOptions(torch.device("cpu") if flip.seed % 3 == 0 else None)
    known = flip.folder, variant
    if known not in expected:
        expected[known] = read_all(DatasetStorage(open_dataset(folder, text=True)), variant)
    first = DatasetStorage(open_dataset(folder, options, text=True)) if flip.seed % 5 == 0 else None
    with flipped(folder / flip.name, flip.bit):
        try:
            found = read_all(
                first or DatasetStorage(open_dataset(folder, options, text=True)), variant
            )
            kind, text = ("same" if found == expected[known] else "other"), ""
        except DamagedDataset as error:
            kind, text = "refused", str(error)
        except BaseException:
            kind, text = "foreign", traceback.format_exc()
        try:
            check_digests(folder, read_manifest(folder))
            is_found = False
        except DamagedDataset as error:
            is_found = flip.name in str(error)
    return Outcome(kind, is_found, text)


def main() -> None:
    """Answer every line with one."""
    torch.set_num_threads(1)
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    expected: dict[tuple[str, int], str] = {}
    for line in sys.stdin:
        signal.alarm(MOST_SECONDS)
        outcome = try_flip(Flip(**json.loads(line)), expected)
        signal.alarm(0)
        print(json.dumps(asdict(outcome)), flush=True)


if __name__ == "__main__":
    main()
