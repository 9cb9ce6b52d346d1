"""Pages link to what is there, and docs/design.md names the files that there are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
PACKAGE = ROOT / "acc_rl"
DESIGN = (ROOT / "docs" / "design.md").read_text()


def anchors(page):
    """As GitHub makes them of headings"""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" not in link:
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_the_list_of_files_is_complete():
    listed = set()
    for line in DESIGN.split("## Files")[1].split("```")[1].splitlines():
        if line.startswith("  ") and line[2] != " ":
            package = line.split("/")[0].strip()
        listed |= {f"{package}/{name}" for name in re.findall(r"\b(\w+\.py)\b", line)}
    there = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if path.stem != "__init__"}
    commands = {name for name in there if name.startswith("commands/")}  # named after what one types
    assert listed - there == set()
    assert there - commands - listed == set()


def test_the_pictures_name_files_that_are_there():
    pictures = [
        DESIGN.split(f"## {title}")[1].split("```")[1] for title in ("One transition's way", "One training step")
    ]
    named = re.findall(r"^ *([a-z]+)/(\w+\.py)(?: \| (\w+\.py))?", "\n".join(pictures), flags=re.MULTILINE)
    assert len(named) > 25
    for package, *files in named:
        for file in filter(None, files):
            assert (PACKAGE / package / file).exists(), f"{package}/{file}"
