"""A run of a recording: its plan, its chunks, and the dataset that they become."""

from __future__ import annotations

import importlib
import json
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from datasets_cli.core.gymnasium_extra import gymnasium
from datasets_cli.core.progress import Note, Progress, Rows
from datasets_cli.environments.actions import CheckActions, validate_mode
from datasets_cli.environments.record.chunks import (
    ChunkTask,
    num_steps_in,
    read_chunk,
    record_chunk,
)
from datasets_cli.environments.record.episodes import StepColumns, check_spaces, make_environments
from datasets_cli.environments.record.options import RANDOM, PolicyFunction, Recording
from datasets_cli.errors import Unsupported, UsageError, argument, for_reader
from datasets_cli.exchange.steps import StepDigest, write_steps
from datasets_cli.parallel.engine import WORTH_PROCESSES_SECONDS, Workers
from datasets_cli.parallel.tasks import run_tasks
from datasets_cli.parallel.workers import pickle_by_value
from datasets_cli.preprocessing.function import identity_of
from datasets_cli.schema.columns import EPISODE, TERMINATED, TRAJECTORY_END, TRUNCATED
from datasets_cli.sources.disk import make_folder
from datasets_cli.specs.gymnasium_spaces import describe
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.layouts.ted_writer import Written
from datasets_cli.store.manifest import Manifest

CHUNKS_PER_WAVE = 4
"""Chunks per worker between two checks of the number of steps."""


class RecordingRun:
    """The recording of one call of ``record``."""

    # check_actions changes no value and is not part of the plan: a call that failed because of an
    # action can be resumed without the check.

    def __init__(
        self,
        options: Recording,
        policy: PolicyFunction | None,
        older: Manifest | None,
        check_actions: CheckActions = True,
    ) -> None:
        validate_mode(check_actions)
        self.options, self._policy, self._check_actions = options, policy, check_actions
        self.policy_entry = {"name": RANDOM}
        if policy is not None:
            identity = identity_of(policy)
            self.policy_entry = {"name": identity.name, "digest": identity.digest}
        with closing(make_environments(replace(options, num_envs=1))) as envs:
            check_spaces(envs)
            spec = envs.envs[0].spec  # type: ignore[attr-defined]
            # JSON text, as in Minari; it may contain the bare word Infinity.
            self.environment = {
                "env_spec": _json_of(spec),
                "observation_space": json.dumps(describe(envs.single_observation_space)),
                "action_space": json.dumps(describe(envs.single_action_space)),
            }
        self._episode_limit = (
            options.num_steps or options.max_episode_steps or spec.max_episode_steps
        )
        self.earlier = [] if older is None else _earlier_recordings(older, self.environment)
        self.first_episode = sum(each["episodes_recorded"] for each in self.earlier)

    @property
    def plan(self) -> dict[str, Any]:
        """All that determines the values, as JSON values."""
        return {
            "env": self.options.env,
            "policy": self.policy_entry,
            **self.options.to_json(),
            "first_episode": self.first_episode,
            "gymnasium": gymnasium.__version__,
        }

    def record(self, id: str, folder: Path, workers: Workers, progress: Progress) -> list[Path]:
        """Record the missing chunks, and return the folders of the required chunks in order."""
        if self._episode_limit is None:
            option = for_reader(argument("max_episode_steps", "N"))
            text = f"{self.options.env} has no step limit: an episode may never end"
            progress(Note(f"{text}; {option} sets one"))
        make_folder(folder)
        recorded: list[Path] = []
        num_steps = 0
        resume_note = f"Finished episodes are in {folder}; the same call resumes there."
        waves = self._waves(folder, workers)
        first = next(waves)
        if workers.num_workers is None and not self._is_worth_processes(first):
            workers = replace(workers, num_workers=0)
        with workers.pool() as pool:
            for wave in chain([first], waves):
                missing = [task for task in wave if not task.chunk_folder.is_dir()]
                num_steps += sum(
                    num_steps_in(task.chunk_folder) for task in wave if task not in missing
                )
                for task, _ in run_tasks(
                    pool,
                    record_chunk,
                    missing,
                    resume_note,
                    name=lambda task: task.label,
                    progress=progress,
                ):
                    num_steps += num_steps_in(task.chunk_folder)
                    progress(Rows(id, num_steps))
                recorded += [task.chunk_folder for task in wave]
                if self.options.num_steps is not None and num_steps >= self.options.num_steps:
                    break
        return self._required(recorded)

    def _required(self, recorded: list[Path]) -> list[Path]:
        """Return the first chunks with enough steps; more workers record more chunks."""
        if self.options.num_steps is None:
            return recorded
        num_steps = [*accumulate(map(num_steps_in, recorded))]
        # Up to the first chunk whose end reaches the requested number of steps.
        return recorded[: bisect_left(num_steps, self.options.num_steps) + 1]

    def _is_worth_processes(self, tasks: list[ChunkTask]) -> bool:
        """Record the first chunk here, and return whether the rest would take long."""
        start = time.monotonic()
        missing = [task for task in tasks if not task.chunk_folder.is_dir()]
        if not missing:
            return True
        record_chunk(missing[0])
        seconds = time.monotonic() - start
        limit, num_steps = self.options.num_steps, num_steps_in(missing[0].chunk_folder)
        num_chunks = len(missing) if limit is None else limit / num_steps
        return seconds * (num_chunks - 1) > WORTH_PROCESSES_SECONDS

    def _waves(self, folder: Path, workers: Workers) -> Iterator[list[ChunkTask]]:
        """Yield lists of tasks: one list for a number of episodes, else lists without end."""
        options, size = self.options, self.options.episodes_per_chunk
        pickled = None if self._policy is None else pickle_by_value(self._policy)
        stop = None if options.num_episodes is None else self.first_episode + options.num_episodes

        def task(number: int) -> ChunkTask:
            first = self.first_episode + number * size
            last = first + size if stop is None else min(first + size, stop)
            name = self.policy_entry["name"]
            return ChunkTask(
                options, number, first, last, folder, pickled, name, self._check_actions
            )

        if options.num_episodes is not None:
            yield [task(number) for number in range(-(-options.num_episodes // size))]
            return
        number, wave = 0, CHUNKS_PER_WAVE * max(1, workers.num_workers or 1)
        while True:
            yield [task(each) for each in range(number, number + wave)]
            number += wave


def _earlier_recordings(older: Manifest, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Return the recordings of a dataset, or raise an error if no episodes can be added."""
    recordings = older.metadata.get("recordings")
    differing = [name for name, text in environment.items() if older.metadata.get(name) != text]
    if recordings is None or differing:
        reason = f"its {', '.join(differing)} differs" if recordings else "it was not recorded"
        raise UsageError(
            f"Episodes cannot be added to {older.id}: {reason}.",
            id=older.id,
            argument="append",
            found=differing,
            advice=f"Choose another {argument('name')}.",
        )
    if older.texts:
        raise Unsupported(
            f"Episodes cannot be added to {older.id}, because it contains text.",
            id=older.id,
            argument="append",
            advice=f"Record with another {argument('name')}, and sample both as a Mixture.",
        )
    return list(recordings)


FAMILY = "recorded"
CHECKED = "recorded"
"""The manifest's value for sources that this program recorded itself."""


def stage(
    root: CacheRoot,
    id: str,
    run: RecordingRun,
    chunks: list[Path],
    older: Dataset | None,
    layout: str | None,
    progress: Progress,
) -> tuple[Manifest, Path]:
    """Write the dataset into a staging folder, and return its manifest and the folder."""
    folder = root.new_staging(id)
    if layout is None and older is not None:
        layout = older.manifest.layout
    new = _first_steps(chunks, run.options.num_steps)
    steps = write_steps(folder, id, layout, new, progress, _steps_of(older))
    source = {"filename": f"episodes from {run.first_episode}", "checked": CHECKED}
    metadata = _metadata(run, steps.written, steps.digest)
    return steps.manifest(id, source, metadata, older.manifest.resources if older else ()), folder


def _metadata(run: RecordingRun, written: Written, digest: StepDigest) -> dict[str, Any]:
    """Return the metadata of Minari's format, and the list of recordings."""
    counts = {"episodes_recorded": digest.num_episodes, "steps_recorded": digest.num_steps}
    return {
        **run.environment,
        "total_episodes": written.num_trajectories,
        "total_steps": written.num_transitions,
        "algorithm_name": run.policy_entry["name"],
        "recordings": [*run.earlier, {**run.plan, **counts}],
    }


def _first_steps(chunks: list[Path], num_steps: int | None) -> Iterator[StepColumns]:
    """Yield the steps of chunks, up to ``num_steps``; the last one then ends its episode."""
    remaining = num_steps
    for columns in chain.from_iterable(map(read_chunk, chunks)):
        count = len(columns[TERMINATED])
        if remaining is not None and count >= remaining:
            last = {key: values[:remaining] for key, values in columns.items()}
            last[TRAJECTORY_END][-1] = True
            last[TRUNCATED][-1] |= ~last[TERMINATED][-1]
            yield last
            return
        remaining = None if remaining is None else remaining - count
        yield columns


def _json_of(spec: gymnasium.envs.registration.EnvSpec) -> str:
    try:
        return spec.to_json()
    except (TypeError, ValueError) as error:  # for example an entry point that is a function
        raise Unsupported(
            f"{spec.id} cannot be recorded, because its gymnasium spec is not JSON ({error}).",
            argument="env",
            found=spec.id,
            advice="Register it with entry_point='module:Class' and JSON values as options.",
        ) from error


def _steps_of(older: Dataset | None) -> Iterator[StepColumns]:
    """Yield the steps of a dataset without episode numbers, which the writer adds."""
    for rows in older.blocks() if older is not None else ():
        yield {key: values for key, values in rows.items() if key != EPISODE}


def environment_spec(
    manifest: Manifest, *, evaluation: bool = False
) -> gymnasium.envs.registration.EnvSpec | None:
    """Return gymnasium's spec of a dataset's environment, or None if the manifest has none."""
    known = manifest.metadata
    text = (known.get("eval_env_spec") if evaluation else None) or known.get("env_spec")
    if isinstance(text, str):
        return gymnasium.envs.registration.EnvSpec.from_json(text)
    id = known.get("environment")
    if not isinstance(id, str):
        return None
    # "module:id", as in gymnasium.make: the module registers the environment.
    module, _, id = id.rpartition(":")
    if module:
        importlib.import_module(module)
    return gymnasium.spec(id)


def recover_environment(
    manifest: Manifest, options: Mapping[str, Any], *, evaluation: bool = False
) -> gymnasium.Env[Any, Any]:
    """Return the environment of a dataset, created by ``gymnasium.make``."""
    # The spec names code to import: use it only for data from people you trust.
    try:
        if (spec := environment_spec(manifest, evaluation=evaluation)) is not None:
            return gymnasium.make(spec, **options)
    except Exception as error:  # the environment's module can raise any error
        raise UsageError(
            f"The environment of {manifest.id} cannot be created ({type(error).__name__}: "
            f"{error}).",
            id=manifest.id,
            advice="Install the package of the environment; metadata['env_spec'] or "
            "metadata['environment'] names it.",
        ) from error
    raise Unsupported(
        f"The environment of {manifest.id} is unknown: its metadata has neither env_spec nor "
        "environment. Minari, some D4RL and recorded datasets have one of them.",
        id=manifest.id,
    )
