"""Recording: chunks of episodes on any workers, then one commit as a dataset.

Finished chunks stay on disk until the commit: the same call resumes a recording that was killed,
with the same result.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from datasets_cli.core.options import part_of, takes_fields
from datasets_cli.core.progress import Note, Progress
from datasets_cli.core.progress_display import displayed
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
    """Record episodes of an environment into the dataset ``recorded/NAME``.

    Raises:
        UsageError: the dataset exists and was recorded by another call, an argument is invalid, the
            environment or the policy cannot be loaded, a space is not supported, or gymnasium is
            not installed.
        RldsError: the environment or the policy failed, or a worker died. The same call resumes
            after the finished episodes.
    """
    config, layout = call.chosen_config(), call.layout
    recording = part_of(call, Recording)
    function = None if call.policy == RANDOM else call.policy
    if isinstance(function, str):
        function = load_function(function, name="policy")
    place, id = CacheRoot(config.root), recorded_id(call.name)
    check_layout(layout)
    with (
        displayed(call.progress, "transitions recorded") as progress,
        locked(place.lock(id), id, config.lock_timeout, progress),
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
            progress(Note(f"{id} is up to date: the same call recorded it"))
            manifest = older.manifest
        elif older is None or call.append:
            workers = Workers(num_workers=call.num_workers)
            manifest = _recorded(run, older, place, id, layout, workers, progress)
        else:
            raise UsageError(
                f"{id} exists already, from another call of record.",
                id=id,
                argument="name",
                advice=f"Add to it with {argument('append', 'True')}, choose another "
                f"{argument('name')}, or delete it first: rlds delete {id}",
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
    """Record episodes, and commit them after the older dataset's; its lock is held."""
    work = root.downloads(id)
    check_place(root, id)
    _begin(work, run.plan)
    chunks = run.record(id, work / CHUNKS, workers, progress)
    manifest, staging = stage(root, id, run, chunks, older, layout, progress)
    commit(root, staging, manifest)
    _remove(root, id)
    return manifest


def recorded_id(name: str) -> str:
    """Return the id of a recorded dataset; the name can have the family in front."""
    return check_id(f"{FAMILY}/{name.removeprefix(f'{FAMILY}/')}")


def _is_committed(root: CacheRoot, id: str, recordings: list[dict[str, Any]]) -> bool:
    """Return whether a call was killed between its commit and the deletion of its chunks."""
    path = root.downloads(id) / RECORDING
    plan = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    is_among = plan is not None and any(_is_of(each, plan) for each in recordings)
    return is_among or root.recorded(id).exists()


def _is_of(recording: dict[str, Any], plan: dict[str, Any], but: str = "") -> bool:
    return all(recording.get(name) == value for name, value in plan.items() if name != but)


def _remove(root: CacheRoot, id: str) -> None:
    """Delete the chunks of a committed recording; a rename marks them first."""
    # The new name marks the remaining files as committed, as the plan did.
    if not root.recorded(id).exists():
        root.downloads(id).rename(root.recorded(id))
    shutil.rmtree(root.recorded(id), ignore_errors=True)


def _begin(work: Path, plan: dict[str, Any]) -> None:
    """Write the plan of the recording, or check it against the plan of a killed one."""
    path = work / RECORDING
    text = json.dumps(plan, indent=1)
    # A call that failed before its first finished episode, for example because of its policy, has
    # nothing to resume.
    if not path.is_file() or not any((work / CHUNKS).glob("[0-9]*")):
        with replacing(path) as new:
            new.write_text(text, encoding="utf-8")
        return
    known = json.loads(path.read_text(encoding="utf-8"))
    differing = sorted(name for name in {*known, *plan} if known.get(name) != plan.get(name))
    if differing:
        expected, found = ({name: each.get(name) for name in differing} for each in (known, plan))
        changes = "; ".join(f"{name}: {expected[name]}, now {found[name]}" for name in differing)
        raise UsageError(
            f"Another recording of the same name was interrupted ({changes}).",
            argument=differing[0],
            path=work,
            expected=expected,
            found=found,
            advice=f"Resume it with the same call, choose another {argument('name')}, or delete "
            f"its files: {work}",
        )
