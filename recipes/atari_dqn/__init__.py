"""The DQN Replay Dataset: every transition of a DQN agent that learns an Atari 2600 game.

60 games, 5 runs each, 50 million steps a run. Its bucket has denied access since about April 2025;
the logs are read from any copy of it. RL Unplugged republished 46 of the games in another form:
``Pong/5~unplugged``. ``Pong/5~ckpt0-5`` has only the first five checkpoints.
"""

from datasets_cli.recipe import Recipe, deferred

from .catalogue import datasets, find, resources, resources_at
from .names import OPTIONS, fallback, references, variant

RECIPE = Recipe(
    family="atari_dqn",
    version=1,
    title="DQN Replay Dataset: the complete training experience of DQN agents on Atari 2600",
    licence="not stated by the publisher; RL Unplugged's form: CC BY 4.0",
    citation="Agarwal, Schuurmans, Norouzi. An Optimistic Perspective on Offline Reinforcement "
    "Learning. ICML 2020.",
    homepage="https://research.google/resources/datasets/dqn-replay/",
    references=references,
    datasets=datasets,
    resources=resources,
    resources_at=resources_at,
    blocks=deferred(f"{__name__}.reader:blocks"),
    describe=deferred(f"{__name__}.reader:describe"),
    deferred_frames=deferred(f"{__name__}.reader:deferred_frames"),
    options=OPTIONS,
    find=find,
    variant=variant,
    fallback=fallback,
)
