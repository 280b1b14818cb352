"""One flipped bit anywhere: an error that names the file, or other values that verify finds.

RLDS_TEST_FLIPS says how many bits are flipped in each layout; ``make fuzz`` flips 10,000 in all.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from datasets_cli.schema.trajectory_file import HEADER_BYTES
from datasets_cli.store.manifest import LAYOUTS, read_manifest
from datasets_cli.store.writer import LayoutWriter
from tests.store.test_compact import frames_of, transitions, write
from tests.support.bit_flips import Flip, Outcome
from tests.support.interpreters import Piped

NUM_FLIPS = int(os.environ.get("RLDS_TEST_FLIPS", "12"))
LENGTHS = [30, 1, 9]
FINAL = [(0, 30), (-1, 32), (2, 42)]
"""The trajectory and the number of each final step; the second one is a trajectory alone."""
MANIFEST = "manifest.json"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small dataset of many types, with text, frames and a dictionary, in both layouts."""
    rows = transitions(LENGTHS, 0)
    starts = np.cumsum([0, *(length + 1 for length in LENGTHS)])[:-1]
    row = np.concatenate([np.arange(n) + s for n, s in zip(LENGTHS, starts, strict=True)])
    shots = frames_of(sum(LENGTHS) + len(LENGTHS))
    rows["pixels",], rows["next", "pixels"] = shots[row], shots[row + 1]
    rows["mission",] = np.array([f"take {number % 7} keys é" for number in row], object)
    above = tmp_path_factory.mktemp("flips")
    found = {
        layout: write(partial(LayoutWriter, layout), above / layout, rows, final=FINAL).folder
        for layout in LAYOUTS
    }
    assert "frames/pixels.zst.dictionary" in read_manifest(found["compact"]).files
    return found


class Child:
    """The process that flips and reads; begun again where a signal ended it."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process = Piped("-m", "tests.support.bit_flips")

    def ask(self, flip: Flip) -> Outcome:
        """Return the outcome of a flip; ``signal`` where the process ended."""
        self._process.write(json.dumps(asdict(flip)) + "\n")
        if line := self._process.stdout.readline():
            return Outcome(**json.loads(line))
        code = self._process.finish()
        self._begin()
        _flip_back(flip)
        return Outcome("signal", False, f"the process ended with {code}")

    def close(self) -> None:
        """End the process."""
        assert self._process.finish() == 0


def _flip_back(flip: Flip) -> None:
    path = Path(flip.folder) / flip.name
    content = bytearray(path.read_bytes())
    content[flip.bit // 8] ^= 1 << flip.bit % 8
    path.write_bytes(content)


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    found = Child()
    yield found
    found.close()


def check(flips: list[Flip], child: Child) -> Counter[tuple[str, str]]:
    """Try flips; return how many of each kind of file had each outcome."""
    counts: Counter[tuple[str, str]] = Counter()
    for flip in flips:
        outcome = child.ask(flip)
        counts[Path(flip.name).suffix, outcome.kind] += 1
        assert outcome.kind in ("refused", "same", "other"), (flip, outcome.text)
        assert outcome.is_found, (flip, outcome)
        if outcome.kind == "refused":
            names = [Path(flip.name).name.split(".")[0], *["/final:"][: "final/" in flip.name]]
            assert any(name in outcome.text for name in names), (flip, outcome.text)
    return counts


@pytest.mark.timeout(300 + NUM_FLIPS)
@pytest.mark.parametrize("layout", ["compact", "ted"])
def test_a_random_bit_anywhere(layout: str, folders: dict[str, Path], child: Child) -> None:
    folder, rng = folders[layout], random.Random(layout)
    sizes = {name: (folder / name).stat().st_size for name in read_manifest(folder).files}
    sizes[MANIFEST] = (folder / MANIFEST).stat().st_size
    names = sorted(name for name, size in sizes.items() if size)
    flips = []
    for seed in range(NUM_FLIPS):
        name = rng.choice(names)
        flips.append(Flip(str(folder), name, rng.randrange(8 * sizes[name]), seed))
    counts = check(flips, child)
    assert counts.total() == NUM_FLIPS
    for (suffix, kind), count in sorted(counts.items()):
        print(f"{layout:8} {suffix:12} {kind:8} {count}")


FAR = [31, 40, 63]
CASES = [
    *((name, bit) for name in ("frames/pixels.zst.offsets", "trajectories.npy") for bit in FAR),
    *(("row.memmap", bit) for bit in (31,)),
]


@pytest.mark.parametrize("layout", ["compact", "ted"])
@pytest.mark.parametrize("name", ["episode.memmap", "recorded_step.memmap", "text.offsets"])
def test_a_high_bit_of_a_number_of_a_final_step_is_always_refused(
    name: str, layout: str, folders: dict[str, Path], child: Child
) -> None:
    flips = [
        Flip(str(folders[layout]), f"final/{name}", 64 * entry + bit, seed)
        for seed, (entry, bit) in enumerate(product(range(3), FAR), start=1)
    ]
    assert {kind for _, kind in check(flips, child)} == {"refused"}


@pytest.mark.parametrize(("name", "bit"), CASES)
def test_a_high_bit_of_an_index_is_always_refused(
    name: str, bit: int, folders: dict[str, Path], child: Child
) -> None:
    folder = folders["compact"]
    skipped = HEADER_BYTES if name == "trajectories.npy" else 0
    width = 4 if name == "row.memmap" else 8
    count = ((folder / name).stat().st_size - skipped) // width
    entries = [0, count // 2, count - 1]
    flips = [
        Flip(str(folder), name, 8 * (skipped + width * entry) + bit, seed)
        for seed, entry in enumerate(entries, start=1)
    ]
    assert {kind for _, kind in check(flips, child)} == {"refused"}
