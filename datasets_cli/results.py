"""The classes of results, and of the events of ``progress=``, for annotations.

A result is a frozen dataclass; its ``to_json()`` returns the output of the command for ``--json``.
"""

from __future__ import annotations

from datasets_cli.lazy_names import lazy_names

_LAZY_IMPORTS = {
    # what functions return
    "DatasetRecord": "verbs.list",
    "DatasetInfo": "verbs.info",
    "Citation": "verbs.cite",
    "DatasetStatistics": "verbs.stats",
    "DatasetCard": "verbs.card",
    "NormalisedScores": "verbs.score",
    "Plan": "install.options",
    "Downloads": "install.options",
    "InstalledDataset": "install.options",
    "FailedDataset": "install.options",
    "DatasetFolder": "verbs.info",
    "VerifiedDataset": "verbs.verify",
    "AuditedDataset": "verbs.audit",
    "DatasetOverlap": "verbs.overlap",
    "InCommon": "verbs.overlap",
    "Finding": "audit.rules.finding",
    "DeepReport": "store.deep_report",
    "DeletedDataset": "verbs.delete",
    "ConvertedDataset": "verbs.convert",
    "RepairedDataset": "verbs.repair",
    "Leftover": "verbs.prune",
    "DiskUsage": "verbs.du",
    "DatasetUsage": "verbs.du",
    "DatasetDifference": "verbs.difference",
    "ColumnDifference": "verbs.difference",
    "Activity": "verbs.du",
    "FoundData": "verbs.scan",
    "DerivedDataset": "preprocessing.derivation",
    "DerivedColumns": "preprocessing.derivation",
    "DatasetTables": "project.results",
    "PreprocessPlan": "project.results",
    "PlannedDataset": "project.results",
    "PlannedTables": "project.results",
    "PreprocessResults": "project.results",
    "DeclaredDataset": "project.declaration",
    "AddedData": "project.open",
    "DemoResult": "verbs.demo",
    "ExportedDataset": "verbs.export_dataset",
    "ImportPlan": "verbs.import_dataset",
    "PeekedRows": "verbs.peek",
    "PeekedColumn": "verbs.peek",
    "SampledBatch": "verbs.sample",
    "ProgramInfo": "verbs.program",
    "Setting": "verbs.program",
    "Settings": "verbs.program",
    "RecipeInfo": "verbs.recipes",
    "CheckedRecipe": "verbs.recipes",
    "Chart": "verbs.chart",
    "Series": "verbs.chart",
    "Rendering": "verbs.render",
    "ServedPage": "ui.server",
    "ExportedPages": "ui.export",
    "ListedTrajectories": "verbs.trajectories",
    "Manifest": "store.manifest",
    # events of progress
    "File": "core.progress",
    "Rows": "core.progress",
    "Note": "core.progress",
}

__all__ = list(_LAZY_IMPORTS)

__getattr__, __dir__ = lazy_names(__name__, _LAZY_IMPORTS)
