"""Pages link to what is there, and docs/design.md names the files that there are."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import acc_rl

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
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


def test_the_site_has_every_page_and_the_reference_every_public_name():
    text = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r"([\w/]+\.md)$", text.split("\nnav:")[1], flags=re.MULTILINE))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    reference = " ".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    documented = set(re.findall(r"^::: ([\w.]+)$", reference, flags=re.MULTILINE))
    assert {f"{home}.{name}" for name, home in acc_rl._HOME.items()} <= documented
    assert set(acc_rl._HOME) == set(acc_rl.__all__)


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|iframe)[^>]* src=\"?(?:https?:)?//|<link[^>]* href=\"?(?:https?:)?//", page.read_text()
        )
        assert loaded == [], page
    assert "dropped_per_net" in (tmp_path / "api" / "algorithms.html").read_text()
