"""The environment that a dataset was recorded from, made again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.gymnasium_extra import gymnasium
from datasets_cli.store.manifest import Manifest


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
