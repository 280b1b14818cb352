"""The rules of published datasets: what their environments compute, by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import as_tensor
from datasets_cli.replay.goals.relabel import GoalKeys
from datasets_cli.replay.goals.rules import GoalRule, distance
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.manifest import Manifest

MAZE_RADIUS = 0.45
"""How near to the goal an agent in a maze of gymnasium-robotics reaches it."""

MAZES = re.compile(r"(PointMaze_\w+-v3|AntMaze_\w+-v[45])")
"""Environments whose rule is known; AntMaze v3 moves a goal before it rewards the step."""

GIVE_ONE = "Give the rule: HERSampler(GoalRule(reward=...)), or GoalRule.sparse(threshold)."


def dataset_rule(manifest: Manifest) -> GoalRule:
    """Return the rule by which a dataset's rewards follow from its goals.

    It is known of PointMaze v3 and AntMaze v4 and v5 of gymnasium-robotics, which Minari's
    metadata name.

    Raises:
        UsageError: it is not known.
    """
    name, arguments = _environment(manifest.metadata)
    if name is None:
        raise UsageError(
            f"The metadata of {manifest.id} name no environment, so that how its rewards follow "
            f"from goals is not known. {GIVE_ONE}"
        )
    reward = arguments.get("reward_type", "dense" if "Dense" in name else "sparse")
    is_continuing = arguments.get("continuing_task", True)
    known = reward in ("sparse", "dense") and isinstance(is_continuing, bool)
    if not (MAZES.fullmatch(name) and known):
        raise UsageError(
            f"How the rewards of {manifest.id} follow from goals is not known: its environment is "
            f"{name} with reward_type={reward!r}. Known are PointMaze v3 and AntMaze v4 and v5, "
            f"sparse and dense. {GIVE_ONE}"
        )
    terminates = not is_continuing
    rule = GoalRule.sparse(MAZE_RADIUS, terminates=terminates)
    return rule if reward == "sparse" else GoalRule(nearness, rule.terminated, rule.success)


def nearness(achieved: torch.Tensor, desired: torch.Tensor, batch: TensorDictBase) -> torch.Tensor:
    """Return the dense rewards ``[B]`` of mazes: 1 at the goal, less with distance."""
    return (-distance(achieved, desired)).exp()


def own_rule(storage: Storage, keys: GoalKeys) -> GoalRule:
    """Return the rule of the dataset whose rows these are."""
    dataset: Dataset | None = getattr(storage, "dataset", None)
    if dataset is None:
        raise UsageError(f"The rows are of no dataset whose rule is known. {GIVE_ONE}")
    rule = dataset_rule(dataset.manifest)
    keys.check(storage, rule)
    _check(rule, storage, keys)
    return rule


def _check(rule: GoalRule, storage: Storage, keys: GoalKeys) -> None:
    """Check that the rewards of up to 1,000 rows follow from their goals by a rule."""
    rows = torch.arange(0, len(storage), -(-len(storage) // 1000))
    batch = storage.as_batch(storage.gather(rows), rows.shape)
    desired = batch.get(("next", *keys.desired), None)  # the goal when the reward was given
    desired = batch[keys.desired] if desired is None else desired
    stored = batch[keys.reward]
    expected = as_tensor(rule.reward(batch[keys.reached], desired, batch)).reshape(stored.shape)
    wrong = ~torch.isclose(expected.double(), stored.double(), rtol=1e-6)
    if bool(wrong.any()):
        first = int(wrong.reshape(len(rows), -1).any(1).nonzero()[0])
        raise UsageError(
            f"The rewards do not follow from the goals as those of the dataset's environment do: "
            f"row {int(rows[first])} has the reward {stored[first].item()}; expected "
            f"{expected[first].item()}. {GIVE_ONE}"
        )


def _environment(metadata: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
    """Return the id of the environment that metadata name, None for none, and its arguments."""
    spec = metadata.get("env_spec")
    try:
        spec = json.loads(spec) if isinstance(spec, str) else spec
    except ValueError:
        spec = None
    if not isinstance(spec, Mapping) or not isinstance(spec.get("id"), str):
        return None, {}
    arguments = spec.get("kwargs")
    return spec["id"], arguments if isinstance(arguments, Mapping) else {}
