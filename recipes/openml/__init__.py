"""OpenML: tables of features and labels, each row a trajectory of one step."""

from datasets_cli.recipe import Recipe, deferred

from .catalogue import datasets, find, references, resources, resources_at

RECIPE = Recipe(
    family="openml",
    version=1,
    title="OpenML: tables of features and labels",
    licence="each dataset's own, as OpenML states it",
    citation="Vanschoren, van Rijn, Bischl, Torgo. OpenML: networked science in machine learning. "
    "SIGKDD Explorations 15(2), 2014. Each dataset has its own as well.",
    homepage="https://www.openml.org",
    references=references,
    datasets=datasets,
    resources=resources,
    resources_at=resources_at,
    blocks=deferred(f"{__name__}.reader:blocks"),
    describe=deferred(f"{__name__}.reader:describe"),
    unlisted=True,
    dynamic=True,
    find=find,
    identity=("feature_names", "categories", "target_names", "classes", "means", "scales"),
)
