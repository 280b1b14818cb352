"""flashbax's buffers, and our draws on its device: jitted, and inside ``jax.lax.scan``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import flashbax
import jax
import jax.numpy as jnp
import numpy as np
from contenders import ALPHA, BATCH, SCANNED, SLICE, Contender, Contenders, flat, named
from tables import Rows

from datasets_cli import ExperienceReplay


def of_flashbax(rows: Rows, case: str) -> Contenders:
    """Return flashbax's buffers; its slices may begin in one trajectory and end in the next."""
    columns = named(rows)
    if case == "prioritised":
        return prioritised(columns)
    if case not in {"uniform", "slices"}:
        return {}
    length = SLICE if case == "slices" else 1
    count = len(columns["index"])
    buffer = flashbax.make_trajectory_buffer(
        add_batch_size=1,
        sample_batch_size=BATCH // length,
        sample_sequence_length=length,
        period=1,
        min_length_time_axis=length,
        max_length_time_axis=count,
    )
    state = filled(buffer, columns)

    def sample(state: Any, key: Any) -> Any:
        found = buffer.sample(state, key).experience  # [B / length, length, ...]
        return jax.tree.map(lambda leaf: leaf.reshape(BATCH, *leaf.shape[2:]), found)

    return drawn_by_key("flashbax", sample, state)


def of_jax_sampler(replay: ExperienceReplay, name: str, case: str) -> Contenders:
    """Return our draws by key."""
    if case not in {"uniform", "slices"}:
        return {}
    sample = replay.jax_sampler(BATCH, BATCH // SLICE if case == "slices" else None)
    return drawn_by_key(f"{name}, jax_sampler", lambda sample, key: sample(key), sample)


def drawn_by_key(name: str, sample: Callable[[Any, Any], Any], state: Any) -> Contenders:
    """Return what draws a batch of a state by a key, alone and in a scan."""

    def scan(state: Any, keys: Any) -> Any:
        # The batch is the carry, so that each one is made whole and none is kept.
        first = sample(state, keys[0])
        return jax.lax.scan(lambda _, key: (sample(state, key), None), first, keys[1:])[0]

    one, many = jax.jit(sample), jax.jit(scan)
    key, keys = fresh_keys(1), fresh_keys(SCANNED)
    return {
        f"{name}, jitted": Contender(lambda: ready(one(state, next(key)[0])), flat),
        f"{name}, in a scan": Contender(lambda: ready(many(state, next(keys))), flat, SCANNED),
    }


def prioritised(columns: dict[str, np.ndarray]) -> Contenders:
    """Return flashbax's prioritised buffer, which gives the rows of a batch new priorities."""
    count = len(columns["index"])
    buffer = flashbax.make_prioritised_item_buffer(
        max_length=count,
        min_length=1,
        sample_batch_size=BATCH,
        add_sequences=True,
        priority_exponent=ALPHA,
        device="cpu",
    )
    rng = np.random.default_rng(0)

    def step(state: Any, key: Any, priority: Any) -> Any:
        found = buffer.sample(state, key)
        return buffer.set_priorities(state, found.indices, priority), found.experience

    def scan(state: Any, keys: Any, priorities: Any) -> Any:
        first = step(state, keys[0], priorities[0])
        return jax.lax.scan(
            lambda carry, now: (step(carry[0], *now), None), first, (keys[1:], priorities[1:])
        )[0]

    def stepping(advance: Callable[..., Any], keys: Any, priorities: Any) -> Callable[[], Any]:
        state = init(buffer, columns)
        state = jax.jit(buffer.add, donate_argnums=0)(state, tree_of(columns))
        state = jax.jit(buffer.set_priorities, donate_argnums=0)(
            state, jnp.arange(count), jnp.asarray(rng.random(count, np.float32))
        )
        states = [state]

        def draw() -> Any:
            states[0], batch = advance(states[0], next(keys), next(priorities))
            return ready(batch)

        return draw

    many = itertools.cycle(jnp.asarray(rng.random((20, SCANNED, BATCH), np.float32)))
    one = itertools.cycle(jnp.asarray(rng.random((100, BATCH), np.float32)))
    single = (keys[0] for keys in fresh_keys(1))
    jitted = stepping(jax.jit(step, donate_argnums=0), single, one)
    scanned = stepping(jax.jit(scan, donate_argnums=0), fresh_keys(SCANNED), many)
    return {
        "flashbax, jitted": Contender(jitted, flat),
        "flashbax, in a scan": Contender(scanned, flat, SCANNED),
    }


def tree_of(columns: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return columns as arrays of jax."""
    return {name: jnp.asarray(values) for name, values in columns.items()}


def init(buffer: Any, columns: dict[str, np.ndarray]) -> Any:
    """Return the empty state of a buffer."""
    return buffer.init({name: jnp.asarray(values[0]) for name, values in columns.items()})


def filled(buffer: Any, columns: dict[str, np.ndarray]) -> Any:
    """Return the state of a trajectory buffer that has all rows."""
    batch = {name: values[None] for name, values in tree_of(columns).items()}
    return jax.jit(buffer.add, donate_argnums=0)(init(buffer, columns), batch)


def fresh_keys(count: int) -> Any:
    """Return endless arrays of random keys, made before they are asked for."""
    keys = jax.random.split(jax.random.key(0), 1000 * count).reshape(1000, count)
    return itertools.cycle([ready(keys[turn]) for turn in range(1000)])


def ready(arrays: Any) -> Any:
    """Wait for arrays of jax, whose making may be under way still."""
    return jax.block_until_ready(arrays)
