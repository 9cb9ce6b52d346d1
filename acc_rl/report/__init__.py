"""From records on disk to statistics, figures and one page. No torch."""
