"""D4RL: HDF5 files of one endless row sequence each (Fu et al., 2020)."""

from datasets_cli.recipe import Recipe, deferred

from .catalogue import datasets, references, resources

RECIPE = Recipe(
    family="d4rl",
    version=1,
    title="D4RL: datasets for deep data-driven reinforcement learning",
    licence="CC BY 4.0",
    citation="Fu, Kumar, Nachum, Tucker, Levine. D4RL: Datasets for Deep Data-Driven Reinforcement "
    "Learning. arXiv:2004.07219, 2020.",
    homepage="https://github.com/Farama-Foundation/D4RL",
    references=references,
    datasets=datasets,
    resources=resources,
    blocks=deferred(f"{__name__}.reader:blocks"),
    describe=deferred(f"{__name__}.reader:describe"),
)
