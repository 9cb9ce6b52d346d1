"""What the site makes of pages that are also read in the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files outside docs/, which the site does not have, become their names."""
    folder = Path(page.file.abs_src_path).parent

    def name_or_link(link: re.Match[str]) -> str:
        return link[0] if (folder / link[2]).resolve().is_relative_to(DOCS) else f"`{link[1]}`"

    return re.sub(r"\[([^\]]+)\]\((\.\./[^)]*)\)", name_or_link, markdown)


def on_post_page(output: str, **_: Any) -> str:
    """The offline plugin loads a script from elsewhere, for a search from the disk: pages are to load nothing."""
    return re.sub(r'<script src="https://[^"]*iframe-worker[^"]*"></script>', "", output)


on_post_template = on_post_page
