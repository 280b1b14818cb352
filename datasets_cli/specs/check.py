"""Checking an environment against its specs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.schema.columns import Key

NUM_STEPS = 3


def check_env_specs(
    env: Any,
    return_contiguous: bool | None = None,
    check_dtype: bool = True,
    seed: int | None = None,
    tensordict: None = None,
    break_when_any_done: bool | None = None,
) -> None:
    """Compare what an environment gives in three steps with what its specs say.

    Args:
        env: has ``rollout``, and the specs ``observation_spec``, ``action_spec``, ``reward_spec``
            and ``done_spec``, of one entry or a Composite.
        return_contiguous: whether the steps are one tensor each, which they always are here.
        check_dtype: compare element types too.
        seed: given to the environment and to torch first.
        tensordict: None; refused otherwise: steps begin with a reset.
        break_when_any_done: None or True; refused otherwise: steps end where one is done.

    Raises:
        UsageError: an entry is missing, has no spec or is not in it; its key is named.
    """
    if not callable(getattr(env, "rollout", None)):
        raise UsageError(
            "check_env_specs takes an environment, which has rollout() and specs, such as "
            f"GymEnv('CartPole-v1'), not {env!r}."
        )
    is_whole = return_contiguous is not False and tensordict is None
    if not is_whole or break_when_any_done not in (None, True):
        raise UsageError(
            "check_env_specs stacks the steps from a reset until one is done. Leave out "
            "return_contiguous, tensordict and break_when_any_done."
        )
    if seed is not None:
        torch.manual_seed(seed)
        env.set_seed(seed)
    steps = env.rollout(NUM_STEPS)
    if steps.shape[-1] == 0:
        raise UsageError(f"rollout({NUM_STEPS}) of {type(env).__name__} has no steps to check.")
    specs = dict(_expected(env))
    keys = steps.keys(include_nested=True, leaves_only=True)
    _check_keys({(key,) if isinstance(key, str) else key for key in keys}, set(specs))
    for number, step in enumerate(steps.unbind(-1)):
        for key, spec in specs.items():
            _check_value(key, number, step.get(key), spec, check_dtype)


def _expected(env: Any) -> Iterator[tuple[Key, Any]]:
    """Yield the key of each entry of a step, with its spec."""
    after = [*_entries(env.observation_spec, ()), *_entries(env.done_spec, ("done",))]
    yield from after
    yield from _entries(env.action_spec, ("action",))
    for key, spec in (*after, *_entries(env.reward_spec, ("reward",))):
        yield ("next", *key), spec


def _entries(spec: Any, key: Key) -> Iterator[tuple[Key, Any]]:
    """Yield the leaves of a Composite by their own keys; of one spec, itself by ``key``."""
    if not hasattr(spec, "keys"):
        yield key, spec
        return
    for name, inner in spec.items(include_nested=True, leaves_only=True):
        if inner is not None:
            yield (name,) if isinstance(name, str) else name, inner


def _check_keys(found: set[Key], expected: set[Key]) -> None:
    if missing := expected - found:
        raise UsageError(f"The environment's steps lack {sorted(missing)}, which have specs.")
    if unknown := found - expected:
        raise UsageError(f"The environment's steps have {sorted(unknown)}, without specs.")


def _check_value(key: Key, step: int, value: Any, spec: Any, check_dtype: bool) -> None:
    where = f"{'.'.join(key)} of step {step}"
    if not isinstance(value, torch.Tensor):
        if not spec.is_in(value):
            raise UsageError(f"{where} is not in its spec: {value!r}, where {spec} is expected.")
        return
    if value.shape != spec.shape:
        raise UsageError(
            f"{where} has the shape {tuple(value.shape)}, where its spec has {tuple(spec.shape)}."
        )
    if value.dtype != spec.dtype and check_dtype:
        raise UsageError(f"{where} is of {value.dtype}, where its spec has {spec.dtype}.")
    if not spec.is_in(value.to(spec.dtype)):
        raise UsageError(f"{where} is not in its spec: {value}, where {spec} is expected.")
