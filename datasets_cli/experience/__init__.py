"""ExperienceReplay: a published dataset as a replay buffer."""
