"""Recording: chunks of episodes on any workers, then one commit as a dataset.

What is recorded stays until the dataset has its name, so that the same call continues a recording
that was killed, with the same result as one that was not.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from datasets_cli.core.options import part_of, takes_fields
from datasets_cli.core.progress import Progress, of_dataset
from datasets_cli.core.progress_bars import shown
from datasets_cli.environments.record.options import RANDOM, RecordCall, Recording
from datasets_cli.environments.record.run import FAMILY, RecordingRun, stage
from datasets_cli.errors import UsageError, argument
from datasets_cli.install.options import InstalledDataset, check_layout
from datasets_cli.parallel.engine import Workers
from datasets_cli.preprocessing.function import load_function
from datasets_cli.sources.new_files import replacing
from datasets_cli.store.cache_root import RECORDING, CacheRoot, check_id, has_manifest
from datasets_cli.store.commit import check_place, commit, restore
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.lock import locked
from datasets_cli.store.manifest import Manifest

CHUNKS = "chunks"


@takes_fields(RecordCall)
def record(call: RecordCall) -> InstalledDataset:
    """Record episodes of an environment into the dataset ``recorded/<out>``.

    Raises:
        UsageError: the dataset is there and is of something else, the environment or the policy
            cannot be had, a space has no columns, or gymnasium is not installed.
        RldsError: the environment or the policy failed, or a worker died. What is recorded is kept:
            the same call continues there.
    """
    config, layout = call.chosen_config(), call.layout
    recording = part_of(call, Recording)
    function = None if call.policy == RANDOM else call.policy
    if isinstance(function, str):
        function = load_function(function, name="policy")
    place, id = CacheRoot(config.root), recorded_id(call.out)
    check_layout(layout)
    with (
        shown(call.progress, "steps recorded") as screen,
        of_dataset(screen, id) as told,
        locked(place.lock(id), id, config.lock_timeout, told),
    ):
        restore(place, id)
        folder = place.dataset(id)
        older = open_dataset(folder) if has_manifest(folder) else None
        earlier = older.manifest if older and call.append else None
        run = RecordingRun(recording, function, earlier, call.check_actions)
        recordings = older.manifest.metadata.get("recordings", []) if older else []
        if was_committed := _is_committed(place, id, recordings):
            _remove(place, id)
        is_last = bool(recordings) and _is_of(recordings[-1], run.plan, but="first_episode")
        if older and is_last and (was_committed if call.append else len(recordings) == 1):
            told.note(f"{id} is up to date: the same call recorded it")
            manifest = older.manifest
        elif older is None or call.append:
            workers = Workers(num_workers=call.num_workers)
            manifest = _recorded(run, older, place, id, layout, workers, told)
        else:
            raise UsageError(
                f"{id} is there already and was recorded otherwise. Add to it with "
                f"{argument('append', 'True')}, choose another {argument('out')}, or "
                f"delete it first: rlds delete {id}"
            )
    return InstalledDataset.of(folder, manifest)


def _recorded(
    run: RecordingRun,
    older: Dataset | None,
    root: CacheRoot,
    id: str,
    layout: str | None,
    workers: Workers,
    progress: Progress,
) -> Manifest:
    """Record episodes behind those of a dataset, whose lock is held, and commit them."""
    work = root.downloads(id)
    check_place(root, id)
    _begin(work, run.plan)
    chunks = run.record(work / CHUNKS, workers, progress)
    manifest, staging = stage(root, id, run, chunks, older, layout, progress.writing)
    commit(root, staging, manifest)
    _remove(root, id)
    return manifest


def recorded_id(name: str) -> str:
    """Return the id of a recorded dataset, whose family may be left out."""
    return check_id(f"{FAMILY}/{name.removeprefix(f'{FAMILY}/')}")


def _is_committed(root: CacheRoot, id: str, recordings: list[dict[str, Any]]) -> bool:
    """Return whether a call was killed after its commit, before it had deleted its chunks."""
    path = root.downloads(id) / RECORDING
    plan = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    is_among = plan is not None and any(_is_of(each, plan) for each in recordings)
    return is_among or root.recorded(id).exists()


def _is_of(recording: dict[str, Any], plan: dict[str, Any], but: str = "") -> bool:
    return all(recording.get(name) == value for name, value in plan.items() if name != but)


def _remove(root: CacheRoot, id: str) -> None:
    """Delete the chunks of a recording that is committed, first by a rename."""
    # The new name says of any part that is left what the plan said.
    if not root.recorded(id).exists():
        root.downloads(id).rename(root.recorded(id))
    shutil.rmtree(root.recorded(id), ignore_errors=True)


def _begin(work: Path, plan: dict[str, Any]) -> None:
    """Make the folder of the recording, or keep that of a killed one."""
    path = work / RECORDING
    text = json.dumps(plan, indent=1)
    # A first call that failed before any episode was finished, such as one whose policy is wrong,
    # left nothing to lose.
    if not path.is_file() or not any((work / CHUNKS).glob("[0-9]*")):
        with replacing(path) as new:
            new.write_text(text, encoding="utf-8")
        return
    known = json.loads(path.read_text(encoding="utf-8"))
    differing = sorted(name for name in {*known, *plan} if known.get(name) != plan.get(name))
    if differing:
        told = "; ".join(f"{name}: {known.get(name)}, now {plan.get(name)}" for name in differing)
        raise UsageError(
            f"Another recording of the same name was interrupted ({told}). Continue it with the "
            f"same call, choose another {argument('out')}, or delete what it recorded: {work}"
        )
