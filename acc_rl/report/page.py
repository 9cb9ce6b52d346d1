"""One page that needs nothing else: statistics, charts and tables of a study.

Names of runs, tasks and algorithms are data: the template escapes whatever is not marked as the page's own, and the
page's content security policy runs only the two scripts whose hashes it lists and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import orjson
import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from acc_rl.report import tables
from acc_rl.report.calibration import gap_table
from acc_rl.report.cells import Table
from acc_rl.report.charts import CONFIG, Figure, page_spec
from acc_rl.report.colours import SHAPES, looks
from acc_rl.report.curves import END, POINTS, read_scales, scales
from acc_rl.report.export import write_curves, write_figure, write_tables
from acc_rl.report.figures import figures
from acc_rl.report.finals import REFERENCE, final_table, published_table
from acc_rl.report.load import Cache, Study, load, together
from acc_rl.report.source import Source

SUMMARY = ("aggregate", "final", "profile", "improvement")
"""figures above the table of final returns"""
BEHIND_GAPS = ("value-error", "bias", "bias-soft", "bias-full", "return-bias", "critics")
"""figures below the table of gaps"""


def read(paths: Sequence[Path], normalise: Path | None = None, seed: int = 0, cache: Cache | None = None) -> Source:
    """The studies or runs in ``paths`` as one, with looks and scales"""
    study = together([load(path, cache) for path in paths])
    given = None if normalise is None else read_scales(normalise)
    return Source(study, looks(study.labels), scales(study, given), seed)


def build(
    path: Path, normalise: Path | None = None, seed: int = 0, version: str = "", cache: Cache | None = None
) -> tuple[str, list[Figure]]:
    """The page of the study or run in ``path``, and its figures; with a version it asks its server for a newer one"""
    source = read([path], normalise, seed, cache)
    drawn = figures(source)
    return page(source, drawn, version), drawn


def write(
    paths: Sequence[Path],
    out: Path,
    figure_kind: str | None = None,
    table_kind: str | None = None,
    curves: bool = False,
    normalise: Path | None = None,
    seed: int = 0,
) -> tuple[Path, list[Path]]:
    """Write ``index.html`` and, where asked for, figures, tables and curves as files; their paths"""
    source = read(paths, normalise, seed)
    drawn = figures(source)
    out.mkdir(parents=True, exist_ok=True)
    index = out / "index.html"
    aside = out / "index.html.part"
    aside.write_text(page(source, drawn, ""), encoding="utf-8")
    aside.replace(index)
    files = [write_figure(figure, out, figure_kind) for figure in drawn] if figure_kind else []
    files += write_tables(source, drawn, out, table_kind) if table_kind else []
    files += [write_curves(figure, out) for figure in drawn if figure.has_curves] if curves else []
    return index, files


@cache
def asset(name: str) -> Markup:
    return Markup(resources.files("acc_rl.report").joinpath(name).read_text(encoding="utf-8"))  # the package's own


@cache
def library() -> Markup:
    """Vega, Vega-Lite and Vega-Embed as one script"""
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed")
    return Markup(script.replace("</script", "<\\/script"))


def unbroken(text: str) -> str:
    """A number and its % stay on one line."""
    return text.replace(" %", "\u00a0%")


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("acc_rl", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["unbroken"] = unbroken
    return made


class Section(NamedTuple):
    key: str
    title: str
    figure: Figure | None = None
    """without one, the template knows the section by its key"""


def sections(drawn: Sequence[Figure], final: Table, gaps: Table) -> list[Section]:
    """Results first; what was run, what is missing and how the numbers were made at the end"""
    every = [Section(figure.key, figure.title, figure) for figure in drawn]
    if gaps.rows:
        behind = [i + 1 for i, figure in enumerate(drawn) if figure.key not in BEHIND_GAPS]
        every.insert(max(behind, default=0), Section("gap", "Gap between returns and critic"))
    if final.rows:
        every.insert(sum(figure.key in SUMMARY for figure in drawn), Section("table", "Final returns"))
    ends = {"ran": "What was run", "missing": "What is missing", "methods": "How the numbers were made"}
    return every + [Section(key, title) for key, title in ends.items()]


def page(source: Source, drawn: Sequence[Figure], version: str) -> str:
    study = source.study
    scripts = [library(), asset("page.js")]
    final, gaps = final_table(source), gap_table(source)
    return (
        environment()
        .get_template("page.html")
        .render(
            sections=sections(drawn, final, gaps),
            final=final,
            gaps=gaps,
            published=published_table(study),
            grid=tables.grid_table(study),
            settings=tables.settings_table(study),
            versions=tables.versions_table(study),
            runs=tables.runs_table(study),
            missing=tables.missing(source),
            scales=tables.scales_table(source),
            source=source,
            study=study,
            facts=facts(study),
            share=share_done(study),
            shapes=SHAPES,
            reference=REFERENCE,
            end=round(100 * END),
            points=POINTS,
            css=asset("page.css"),
            scripts=scripts,
            policy=policy(scripts, version),
            version=version,
            made=time.strftime("%Y-%m-%d %H:%M"),
            data=content(source, drawn),
        )
    )


def facts(study: Study) -> list[str]:
    if study.single:
        run = study.runs[0]
        state = "finished" if run.finished else f"at step {run.last_step:,} of {run.steps:,}"
        return [run.task, run.algo, f"seed {run.seed}", state]
    done, planned = sum(run.finished for run in study.runs), len(study.runs) + len(study.absent())
    counts = [(len(study.tasks), "task"), (len(study.labels), "algorithm"), (len({r.seed for r in study.runs}), "seed")]
    return [*(plural(number, what) for number, what in counts), f"{done} of {plural(planned, 'run')} finished"]


def share_done(study: Study) -> float:
    """The share of all planned steps that were taken"""
    shares = [1.0 if run.finished else min(run.last_step / run.steps, 1) for run in study.runs]
    return sum(shares) / max(len(shares) + len(study.absent()), 1)


def plural(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def policy(scripts: Sequence[str], version: str) -> Markup:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    rules = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
    return Markup(rules + ("; connect-src 'self'" if version else ""))


def content(source: Source, drawn: Sequence[Figure]) -> Markup:
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
    text = orjson.dumps({"panels": panels, "colours": colours, "config": CONFIG}).decode()
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
