"""Minari: Farama's standard for offline datasets, in HDF5 or in Arrow files."""

from datasets_cli.recipe import Recipe, deferred

from .catalogue import datasets, references, resources, resources_at

RECIPE = Recipe(
    family="minari",
    version=2,
    title="Minari: Farama's datasets for offline reinforcement learning",
    licence="each dataset's own, see its card on Hugging Face; the remakes of D4RL derive from "
    "CC BY 4.0 and Apache-2.0 material",
    citation="Younis, Perez-Vicente, Balis, Dudley, Davey, Terry. Minari. Zenodo, "
    "doi:10.5281/zenodo.13767625, 2024.",
    homepage="https://minari.farama.org",
    references=references,
    datasets=datasets,
    resources=resources,
    blocks=deferred(f"{__name__}.reader:blocks"),
    describe=deferred(f"{__name__}.reader:describe"),
    resources_at=resources_at,
    unlisted=True,
    dynamic=True,
)
