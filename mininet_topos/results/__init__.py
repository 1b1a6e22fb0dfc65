"""The results of an experiment: from raw records to summary, plots, report and verdicts."""
