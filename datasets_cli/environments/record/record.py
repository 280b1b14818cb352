"""Recording: chunks of episodes on any workers, then one commit as a dataset.

What is recorded stays until the dataset has its name, so that the same call continues a recording
that was killed, with the same result as one that was not:

<root>/downloads/recorded/NAME/    recording.json: what is recorded; chunks/
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from datasets_cli.config import Config
from datasets_cli.environments.record.options import RecordOptions
from datasets_cli.environments.record.policies import RANDOM, PolicyFunction
from datasets_cli.environments.record.run import Run
from datasets_cli.environments.record.stage import FAMILY, stage
from datasets_cli.errors import UsageError
from datasets_cli.installed.outcomes import InstalledDataset
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.preprocessing.function_digest import name_of
from datasets_cli.preprocessing.functions import load_function
from datasets_cli.progress import Progress
from datasets_cli.progress_bars import shown
from datasets_cli.sources.disk import disk_errors, make_folder
from datasets_cli.store.cache_root import CacheRoot, check_id, has_manifest
from datasets_cli.store.commit import check_one_disk, commit, restore
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.lock import locked
from datasets_cli.store.manifest import LAYOUTS
from datasets_cli.store.tables import remove_tables

PLAN = "recording.json"
CHUNKS = "chunks"


def record_episodes(
    env: str,
    out: str,
    config: Config,
    *,
    policy: str | PolicyFunction = RANDOM,
    layout: str | None = None,
    append: bool = False,
    workers: Workers = IN_THIS_PROCESS,
    progress: Progress | None = None,
    **options: Any,
) -> InstalledDataset:
    """Record episodes into the dataset ``recorded/<out>`` and return what it is."""
    name = policy if isinstance(policy, str) else name_of(policy)
    wanted = RecordOptions(env, name, **options)
    function = None if policy == RANDOM else policy
    if isinstance(function, str):
        function = load_function(function, option="--policy")
    root, id = CacheRoot(config.root), recorded_id(out)
    if layout not in (None, *LAYOUTS):
        raise UsageError(f"The layout {layout!r} does not exist. Expected: {', '.join(LAYOUTS)}.")
    folder, work = root.dataset(id), root.downloads(id)
    with (
        shown(progress, "steps recorded") as told,
        locked(root.lock(id), id, config.lock_timeout, told),
    ):
        restore(root, id)
        older = open_dataset(folder) if has_manifest(folder) else None
        run = Run(wanted, function, older.manifest if older and append else None)
        if older is not None and not append:
            if _is_same(older.manifest.metadata.get("recordings"), run.plan):
                return InstalledDataset.of(folder, older.manifest)
            raise UsageError(
                f"{id} is there already and was recorded otherwise. Add to it with --append, "
                f"choose another --out, or delete it first: rlds delete {id}"
            )
        check_one_disk(root, id)
        _begin(work, run.plan)
        chunks = run.record(work / CHUNKS, workers, told)
        manifest, staging = stage(root, id, run, chunks, older, layout, told.writing)
        commit(root, staging, manifest)
        if older is not None:
            remove_tables(root, older.manifest.content)
        shutil.rmtree(work, ignore_errors=True)
    return InstalledDataset.of(folder, manifest)


def recorded_id(name: str) -> str:
    """Return the id of a recorded dataset, whose family may be left out."""
    return check_id(f"{FAMILY}/{name.removeprefix(f'{FAMILY}/')}")


def _is_same(recordings: Any, plan: dict[str, Any]) -> bool:
    """Tell whether a dataset is what a plan would record."""
    if not isinstance(recordings, list) or len(recordings) != 1:
        return False
    return all(recordings[0].get(name) == value for name, value in plan.items())


def _begin(work: Path, plan: dict[str, Any]) -> None:
    """Make the folder of the recording, or keep that of a killed one."""
    path = work / PLAN
    text = json.dumps(plan, indent=1)
    # A first call that failed before any episode was finished, such as one whose policy is wrong,
    # left nothing to lose.
    if not path.is_file() or not any((work / CHUNKS).glob("[0-9]*")):
        with disk_errors(work):
            make_folder(work)
            path.write_text(text, encoding="utf-8")
        return
    known = json.loads(path.read_text(encoding="utf-8"))
    differing = sorted(name for name in {*known, *plan} if known.get(name) != plan.get(name))
    if differing:
        told = "; ".join(f"{name}: {known.get(name)}, now {plan.get(name)}" for name in differing)
        raise UsageError(
            f"Another recording of the same name was interrupted ({told}). Continue it with the "
            f"same call, choose another --out, or delete what it recorded: {work}"
        )
