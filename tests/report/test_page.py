import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import synthetic

from acc_rl.commands.main import main
from acc_rl.report.page import build
from acc_rl.store.archive import pack


class Parsed(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.tags, self.scripts, self.text, self._in = [], [], [], None
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._in = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, data):
        if self._in == "script":
            self.scripts[-1] += data
        elif self._in != "style":
            self.text.append(data)


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&quot; onload=alert(3) ${x} {{x}}"


def test_hostile_names_stay_text(tmp_path):
    content = synthetic.spec(f"Env{HOSTILE}", f"acc{HOSTILE}", 0, steps=20_000, gamma=HOSTILE)
    other = synthetic.spec(f"Env{HOSTILE}", f"acc{HOSTILE}", 0, steps=20_000)
    study = tmp_path / "study"
    for i, each in enumerate((content, other)):
        run = synthetic.write_run(study, each, folder=f"<b onclick=alert({i})>")
        provenance = {"versions": {HOSTILE: HOSTILE}, "cpu": HOSTILE}
        (run / "provenance.json").write_text(json.dumps(provenance))
    (study / "study.json").write_text(json.dumps({"name": HOSTILE, "source": HOSTILE, "runs": [content, other]}))
    broken = study / f"x{HOSTILE.replace('/', '')}"
    broken.mkdir()
    (broken / "spec.json").write_text(f'"{HOSTILE}')
    plain = Parsed(build(synthetic.write_study(tmp_path / "plain", ["A-v1"], ["acc"], [0], steps=20_000))[0])
    html, _ = build(study)
    parsed = Parsed(html)
    assert len(parsed.scripts) == len(plain.scripts) == 3
    assert parsed.scripts[1:] == plain.scripts[1:]  # the page's own, byte for byte
    assert {tag for tag, _ in parsed.tags} <= {tag for tag, _ in plain.tags} | {"li", "ul"}
    assert not [a for _, attributes in parsed.tags for a in attributes if a.startswith("on") or a == "src"]
    data = json.loads(parsed.scripts[0])
    assert any(HOSTILE in label for label in data["colours"])
    assert HOSTILE in "".join(parsed.text)


def test_nothing_is_loaded_and_only_own_scripts_run(study):
    html, _ = build(study)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "connect-src" not in policy
    tags = Parsed(html).tags
    assert not [a for tag, a in tags if "src" in a or tag == "link" or not a.get("href", "#").startswith("#")]


@pytest.mark.parametrize(("kind", "begins"), [("pdf", b"%PDF"), ("svg", b"<svg"), ("png", b"\x89PNG")])
def test_figures_as_files(tmp_path, capsys, kind, begins):
    run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=20_000))
    assert main(["report", str(run), "--out", str(tmp_path / "out"), "--figures", kind]) == 0
    assert "4 files beside it" in capsys.readouterr().out
    files = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert files == sorted(
        [*(f"{key}.{kind}" for key in ("tasks", "calibration-dropped", "value-error", "bias")), "index.html"]
    )
    assert (tmp_path / "out" / f"tasks.{kind}").read_bytes().startswith(begins)


def test_results_come_first_and_the_contents_name_all(study):
    parsed = Parsed(build(study)[0])
    sections = [attributes["id"] for tag, attributes in parsed.tags if tag == "section"]
    assert sections[:5] == ["aggregate", "final", "profile", "improvement", "table"]
    assert sections[-3:] == ["ran", "missing", "methods"]
    assert [attributes["href"] for tag, attributes in parsed.tags if tag == "a"] == [f"#{key}" for key in sections]


def test_published_rows_are_folded(study):
    html, _ = build(study)
    folded = html.split("<summary>Published returns for comparison (")[1].split("</details>")[0]
    assert int(folded.split(" rows)")[0]) == folded.count("<tr>") - 1 > 3
    assert "SimbaV2" not in html.replace(folded, "")


def test_two_studies_on_one_page(study, tmp_path, capsys):
    other = synthetic.write_study(tmp_path / "b", ["Hopper-v5"], ["acc"], range(3), name="<other>", steps=40_000)
    packed = tmp_path / "other.tar.gz"
    pack(other, packed)
    assert main(["report", str(study), str(packed), "--out", str(tmp_path / "out")]) == 0
    html = (tmp_path / "out" / "index.html").read_text()
    assert "<h1>study and &lt;other&gt;</h1>" in html
    names = [a["data-series"] for tag, a in Parsed(html).tags if tag == "button" and "data-series" in a]
    assert names == ["acc", "acc-2q", "sac", "td3", "acc (<other>)"]
    assert main(["report", str(study), str(other), "--watch"]) == 2
    assert "--watch serves one folder, not 2" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "kind"), [("--figures", "pdf"), ("--tables", "csv"), ("--curves", "csv")])
def test_a_served_page_writes_no_files(study, capsys, option, kind):
    assert main(["report", str(study), "--watch", option, kind]) == 2
    assert f"{option} {kind} writes files" in capsys.readouterr().err


def test_the_same_study_gives_the_same_page(tmp_path):
    study = synthetic.write_study(tmp_path / "s", ["Hopper-v5"], ["acc", "sac"], range(3), steps=20_000)

    def without_time(html):
        return re.sub(r"Made by acc_rl on [^<]*", "", html)

    first, again = (without_time(build(study)[0]) for _ in range(2))
    assert first == again
    assert without_time(build(study, seed=1)[0]) != first


def test_wrong_folders_are_one_line(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == f"acc: error: {tmp_path / 'nowhere'}: No such directory\n"


def test_a_study_that_has_only_its_plan_is_a_page(tmp_path):
    plan = {"name": "soon", "runs": [synthetic.spec("Hopper-v5", "acc", seed) for seed in range(2)]}
    (tmp_path / "study.json").write_text(json.dumps(plan))
    html, drawn = build(tmp_path)
    assert drawn == []
    assert "2 planned runs without a folder yet" in html


def test_no_torch_is_imported():
    code = "import sys, acc_rl.report.page, acc_rl.report.serve; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_runs_that_have_just_begun_are_a_page(tmp_path):
    began = tmp_path / "began"
    for seed in range(2):
        run = synthetic.write_run(began, synthetic.spec("Hopper-v5", "acc", seed, steps=20_000), until=0)
        for file in run.glob("*.jsonl"):
            file.unlink()
    html, drawn = build(began)
    assert drawn == []
    assert "2 runs without an evaluation" in html
    # the next one is further
    synthetic.write_run(began, synthetic.spec("Hopper-v5", "sac", 0, steps=20_000), until=3000)
    html, drawn = build(began)
    assert {"aggregate", "tasks"} <= {figure.key for figure in drawn}
    assert "still running: newest evaluations" in html
    assert "No figure of final scores: no run has reached its last steps yet." in html
