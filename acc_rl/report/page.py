"""One page that needs nothing else: statistics, charts and tables of a study.

Names of runs, tasks and algorithms are data: they are escaped wherever they stand, and the page's content security
policy runs only the two scripts whose hashes it lists and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import orjson
import vl_convert

from acc_rl.report import tables
from acc_rl.report.charts import PAGE_CONFIG, Figure, page_spec, write_figure
from acc_rl.report.colours import Look, looks
from acc_rl.report.curves import END, POINTS, read_scales, scales
from acc_rl.report.figures import figures
from acc_rl.report.load import Cache, Study, load
from acc_rl.report.source import Source


def build(
    path: Path, normalise: Path | None = None, seed: int = 0, version: str = "", cache: Cache | None = None
) -> tuple[str, list[Figure]]:
    """The page of the study or run in ``path``, and its figures; with a version it asks its server for a newer one"""
    study = load(path, cache)
    given = None if normalise is None else read_scales(normalise)
    source = Source(study, looks(study.labels), scales(study, given), seed)
    drawn = figures(source)
    return page(source, drawn, version), drawn


def write(
    path: Path, out: Path, kind: str | None = None, normalise: Path | None = None, seed: int = 0
) -> tuple[Path, list[Path]]:
    """Write ``index.html`` and, if a kind is named, each figure as a file; their paths"""
    html, drawn = build(path, normalise, seed)
    out.mkdir(parents=True, exist_ok=True)
    index = out / "index.html"
    aside = out / "index.html.part"
    aside.write_text(html)
    aside.replace(index)
    return index, [write_figure(figure, out, kind) for figure in drawn] if kind else []


@cache
def asset(name: str) -> str:
    return resources.files("acc_rl.report").joinpath(name).read_text()


@cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script"""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed").replace("</script", "<\\/script")


def page(source: Source, drawn: Sequence[Figure], version: str) -> str:
    study = source.study
    scripts = [library(), asset("page.js")]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
    policy += "; connect-src 'self'" if version else ""
    title = escape(study.name)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title} – report</title>
<style>{asset("page.css")}</style>
</head>
<body{f' data-version="{version}"' if version else ""}>
{header(source)}
{legend(source.looks) if study.labels else ""}
<main>
{ran(source)}
{absent(source)}
{"".join(section(figure) for figure in drawn)}
{final(source)}
{"" if study.single else runs(study)}
{methods(source)}
</main>
<footer>Made by acc_rl on {time.strftime("%Y-%m-%d %H:%M")} from the records on disk.</footer>
<div id="tip" role="status" hidden></div>
<script type="application/json" id="content">{content(source, drawn)}</script>
{"".join(f"<script>{script}</script>" for script in scripts)}
</body>
</html>
"""


def content(source: Source, drawn: Sequence[Figure]) -> str:
    """Specifications and data as JSON in which no tag can begin or end"""
    panels = {
        f"{figure.key}-{i}": {
            "spec": page_spec(panel),
            "data": panel.data,
            "kind": panel.kind,
            "x": panel.x_title,
        }
        for figure in drawn
        for i, panel in enumerate(figure.panels)
    }
    colours = {label: look.colour for label, look in source.looks.items()}
    text = orjson.dumps({"panels": panels, "colours": colours, "config": PAGE_CONFIG}).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def header(source: Source) -> str:
    study = source.study
    done, planned = sum(run.finished for run in study.runs), len(study.runs) + len(study.absent())
    seeds = len({run.seed for run in study.runs})
    if study.single:
        run = study.runs[0]
        state = "finished" if run.finished else f"at step {run.last_step:,} of {run.steps:,}"
        facts = [run.task, run.algo, f"seed {run.seed}", state]
        share = 1.0 if run.finished else run.last_step / run.steps
    else:
        facts = [
            plural(len(study.tasks), "task"),
            plural(len(study.labels), "algorithm"),
            plural(seeds, "seed"),
            f"{done} of {plural(planned, 'run')} finished",
        ]
        progress = sum(1.0 if run.finished else min(run.last_step / run.steps, 1) for run in study.runs)
        share = progress / max(planned, 1)
    bar = "" if share >= 1 else f'<progress max="1" value="{share:.3f}" aria-label="share of all steps"></progress>'
    told = " · ".join(f"<span>{escape(fact)}</span>" for fact in facts)
    return f"<header><h1>{escape(study.name)}</h1><p>{told}</p>{bar}</header>"


def plural(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def swatch(look: Look) -> str:
    dash = " ".join(map(str, look.dash)) if look.dash[1] else "none"
    line = f'<line x1="1" y1="6" x2="27" y2="6" stroke="{look.colour}" stroke-width="3" stroke-dasharray="{dash}"/>'
    return f'<svg width="28" height="12" viewBox="0 0 28 12" aria-hidden="true">{line}</svg>'


def legend(of: dict[str, Look] | Any) -> str:
    buttons = [
        f'<button type="button" aria-pressed="true" data-series="{escape(label)}" '
        f'title="show or hide; with Shift: only this one">{swatch(look)}{escape(label)}</button>'
        for label, look in of.items()
    ]
    everything = '<button type="button" class="plain" data-all>all</button>' if len(buttons) > 1 else ""
    return f'<nav class="legend" aria-label="algorithms">{"".join(buttons)}{everything}</nav>'


def ran(source: Source) -> str:
    study = source.study
    words = {"source": "made from", "scale": "scale of its steps", "created": "created"}
    facts = [f"{told} {study.about[key]}" for key, told in words.items() if study.about.get(key) is not None]
    told = "; ".join(facts)
    lines = [f"<p>{escape(told[0].upper() + told[1:])}.</p>"] if facts else []
    if not study.single:
        lines.append(html_table(tables.grid_table(study), "Finished runs of those planned"))
    settings = tables.settings_table(study)
    if settings.rows:
        lines.append(folded("Settings that differ from the defaults", html_table(settings)))
    lines.append(folded("Versions and machines", html_table(tables.versions_table(study))))
    return f'<section id="ran"><h2>What was run</h2>{"".join(lines)}</section>'


def absent(source: Source) -> str:
    sentences = tables.missing(source)
    inner = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    body = f"<ul>{inner}</ul>" if sentences else "<p>Nothing: every planned run is finished and complete.</p>"
    return f'<section id="missing"><h2>What is missing</h2>{body}</section>'


def section(figure: Figure) -> str:
    alone = figure.wide and len(figure.panels) == 1  # its title stands above it already
    charts = "".join(
        f"<figure>{'' if alone else f'<figcaption>{escape(panel.title)}</figcaption>'}"
        f'<div class="chart" data-panel="{figure.key}-{i}" '
        f'role="img" aria-label="{escape(panel.title)}"></div></figure>'
        for i, panel in enumerate(figure.panels)
    )
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in figure.notes)
    return (
        f'<section id="{figure.key}"><h2>{escape(figure.title)}</h2><p>{escape(figure.sentence)}</p>'
        f'<div class="panels{" wide" if figure.wide else ""}">{charts}</div>{notes}</section>'
    )


def final(source: Source) -> str:
    table = tables.final_table(source)
    if not table.rows:
        return ""
    sentence = "The end of training in numbers"
    if tables.REFERENCE in source.study.labels:
        sentence += (
            f"; the steps to {tables.REFERENCE}'s level are those until the filtered mean is at {tables.REFERENCE}'s "
            f"final return, as a share of all steps that {tables.REFERENCE} took"
        )
    published = any(row.kind == "published" for row in table.rows)
    note = (
        "Rows marked as published are from the literature, not measured here, and only shown where the version of the "
        "task allows it: the same, or HalfCheetah v3 to v5, which did not change."
    )
    extra = f"<p class=note>{note}</p>" if published else ""
    return f'<section id="table"><h2>Final returns</h2><p>{escape(sentence)}.</p>{html_table(table)}{extra}</section>'


def runs(study: Study) -> str:
    return f'<section id="runs"><h2>Runs</h2>{folded("All runs", html_table(tables.runs_table(study)))}</section>'


def methods(source: Source) -> str:
    told = [
        f"Intervals: 95 %, percentile bootstrap with {source.replicates} resamples of the runs within each task "
        f"(stratified), seed {source.seed}. A task with one run has no spread to resample.",
        "IQM: mean of the middle half of all runs of all tasks; of fewer than 4 runs it is the mean. Median and mean: "
        "over the means of the tasks. Standard deviations are the population's (divided by n).",
        f"Final level of a run: mean of its evaluations in the last {100 * END:.0f} % of its steps.",
        "Curves: evaluations are brought onto the grid of steps that the runs were to have, each point taking the "
        "nearest evaluation; where a run has none, the others stand alone, and the number of runs is shown on hover. "
        f"Of a longer curve {POINTS} points are drawn. Aggregated curves have a point where every task has a run; "
        "where tasks differ in length, they run over the share of each task's steps.",
    ]
    items = "".join(f"<li>{escape(each)}</li>" for each in told)
    return (
        f'<section id="methods"><h2>How the numbers were made</h2><ul>{items}</ul>'
        f"{folded('Normalised scores', html_table(tables.scales_table(source)))}</section>"
    )


def folded(title: str, inner: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{inner}</details>"


def html_table(table: tables.Table, caption: str = "") -> str:
    def kind(column: int) -> str:
        return ' class="number"' if column in table.numeric else ""

    head = "".join(
        f'<th scope="col"{kind(i)}><button type="button">{escape(title)}</button></th>'
        for i, title in enumerate(table.titles)
    )
    body = []
    for row in table.rows:
        cells = "".join(
            f"<td{kind(i)}{_value(cell)}>{escape(cell.text)}"
            f"{' <span class=badge>published</span>' if row.kind and i == 1 else ''}</td>"
            for i, cell in enumerate(row.cells)
        )
        series = f' data-series="{escape(row.series)}"' if row.series else ""
        body.append(f"<tr{series}{f' class={row.kind}' if row.kind else ''}>{cells}</tr>")
    told = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"><table>{told}<thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    )


def _value(cell: tables.Cell) -> str:
    value = "" if cell.value is None else f' data-value="{float(cell.value)!r}"'
    return value + (f' title="{escape(cell.about)}"' if cell.about else "")
