"""Programs in the shape of TorchRL's training scripts, and what comes of them on our modules."""

import warnings

with warnings.catch_warnings():  # what TorchRL says of itself when it is imported
    warnings.simplefilter("ignore")
    import torchrl.collectors
    import torchrl.data.datasets
    import torchrl.objectives
    import torchrl.trainers  # noqa: F401
