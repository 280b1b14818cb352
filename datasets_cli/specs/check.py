"""Checking an environment against its specs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import torch

from datasets_cli.errors import Unsupported, WrongRows, wrong_value
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
    """Compare three steps of an environment with its specs: keys, shapes, dtypes and values.

    Args:
        env: an environment with ``rollout`` and the specs ``observation_spec``, ``action_spec``,
            ``reward_spec`` and ``done_spec``; each is the spec of one entry or a Composite.
        return_contiguous: None or True; steps are always stacked.
        check_dtype: compare dtypes too.
        seed: the seed of the environment and of torch's global generator.
        tensordict: None; steps always begin with a reset.
        break_when_any_done: None or True; steps always end at the first done.

    Raises:
        WrongRows: an entry is missing, is without a spec or does not match it; ``key`` and ``row``
            name the entry and the step.
        UsageError: env is not an environment.
        Unsupported: other values of return_contiguous, tensordict or break_when_any_done.
    """
    if not callable(getattr(env, "rollout", None)):
        raise wrong_value(
            "env", "an environment with rollout() and specs, such as GymEnv('CartPole-v1')", env
        )
    options = {
        "return_contiguous": (return_contiguous, (None, True)),
        "tensordict": (tensordict, (None,)),
        "break_when_any_done": (break_when_any_done, (None, True)),
    }
    for name, (value, supported) in options.items():
        if not any(value is each for each in supported):
            raise Unsupported(
                f"check_env_specs does not support {name}={value!r}: it stacks the steps from a "
                "reset to the first done.",
                argument=name,
                found=value,
                advice=f"Omit {name}.",
            )
    if seed is not None:
        torch.manual_seed(seed)
        env.set_seed(seed)
    steps = env.rollout(NUM_STEPS)
    if steps.shape[-1] == 0:
        raise WrongRows(
            f"rollout({NUM_STEPS}) of {type(env).__name__} returned 0 steps.",
            expected=NUM_STEPS,
            found=0,
        )
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
    """Yield the leaves of a Composite with their keys; yield a single spec with ``key``."""
    if not hasattr(spec, "keys"):
        yield key, spec
        return
    for name, inner in spec.items(include_nested=True, leaves_only=True):
        if inner is not None:
            yield (name,) if isinstance(name, str) else name, inner


def _check_keys(found: set[Key], expected: set[Key]) -> None:
    if missing := sorted(expected - found):
        raise WrongRows(
            f"The steps of the environment lack {missing}, which have specs.",
            key=missing[0],
            expected=sorted(expected),
            found=sorted(found),
        )
    if unknown := sorted(found - expected):
        raise WrongRows(
            f"The steps of the environment have entries without specs: {unknown}.",
            key=unknown[0],
            expected=sorted(expected),
            found=sorted(found),
        )


def _check_value(key: Key, step: int, value: Any, spec: Any, check_dtype: bool) -> None:
    def refuse(message: str, expected: object, found: object) -> NoReturn:
        where = f"{'.'.join(key)} of step {step}"
        raise WrongRows(f"{where} {message}", key=key, row=step, expected=expected, found=found)

    if not isinstance(value, torch.Tensor):
        if not spec.is_in(value):
            refuse(f"is {value!r}, which is not in its spec {spec}.", spec, value)
        return
    if value.shape != spec.shape:
        shape, expected = tuple(value.shape), tuple(spec.shape)
        refuse(f"has the shape {shape}; its spec has {expected}.", expected, shape)
    if value.dtype != spec.dtype and check_dtype:
        refuse(f"has the dtype {value.dtype}; its spec has {spec.dtype}.", spec.dtype, value.dtype)
    if not spec.is_in(value.to(spec.dtype)):
        refuse(f"is {value}, which is not in its spec {spec}.", spec, value)
