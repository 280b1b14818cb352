"""TorchRL's dialect: its names, arguments and module paths."""
