"""What the site makes of pages that are also read in the repository."""

from __future__ import annotations

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to files outside docs/, which the site does not have, become their names."""
    return OUTSIDE.sub(r"`\1`", markdown)


def on_post_page(output: str, **_: Any) -> str:
    """The plugin for search from the disk loads a script from elsewhere, for browsers that are older than that search."""
    return re.sub(r'<script src="https://[^"]*iframe-worker[^"]*"></script>', "", output)
