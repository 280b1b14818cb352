"""robomimic: demonstrations of robot arms, an HDF5 group each (Mandlekar et al., 2021)."""

from datasets_cli.recipe import Recipe, deferred

from .catalogue import datasets, find, references, resources

RECIPE = Recipe(
    family="robomimic",
    version=1,
    title="robomimic: demonstrations of robot manipulation by people and machines",
    licence="not stated for robomimic's data, whose code is MIT; MimicGen's and LIBERO's: see "
    "their cards on Hugging Face",
    citation="Mandlekar, Xu, Wong, Nasiriany, Wang, Kulkarni, Fei-Fei, Savarese, Zhu, "
    "Martín-Martín. What Matters in Learning from Offline Human Demonstrations for Robot "
    "Manipulation. arXiv:2108.03298, 2021.",
    homepage="https://robomimic.github.io",
    references=references,
    datasets=datasets,
    resources=resources,
    blocks=deferred(f"{__name__}.reader:blocks"),
    describe=deferred(f"{__name__}.reader:describe"),
    find=find,
    unlisted=True,
    dynamic=True,
    has_rewards=False,
)
