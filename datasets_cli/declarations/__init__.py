"""The data of an experiment as ``rlds.toml`` declares it: datasets, views of them, mixtures."""
