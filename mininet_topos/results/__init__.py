"""What a run left: records, figures, plots, report."""
