"""Statistics, figures and one page from what is on disk or computed in core. No torch."""

from acc_rl.core.errors import needs

with needs("report", "a report needs Altair, Jinja, orjson and vl-convert"):
    import altair  # noqa: F401
    import jinja2  # noqa: F401
    import orjson  # noqa: F401
    import vl_convert  # noqa: F401
