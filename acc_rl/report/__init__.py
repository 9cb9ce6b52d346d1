"""Statistics, figures and one page from what is on disk or computed in core. No torch."""
