"""The recipes: one file a family. See docs/adding-a-dataset.md."""

import os

from datasets_cli.config import config_folder

# A recipe is code: further folders are the user's own, never the cache root, which may be shared.
__path__ += [folder for folder in os.environ.get("RLDS_RECIPES", "").split(os.pathsep) if folder]
__path__ += [str(config_folder() / "recipes")]
