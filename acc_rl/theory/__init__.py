"""Theorem 1 and tabular ACC: when the calibrated estimate is unbiased, with tables and figures."""
