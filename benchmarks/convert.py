"""How long a D4RL file takes to convert, and how much memory, beside TorchRL's own conversion.

    python benchmarks/convert.py [--rows 1000000] [--repeat 5]

Makes two files in D4RL's layouts. Converts each, every time in a fresh process, with this project
(all of it: hashes, conversion, statistics, fsync, commit) and with TorchRL (no hashes, no fsync),
and reads it with h5py, the least that either has to do. What this project wrote is compared with
the source, so that no figure is that of wrong values. No network is used.

Prints JSON: medians of seconds, peak resident memory above that of the imports, and ours/TorchRL.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import h5py
    import numpy as np

Result = dict[str, Any]

FILES = {
    "halfcheetah-medium-v2": "halfcheetah_medium-v2.hdf5",
    "halfcheetah-medium-v0": "halfcheetah_medium.hdf5",
}
EPISODE = 1000
LEAVES = {
    "observation": "observations",
    "action": "actions",
    "next/reward": "rewards",
    "next/observation": "next_observations",
    "info/qpos": "infos/qpos",
    "info/qvel": "infos/qvel",
    "info/action_log_probs": "infos/action_log_probs",
}


def make(folder: Path, name: str, rows: int) -> Result:
    """Write a file with D4RL's keys, element types and compression, and random content."""
    import h5py
    import numpy as np

    random, row = np.random.default_rng(0), np.arange(rows)
    walk = np.cumsum(random.standard_normal((rows, 17), dtype=np.float32), axis=0)
    observations = np.sin(walk / 10)
    columns = {
        "observations": observations,
        "actions": random.uniform(-1, 1, (rows, 6)).astype(np.float32),
        "rewards": random.standard_normal(rows, dtype=np.float32),
        "terminals": row % (7 * EPISODE) == EPISODE // 2,
        "timeouts": row % EPISODE == EPISODE - 1,
    }
    if name.endswith("v2"):
        columns |= {
            "next_observations": np.roll(observations, -1, axis=0),
            "infos/qpos": random.standard_normal((rows, 9)),
            "infos/qvel": random.standard_normal((rows, 9)),
            "infos/action_log_probs": random.standard_normal(rows, dtype=np.float32),
        }
    with h5py.File(folder / FILES[name], "w") as file:
        for key, values in columns.items():
            file.create_dataset(key, data=values, compression="gzip")
    return {"bytes": (folder / FILES[name]).stat().st_size}


def read_bare(folder: Path, name: str) -> Result:
    """Read every array whole with h5py, and drop it."""
    import h5py

    def read(path: str, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset):
            item[()]

    with h5py.File(folder / FILES[name]) as file:
        return measure(lambda: file.visititems(read))


def convert_ours(folder: Path, name: str) -> Result:
    """Convert with this project."""
    for module in ("sources.download", "install.installation", "recipes.d4rl.reader"):
        importlib.import_module(f"datasets_cli.{module}")
    import h5py  # noqa: F401

    from datasets_cli.config import Config
    from datasets_cli.install.installation import install_dataset
    from datasets_cli.install.options import InstallOptions

    config = Config(root=folder / "ours", offline=True)
    wish = InstallOptions(source=str(folder), accept_any=True)
    result = measure(lambda: install_dataset(f"d4rl/{name}", config, wish).path)
    return result | {"torch is imported": "torch" in sys.modules}


def convert_torchrl(folder: Path, name: str) -> Result:
    """Convert with TorchRL, whose download finds the file in place."""
    import h5py  # noqa: F401

    module = importlib.import_module("torchrl.data.datasets.d4rl")
    module.urllib.request.urlretrieve = lambda url, to: Path(to).symlink_to(folder / FILES[name])
    replay = module.D4RLExperienceReplay
    return measure(lambda: replay(name, 256, direct_download=True, root=folder / "torchrl"))


def check(folder: Path, name: str) -> Result:
    """Compare every leaf that this project wrote with the source, byte for byte."""
    import h5py

    converted = folder / "ours" / "datasets" / "d4rl" / name
    differ = {str(path.relative_to(converted))[:-7] for path in converted.rglob("*.memmap")}
    with h5py.File(folder / FILES[name]) as file:
        for leaf, values in expected_leaves(file):
            if (converted / f"{leaf}.memmap").read_bytes() == values.tobytes():
                differ.remove(leaf)
    if differ:
        raise ValueError(f"these leaves differ from the source: {sorted(differ)}")
    return {"every leaf equals the source": True}


def expected_leaves(file: h5py.File) -> Iterator[tuple[str, np.ndarray]]:
    """Yield ``(leaf, its values)`` by the rule of TED, computed from whole arrays."""
    import numpy as np

    terminated, timeouts = file["terminals"][:], file["timeouts"][:]
    done = terminated | timeouts
    done[-1] = True
    truncated, kept = timeouts | (done & ~terminated), np.ones_like(done)
    if (
        "next_observations" not in file
    ):  # a step that was cut off goes; the one before it is the end
        kept = terminated | ~done
        truncated[:-1] |= ~kept[1:] & ~done[:-1]
        following = np.roll(file["observations"][:], -1, axis=0)
        following[terminated] = 0
        yield "next/observation", following[kept]
    for leaf, key in LEAVES.items():
        if key in file:
            yield leaf, file[key][:][kept]
    ends = (terminated | truncated)[kept]
    yield "next/terminated", terminated[kept]
    yield "next/truncated", truncated[kept]
    yield "next/done", ends
    yield "episode", np.cumsum(ends, dtype=np.int64) - ends
    for leaf in ("done", "terminated", "truncated"):
        yield leaf, np.zeros_like(ends)


def measure(work: Callable[[], object]) -> Result:
    """Return the seconds of ``work`` and the peak of memory above that of the imports before it."""
    imports, start = peak_mb(), time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    peak = peak_mb()
    return {"seconds": seconds, "peak MB": peak, "peak MB above imports": peak - imports}


def peak_mb() -> float:
    """Return the most memory this process has had resident; the unit differs by platform."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


CONVERSIONS = {"h5py": read_bare, "ours": convert_ours, "torchrl": convert_torchrl}
STEPS: dict[str, Callable[..., Result]] = {"make": make, "check": check, **CONVERSIONS}


def run(step: str, folder: Path, name: str, *more: str) -> Result:
    """Do one step in a fresh process, once the disk is at rest.

    This process imports nothing large, because a child's peak of memory begins with its parent's.
    """
    os.sync()
    command = [sys.executable, __file__, "--step", step, str(folder), name, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(name: str, rows: int, repeat: int) -> Result:
    """Make one file, run everything on it in turn, and return the medians."""
    rounds: list[dict[str, Result]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        made = run("make", folder, name, str(rows))
        for _ in range(repeat):
            rounds.append({step: run(step, folder, name) for step in (*CONVERSIONS, "check")})
            for written in ("ours", "torchrl"):
                shutil.rmtree(folder / written, ignore_errors=True)
    result = {"file": made} | {step: medians([done[step] for done in rounds]) for step in rounds[0]}
    if not any("error" in result[step] for step in CONVERSIONS):
        ratios = [done["ours"]["seconds"] / done["torchrl"]["seconds"] for done in rounds]
        result["ours/torchrl"] = {
            "seconds": round(statistics.median(ratios), 3),
            "seconds, every round": [round(ratio, 3) for ratio in ratios],
            "peak MB": round(result["ours"]["peak MB"] / result["torchrl"]["peak MB"], 3),
        }
    return result


def medians(results: list[Result]) -> Result:
    """Return the medians of what every round measured, or the first round's error."""
    for result in results:
        if "error" in result:
            return result
    return {
        key: round(statistics.median(result[key] for result in results), 3)
        if isinstance(value, float)
        else value
        for key, value in results[0].items()
    }


def main() -> None:
    """Compare both layouts and print the result, or do one step of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        step, folder, name, *rows = arguments.step
        print(json.dumps(STEPS[step](Path(folder), name, *map(int, rows))))
        return
    result: Result = {
        "cores": os.cpu_count(),
        "memory in GB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "isal is installed": importlib.util.find_spec("isal") is not None,
        "rows": arguments.rows,
        "rounds": arguments.repeat,
    }
    result |= {name: compare(name, arguments.rows, arguments.repeat) for name in FILES}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
