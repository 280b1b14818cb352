"""NeoRL-2: near real-world tasks, each with a training and a validation file (Gao et al., 2025)."""

from datasets_cli.recipe import Option, Recipe, deferred

from .catalogue import datasets, find, references, resources, variant

RECIPE = Recipe(
    family="neorl2",
    version=1,
    title="NeoRL-2: near real-world benchmarks for offline reinforcement learning",
    licence="CC BY 4.0",
    citation="Gao, Tu, Qin, Sun, Chen, Yu. NeoRL-2: Near Real-World Benchmarks for Offline "
    "Reinforcement Learning with Extended Realistic Scenarios. arXiv:2503.19267, 2025.",
    homepage="https://github.com/polixir/NeoRL2",
    references=references,
    datasets=datasets,
    resources=resources,
    blocks=deferred(f"{__name__}.reader:blocks"),
    describe=deferred(f"{__name__}.reader:describe"),
    options=(Option("cut", "official", "only the trajectories that neorl2's loader returns"),),
    find=find,
    variant=variant,
)
