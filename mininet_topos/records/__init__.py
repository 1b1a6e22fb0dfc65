"""The raw records of an experiment: the result folder, its files, and the validity of a run."""
