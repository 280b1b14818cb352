"""OGBench: numpy archives of T + 1 states a trajectory, and variants with rewards or goals."""

from datasets_cli.recipe import Recipe, deferred

from .catalogue import datasets, find, references, resources

RECIPE = Recipe(
    family="ogbench",
    version=1,
    title="OGBench: datasets for offline goal-conditioned reinforcement learning",
    licence="MIT",
    citation="Park, Frans, Eysenbach, Levine. OGBench: Benchmarking Offline Goal-Conditioned RL. "
    "ICLR, 2025.",
    homepage="https://seohong.me/projects/ogbench",
    references=references,
    datasets=datasets,
    resources=resources,
    blocks=deferred(f"{__name__}.reader:blocks"),
    describe=deferred(f"{__name__}.reader:describe"),
    find=find,
    has_rewards=False,
)
