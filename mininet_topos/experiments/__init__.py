"""The description of experiments: cases, schemes, baselines, trends, and the experiments of the project."""
