"""Datasets in the formats of TensorFlow Datasets: Open X-Embodiment, DROID and RL Unplugged.

``droid_100/1.0.0`` is a folder in RLDS form, as are all datasets of Open X-Embodiment, of which
``bridge`` means the newest version. RL Unplugged's datasets of dm_control have a form of their own.
"""

from datasets_cli.recipe import Recipe, deferred

from .catalogue import datasets, find, references, resources, resources_at

RECIPE = Recipe(
    family="tfds",
    version=1,
    title="RLDS datasets: Open X-Embodiment, DROID, and RL Unplugged's of dm_control",
    licence="Open X-Embodiment: CC BY 4.0, unless a dataset names its own; RL Unplugged: not "
    "stated by the publisher",
    citation="Ramos et al. RLDS: an Ecosystem to Generate, Share and Use Datasets in "
    "Reinforcement Learning. 2021.",
    homepage="https://github.com/google-research/rlds",
    references=references,
    datasets=datasets,
    resources=resources,
    resources_at=resources_at,
    blocks=deferred(f"{__name__}.reader:blocks"),
    describe=deferred(f"{__name__}.reader:describe"),
    find=find,
    has_rewards=False,
)
