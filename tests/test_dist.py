"""What a package index shows."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
portable = runpy.run_path(str(ROOT / "tools" / "dist.py"))["portable"]


def test_pictures_and_relative_links_go_and_the_rest_stays():
    text = "# A\n\n![what\nthere is](docs/a.png)\n\n*its caption*\n\nSee [b](docs/b.md) and [c](https://c.org).\n"
    assert portable(text) == "# A\n\nSee b and [c](https://c.org).\n"


def test_the_readme_of_the_package_needs_nothing_beside_it():
    readme = (ROOT / "README.md").read_text()
    shown = portable(readme)
    assert "![" in readme
    assert "![" not in shown
    assert [link for link in re.findall(r"\]\(([^)]+)\)", shown) if "://" not in link] == []
    assert shown.count("\n|") == readme.count("\n|")  # tables are whole
    assert "pip install 'acc_rl[mujoco,report]'" in shown
    assert "```bibtex" in shown
