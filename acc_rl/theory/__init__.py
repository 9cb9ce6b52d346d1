"""Theorem 1 and tabular ACC: when the calibrated estimate is unbiased, with tables and figures."""

from acc_rl.core.errors import needs

with needs("report", "the theorem needs Altair, SciPy and vl-convert"):
    import altair  # noqa: F401
    import scipy  # noqa: F401
    import vl_convert  # noqa: F401
