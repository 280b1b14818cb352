"""A run of a recording: what is recorded, in which chunks, by which workers."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from datasets_cli.core.gymnasium_extra import gymnasium
from datasets_cli.core.progress import Progress
from datasets_cli.environments.actions import CheckActions, Outside, check_known
from datasets_cli.environments.record.chunks import (
    ChunkTask,
    num_steps_in,
    outside_in,
    read_chunk,
    record_chunk,
)
from datasets_cli.environments.record.episodes import StepColumns, check_spaces, make_environments
from datasets_cli.environments.record.options import RANDOM, PolicyFunction, Recording
from datasets_cli.errors import UsageError, argument, for_reader
from datasets_cli.exchange.steps import StepDigest, write_steps
from datasets_cli.parallel.engine import WORTH_PROCESSES_SECONDS, Workers
from datasets_cli.parallel.function_state import identity_of
from datasets_cli.parallel.tasks import run_tasks
from datasets_cli.parallel.workers import pickle_by_value
from datasets_cli.schema.columns import EPISODE, TERMINATED, TRAJECTORY_END, TRUNCATED
from datasets_cli.sources.disk import make_folder
from datasets_cli.specs.gymnasium_spaces import describe
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.layouts.ted_writer import Written
from datasets_cli.store.manifest import Manifest

CHUNKS_A_WAVE = 4
"""Chunks for each worker between two looks at whether the steps are enough."""


class RecordingRun:
    """What one call records."""

    # check_actions decides no value, and is no part of the plan: a call that was refused an action
    # may be continued without the check.

    def __init__(
        self,
        options: Recording,
        policy: PolicyFunction | None,
        older: Manifest | None,
        check_actions: CheckActions = True,
    ) -> None:
        check_known(check_actions)
        self.options, self._policy, self._check_actions = options, policy, check_actions
        self.policy_entry = {"name": RANDOM}
        if policy is not None:
            identity = identity_of(policy)
            self.policy_entry = {"name": identity.name, "digest": identity.digest}
        with closing(make_environments(replace(options, num_envs=1))) as envs:
            check_spaces(envs)
            spec = envs.envs[0].spec  # type: ignore[attr-defined]
            # As texts, which may have the bare word Infinity: as Minari keeps them.
            self.environment = {
                "env_spec": _json_of(spec),
                "observation_space": json.dumps(describe(envs.single_observation_space)),
                "action_space": json.dumps(describe(envs.single_action_space)),
            }
        self._episode_limit = (
            options.num_steps or options.max_episode_steps or spec.max_episode_steps
        )
        self.earlier = [] if older is None else _earlier(older, self.environment)
        self.first_episode = sum(each["episodes_recorded"] for each in self.earlier)

    @property
    def plan(self) -> dict[str, Any]:
        """Everything that decides the values, as JSON values."""
        return {
            "env": self.options.env,
            "policy": self.policy_entry,
            **self.options.to_json(),
            "first_episode": self.first_episode,
            "gymnasium": gymnasium.__version__,
        }

    def record(self, folder: Path, workers: Workers, progress: Progress) -> list[Path]:
        """Record what is missing and return the folders of the chunks that are needed, in order."""
        if self._episode_limit is None:
            cut = for_reader(argument("max_episode_steps", "N"))
            progress.note(
                f"{self.options.env} has no step limit, and an episode may never end: {cut} cuts it"
            )
        make_folder(folder)
        recorded: list[Path] = []
        num_steps = 0
        kept = f"What is recorded is kept in {folder}; the same call continues from there."
        waves = self._waves(folder, workers)
        first = next(waves)
        if workers.num_workers is None and not self._is_worth_processes(first):
            workers = replace(workers, num_workers=0)
        with workers.pool() as pool:
            for wave in chain([first], waves):
                missing = [task for task in wave if not task.done.is_dir()]
                num_steps += sum(num_steps_in(task.done) for task in wave if task not in missing)
                note = progress.note
                for task, _ in run_tasks(
                    pool, record_chunk, missing, kept, name=lambda task: task.named, note=note
                ):
                    num_steps += num_steps_in(task.done)
                    progress.writing(num_steps)
                recorded += [task.done for task in wave]
                if self.options.num_steps is not None and num_steps >= self.options.num_steps:
                    break
        needed = self._needed(recorded)
        outside = sum(map(outside_in, needed), Outside())
        if outside.count:
            progress.note(str(outside))
        return needed

    def _needed(self, recorded: list[Path]) -> list[Path]:
        """Return the first chunks, which have all steps: there are more for more workers."""
        if self.options.num_steps is None:
            return recorded
        num_steps = [*accumulate(map(num_steps_in, recorded))]
        # Up to the first chunk at whose end there are as many steps as are wanted, or more.
        return recorded[: bisect_left(num_steps, self.options.num_steps) + 1]

    def _is_worth_processes(self, tasks: list[ChunkTask]) -> bool:
        """Record the first chunk in this process, and tell whether the rest would take long."""
        began = time.monotonic()
        missing = [task for task in tasks if not task.done.is_dir()]
        if not missing:
            return True
        record_chunk(missing[0])
        seconds = time.monotonic() - began
        wanted, num_steps = self.options.num_steps, num_steps_in(missing[0].done)
        num_chunks = len(missing) if wanted is None else wanted / num_steps
        return seconds * (num_chunks - 1) > WORTH_PROCESSES_SECONDS

    def _waves(self, folder: Path, workers: Workers) -> Iterator[list[ChunkTask]]:
        """Yield tasks: all of a number of episodes at once; some at a time until steps suffice."""
        options, size = self.options, self.options.chunk_episodes
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
        number, wave = 0, CHUNKS_A_WAVE * max(1, workers.num_workers or 1)
        while True:
            yield [task(each) for each in range(number, number + wave)]
            number += wave


def _earlier(older: Manifest, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Return what a dataset was recorded by, if episodes of an environment can be added to it."""
    recordings = older.metadata.get("recordings")
    differing = [name for name, text in environment.items() if older.metadata.get(name) != text]
    if recordings is None or differing:
        why = f"it has another {', '.join(differing)}" if recordings else "it was not recorded"
        raise UsageError(
            f"Episodes cannot be added to {older.id}: {why}. Choose another {argument('out')}."
        )
    if older.texts:
        raise UsageError(
            f"Episodes cannot be added to {older.id}, which has text. Record into another "
            f"{argument('out')}, and sample both as a Mixture."
        )
    return list(recordings)


FAMILY = "recorded"
CHECKED = "recorded"
"""What a manifest says of how far its source was checked: the values were made here."""


def stage(
    root: CacheRoot,
    id: str,
    run: RecordingRun,
    chunks: list[Path],
    older: Dataset | None,
    layout: str | None,
    on_rows: Callable[[int], None],
) -> tuple[Manifest, Path]:
    """Write the dataset into a staging folder; return its manifest and the folder."""
    folder = root.new_staging(id)
    if layout is None and older is not None:
        layout = older.manifest.layout
    new = _first_steps(chunks, run.options.num_steps)
    steps = write_steps(folder, id, layout, new, on_rows, _rows_of(older))
    source = {"filename": f"episodes from {run.first_episode}", "checked": CHECKED}
    metadata = _metadata(run, steps.written, steps.digest)
    return steps.manifest(id, source, metadata, older.manifest.resources if older else ()), folder


def _metadata(run: RecordingRun, written: Written, digest: StepDigest) -> dict[str, Any]:
    """Return what Minari keeps of a dataset, and each recording that it is made of."""
    own = {"episodes_recorded": digest.num_episodes, "steps_recorded": digest.num_steps}
    return {
        **run.environment,
        "total_episodes": written.num_trajectories,
        "total_steps": written.num_transitions,
        "algorithm_name": run.policy_entry["name"],
        "recordings": [*run.earlier, {**run.plan, **own}],
    }


def _first_steps(chunks: list[Path], num_steps: int | None) -> Iterator[StepColumns]:
    """Yield the steps of chunks; where they are counted, the last one of them is a cut."""
    left = num_steps
    for columns in chain.from_iterable(map(read_chunk, chunks)):
        count = len(columns[TERMINATED])
        if left is not None and count >= left:
            cut = {key: values[:left] for key, values in columns.items()}
            cut[TRAJECTORY_END][-1] = True
            cut[TRUNCATED][-1] |= ~cut[TERMINATED][-1]
            yield cut
            return
        left = None if left is None else left - count
        yield columns


def _json_of(spec: gymnasium.envs.registration.EnvSpec) -> str:
    try:
        return spec.to_json()
    except (TypeError, ValueError) as error:  # an entry point or an option that is not a text
        raise UsageError(
            f"{spec.id} cannot be recorded, as its specification cannot be written as JSON "
            f"({error}). Register it with its class as text, entry_point='module:Class', and "
            "options that are values of JSON."
        ) from error


def _rows_of(older: Dataset | None) -> Iterator[StepColumns]:
    """Yield the rows of a dataset; the writer numbers the episodes again."""
    for rows in older.blocks() if older is not None else ():
        yield {key: values for key, values in rows.items() if key != EPISODE}


def environment_spec(
    manifest: Manifest, *, evaluation: bool = False
) -> gymnasium.envs.registration.EnvSpec | None:
    """Return gymnasium's specification of the environment of a dataset, where it has one."""
    known = manifest.metadata
    text = (known.get("eval_env_spec") if evaluation else None) or known.get("env_spec")
    if isinstance(text, str):
        return gymnasium.envs.registration.EnvSpec.from_json(text)
    id = known.get("environment")
    return gymnasium.spec(id) if isinstance(id, str) else None


def recover_environment(
    manifest: Manifest, options: Mapping[str, Any], *, evaluation: bool = False
) -> gymnasium.Env[Any, Any]:
    """Return the environment of a dataset, as ``gymnasium.make`` makes it."""
    # The specification names code to import: do it for data of people whom you trust.
    try:
        if (spec := environment_spec(manifest, evaluation=evaluation)) is not None:
            return gymnasium.make(spec, **options)
    except Exception as error:  # whatever an environment's module does
        raise UsageError(
            f"The environment of {manifest.id} cannot be made ({type(error).__name__}: {error}). "
            "Install the package that it is part of; the dataset's metadata['env_spec'] or "
            "metadata['environment'] is its specification."
        ) from error
    raise UsageError(
        f"{manifest.id} does not say which environment it is of: its manifest has neither env_spec "
        "nor environment, which datasets of Minari, some of D4RL and recorded ones have."
    )
