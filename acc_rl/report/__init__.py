"""Statistics, figures and pages from what is on disk or computed in core; no torch."""
