"""The execution of an experiment: programs, traffic, single runs, and the repetition of void runs."""
