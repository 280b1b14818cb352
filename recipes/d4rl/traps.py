"""The known defects of D4RL's published files.

A trap is reported and never repaired: every value stays the publisher's. Each names its source: an
issue (of Farama-Foundation/D4RL by default), or rows of a published file that show it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

ADROIT = "(door|hammer|pen|relocate)"
MUJOCO = "(ant|halfcheetah|hopper|walker2d)"


class Trap(NamedTuple):
    """One defect of some published files, and the rules of the audit that find it, if any."""

    names: str
    text: str
    rules: tuple[str, ...] = ()


TRAPS = (
    Trap(
        f"{ADROIT}-(human|human-longhorizon|cloned)-v0",
        "timeouts split each demonstration after 200 steps (pen: 100), so that 25 demonstrations "
        "look like 50 episodes, but the state continues (issue 137; row 199 of door-human-v0 and "
        "of hammer-cloned-v0, row 99 of pen-human-v0); each such step is a final step",
        ("false-end",),
    ),
    Trap(
        f"{ADROIT}-(human|human-longhorizon|cloned)-v0",
        "a terminal at the last step of a demonstration means that the recording is over, not the "
        "task: the task never terminates (row 299 of door-human-v0)",
        ("impossible-terminal",),
    ),
    Trap(
        "halfcheetah-.+-v0",
        "a terminal can mark a time limit, although HalfCheetah never terminates: the first "
        "episode lacks its first steps, and its time limit is flagged as a terminal (row 898 of "
        "halfcheetah-medium-v0)",
        ("impossible-terminal",),
    ),
    Trap(
        "ant-.+-v0",
        "timeouts do not match the resets: rows 211 and 1210 of ant-medium-v0 are resets without a "
        "flag before them, and after the timeout in row 999 the state continues; some transitions "
        "join two episodes, and slices can cross a reset",
        ("unflagged-reset", "false-end"),
    ),
    Trap(
        f"{MUJOCO}-.+-v1",
        "infos/qpos and infos/qvel repeat one value for a whole episode, so no simulator can be "
        "set to them (all rows of ant-random-v1, halfcheetah-random-v1 and "
        "hopper-medium-replay-v1)",
        ("frozen-state",),
    ),
    Trap(
        "antmaze-(?!umaze-v).+-v0",
        "timeouts do not match the ends of trajectories, so some transitions cross the maze "
        "(issue 77 and issue 146; antmaze-large-play-v0 has timeouts in rows 998 and 1997, and the "
        "ant jumps after row 1000); the v2 files are corrected",
        ("unflagged-reset", "false-end"),
    ),
    Trap(
        "antmaze-(?!umaze-diverse).+-v[02]",
        "the ant stays at the goal after a terminal, so each following step is a terminal too, and "
        "a trajectory of its own (issue 2 of seohongpark/HIQL; rows 64 to 66 of "
        "antmaze-medium-diverse-v0)",
        ("terminal-run",),
    ),
    Trap("antmaze-umaze-diverse-v.+", "of the steps at the goal only one has a reward (issue 199)"),
    Trap(
        "maze2d-.+",
        "one continuous trajectory: timeouts mark a reached goal, not a jump of the state "
        "(issue 85); the reward belongs to the observation of its own row (issue 194)",
        ("reward-of-wrong-row",),
    ),
    Trap(
        "hopper-medium-expert-v0",
        "the file contains steps of the expert and of the replay buffer, not of the medium policy "
        "(issue 19)",
    ),
    Trap(
        "hopper-(medium|expert)-v1",
        "in copies from before January 2021, medium and expert are swapped (issue 76); compare "
        "their mean returns",
    ),
    Trap("kitchen-.+", "the reward belongs to the observation of its own row"),
)

STATE_AFTER_THE_STEP = (
    "infos/qpos and infos/qvel are the state after each step, like next_observations, instead of "
    "before it as in the newer file (all rows of hopper-medium-v2 as first published)"
)
"""The trap of ``gym_mujoco_v2`` as first published: its infos are float32, in later files float64.
"""


def traps_of(name: str) -> list[str]:
    """Return the traps that every version of a dataset's file has, a line each."""
    return [trap.text for trap in TRAPS if re.fullmatch(trap.names, name)]


def trap_rules(name: str) -> dict[str, tuple[str, ...]]:
    """Return the rules of the audit that find a trap of a dataset, by the text of the trap."""
    return {
        trap.text: trap.rules for trap in TRAPS if trap.rules and re.fullmatch(trap.names, name)
    }


def has_state_after_the_step(name: str, qpos_dtype: str | None) -> bool:
    """Return whether ``STATE_AFTER_THE_STEP`` is true of a file."""
    return qpos_dtype == "float32" and re.fullmatch(f"{MUJOCO}-.+-v2", name) is not None
