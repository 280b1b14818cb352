"""Small real-format files that ship with the package, under their own ids: ``demo/pong``.

They are read by the recipe of their family, and installed without a network.
"""

from datasets_cli.recipe import Recipe, deferred

from .catalogue import FOLDER, datasets, resources

RECIPE = Recipe(
    family="demo",
    version=1,
    title="Demo: small files of every family, which ship with the package",
    licence="each dataset's own, see its details",
    citation="Each dataset's details name the published one that it is a sample of.",
    homepage="https://github.com/rlds-cli/rlds-cli",
    folder=FOLDER,
    references=deferred(f"{__name__}.reader:references"),
    datasets=datasets,
    resources=resources,
    blocks=deferred(f"{__name__}.reader:blocks"),
    describe=deferred(f"{__name__}.reader:describe"),
    deferred_frames=deferred(f"{__name__}.reader:deferred_frames"),
)
