"""Figures, curves and tables as files beside the page."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import vl_convert

from acc_rl.report.cells import Table
from acc_rl.report.charts import CONFIG, ROW_HEIGHT, SERIES, Figure, bare
from acc_rl.report.colours import Look
from acc_rl.report.finals import final_table, interval_tables
from acc_rl.report.source import Source

LEGEND_COLUMNS = 4


def write_figure(figure: Figure, folder: Path, kind: str) -> Path:
    path = folder / f"{figure.key}.{kind}"
    spec = file_spec(figure)
    if kind == "pdf":
        path.write_bytes(vl_convert.vegalite_to_pdf(spec))
    elif kind == "png":
        path.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
    else:
        path.write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")
    return path


def file_spec(figure: Figure, columns: int = 3) -> dict[str, Any]:
    """All panels, each with its title, below the legend"""
    datasets, charts = {}, []
    for i, panel in enumerate(figure.panels):
        spec = _renamed(bare(panel), f"data{i}")
        datasets[f"data{i}"] = rows(panel.data)
        size = {"width": 620 if figure.wide else 260, "height": 300 if figure.wide else 180}
        spec |= {"height": ROW_HEIGHT * len(panel.data[SERIES])} if panel.kind == "bars" else size
        charts.append({**spec, "title": panel.title})
    lines = {label: look for panel in figure.panels if panel.kind != "bars" for label, look in panel.looks.items()}
    every = {"color": "independent", "strokeDash": "independent", "shape": "independent"}
    panels = {"concat": charts, "columns": 1 if figure.wide else columns, "resolve": {"scale": every}}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        # bars have their names beside them
        "vconcat": [legend(lines), panels] if lines else [panels],
        "datasets": datasets,
        "config": {**CONFIG, "background": "white"},
    }


def legend(looks: Mapping[str, Look]) -> dict[str, Any]:
    """A piece of each line with its marker and its name: what Vega's own legends cannot show together"""
    columns = min(LEGEND_COLUMNS, len(looks))
    width = 60 + 7 * max(map(len, looks))
    values = [
        {
            "label": label,
            "colour": look.colour,
            "dash": look.dash,
            "shape": look.shape,
            "x": i % columns * width,
            "end": i % columns * width + 36,
            "middle": i % columns * width + 18,
            "y": 20 * (i // columns),
        }
        for i, (label, look) in enumerate(looks.items())
    ]

    def raw(field: str) -> dict[str, Any]:
        return {"field": field, "type": "nominal", "scale": None}

    def place(field: str) -> dict[str, Any]:
        return {"field": field, "type": "quantitative", "scale": None, "axis": None}

    line = {"x": place("x"), "x2": {"field": "end"}, "y": place("y"), "color": raw("colour"), "strokeDash": raw("dash")}
    point = {"x": place("middle"), "y": place("y"), "color": raw("colour"), "shape": raw("shape")}
    text = {"x": place("end"), "y": place("y"), "text": {"field": "label"}}
    return {
        "data": {"values": values},
        "width": columns * width,
        "height": 20 * -(-len(looks) // columns),
        "layer": [
            {"mark": {"type": "rule", "strokeWidth": 2.5}, "encoding": line},
            {"mark": {"type": "point", "filled": True, "opacity": 1, "size": 50}, "encoding": point},
            {"mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 12}, "encoding": text},
        ],
    }


def _renamed(spec: Any, name: str) -> Any:
    """Panels of one file have data of their own."""
    if isinstance(spec, list):
        return [_renamed(each, name) for each in spec]
    if not isinstance(spec, dict):
        return spec
    if spec == {"name": "data"}:
        return {"name": name}
    return {key: _renamed(each, name) for key, each in spec.items()}


def rows(data: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)]


CURVES = {SERIES: "algorithm", "line": "run", "x": "x", "y": "y", "low": "low", "high": "high", "n": "runs"}
"""what a row of a curve has, and the titles of its columns"""


def write_curves(figure: Figure, folder: Path) -> Path:
    """The lines or points of a figure as they are drawn, one row per point"""
    content = [
        [panel.title, panel.x_title, *(row.get(name) for name in CURVES)]
        for panel in figure.panels
        if panel.kind != "bars"
        for row in rows(panel.data)
    ]
    path = folder / f"curves-{figure.key}.csv"
    path.write_text(as_csv(["panel", "x is", *CURVES.values()], content), encoding="utf-8")
    return path


def as_csv(titles: Sequence[str], content: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(titles)
    writer.writerows(content)
    return text.getvalue()


def write_tables(source: Source, drawn: Sequence[Figure], folder: Path, kind: str) -> list[Path]:
    """Final returns, and the intervals of the final scores, as CSV in full digits or as LaTeX in those that count"""
    paths = []
    for name, table in {"returns": final_table(source), **interval_tables(drawn)}.items():
        path = folder / f"table-{name}.{'csv' if kind == 'csv' else 'tex'}"
        path.write_text(table_csv(table) if kind == "csv" else table_latex(table), encoding="utf-8")
        paths.append(path)
    return paths


def table_csv(table: Table) -> str:
    content = table.raw()
    return as_csv(list(content[0]) if content else table.titles, [list(row.values()) for row in content])


LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"},
    **{"<": "\\textless{}", ">": "\\textgreater{}", "±": "$\\pm$", "–": "--", "−": "$-$", "\n": " "},
}


def latex(text: str) -> str:
    """As it is read: nothing in it is a command"""
    return "".join(LATEX.get(sign, sign) for sign in text)


def table_latex(table: Table) -> str:
    """A tabular for the package booktabs"""
    columns = "".join("r" if i in table.numeric else "l" for i in range(len(table.titles)))
    lines = [" & ".join(map(latex, table.titles))]
    lines += [
        " & ".join(_latex_cell(cell.text, i in table.numeric) for i, cell in enumerate(row.cells)) for row in table.rows
    ]
    head, *body = (f"  {line} \\\\" for line in lines)
    parts = [f"\\begin{{tabular}}{{{columns}}}", "  \\toprule", head, "  \\midrule", *body, "  \\bottomrule"]
    return "\n".join([*parts, "\\end{tabular}", ""])


def _latex_cell(text: str, numeric: bool) -> str:
    return latex(text.replace("-", "−") if numeric else text)
