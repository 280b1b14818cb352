"""ExperienceReplay by family, under the names that TorchRL's users know."""
