"""Charts: each one Vega-Lite specification, for the page and for files.

Data stay apart from the specification, as columns. Colours and dashes are told by the algorithm's place in the study,
so that names are never more than text. Text is drawn in ``currentColor``: it follows the page into the dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

import altair as alt
import numpy as np
import vl_convert

from acc_rl.report.colours import Look

FORMATS = ("pdf", "svg", "png")
SERIES = "series"
ROW_HEIGHT = 26
Kind = Literal["curves", "bars"]


@dataclass(frozen=True)
class Panel:
    """One chart with its data."""

    title: str
    chart: Any
    data: Mapping[str, Sequence[Any]]
    kind: Kind
    looks: Mapping[str, Look]
    x_title: str = ""


@dataclass(frozen=True)
class Figure:
    """Panels that belong together, and what to see in them."""

    key: str
    title: str
    sentence: str
    panels: list[Panel]
    notes: list[str] = field(default_factory=list)
    wide: bool = False
    """one panel fills a row of the page"""


def numbers(values: Any, digits: int = 5) -> list[float | None]:
    """For JSON: short, null for NaN"""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in np.asarray(values, float)]


def whole(values: Any) -> list[float | int | None]:
    return [int(v) if v == int(v) else float(v) for v in np.asarray(values, float)]


def colour(looks: Mapping[str, Look]) -> Any:
    labels = list(looks)
    scale = alt.Scale(domain=labels, range=[look.colour for look in looks.values()])
    return alt.Color(f"{SERIES}:N", scale=scale, title=None, sort=None)


def dash(looks: Mapping[str, Look]) -> Any:
    scale = alt.Scale(domain=list(looks), range=[look.dash for look in looks.values()])
    return alt.StrokeDash(f"{SERIES}:N", scale=scale, title=None, sort=None)


def short(*columns: Sequence[float | None]) -> str:
    """How the numbers of an axis are told: all of them whole, in thousands or in millions, by the largest"""
    largest = max((abs(value) for column in columns for value in column if value is not None), default=0.0)
    if largest < 10_000:
        return "format(datum.value, ',~g')"
    size, unit = (1e6, "M") if largest >= 1e6 else (1e3, "k")
    return f"datum.value == 0 ? '0' : format(datum.value / {size:.0f}, ',~g') + '{unit}'"


def curves(
    title: str,
    data: Mapping[str, Sequence[Any]],
    looks: Mapping[str, Look],
    x_title: str,
    y_title: str,
    percent: bool = False,
    zero: bool = False,
    least: float | None = None,
    reference: float | None = None,
    log: bool = False,
) -> Panel:
    """Lines with bands; columns series, x, y and, for the bands, low and high; ``line`` tells single runs apart.

    The y axis is 0 to 100 % with ``percent``, contains 0 with ``zero``, begins at ``least``, or is logarithmic.
    """
    present = set(data[SERIES])
    shown = {label: look for label, look in looks.items() if label in present}
    x_axis = alt.Axis(labelExpr=short(data["x"]), tickCount=5, labelFlush=False)
    x = alt.X("x:Q", title=x_title, scale=alt.Scale(nice=False, zero=False), axis=x_axis)
    told: dict[str, Any] = {"format": "%"}
    if not percent:
        told = {"labelExpr": short(*(data[name] for name in ("y", "low", "high") if name in data))}
    told["tickCount"] = 5
    limits: dict[str, Any] = {"zero": zero} if least is None else {"domainMin": least}
    if percent:
        limits = {"domain": [0, 1]}
    if log:
        limits = {"type": "log", "nice": False}
        told = {"format": "~r", "values": [digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5)]}
    y_axis = alt.Axis(**told, labelFlush=True, grid=True)  # a reference alone would have none
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(**limits), axis=y_axis)
    base = alt.Chart(alt.NamedData("data"))
    detail = {"detail": alt.Detail("line:N")} if "line" in data else {}
    width = 1.0 if "line" in data else 2.0
    layers = [base.mark_line(strokeWidth=width, clip=True).encode(x, y, colour(shown), dash(shown), **detail)]
    if "low" in data:
        ends = alt.Y("low:Q", title=y_title), alt.Y2("high:Q")
        band = base.mark_area(opacity=0.17, clip=True).encode(x, *ends, colour(shown))
        layers.insert(0, band)
    if reference is not None:
        layers.insert(0, reference_line().encode(y=alt.Y(datum=reference)))
    return Panel(title, alt.layer(*layers), data, "curves", shown, x_title)


def spans_magnitudes(data: Mapping[str, Sequence[Any]]) -> bool:
    """Whether, on a linear axis from 0, a few large values would leave no room for the others"""
    values: list[float] = [v for name in ("y", "low", "high") for v in data.get(name, ()) if v is not None]
    return min(values) > 0 and max(values) > 20 * median(values)


def reference_line() -> Any:
    once = alt.Chart(alt.NamedData("data")).transform_aggregate(rows="count()")  # not once per row of the data
    return once.mark_rule(strokeDash=[3, 3], opacity=0.6, color="currentColor")


def intervals(
    title: str,
    data: Mapping[str, Sequence[Any]],
    looks: Mapping[str, Look],
    x_title: str,
    reference: float | None = None,
    domain: tuple[float, float] | None = None,
) -> Panel:
    """A dot with its interval per row; columns row, series, x, low, high. Without a domain, x begins at 0."""
    present = set(data[SERIES])
    shown = {label: look for label, look in looks.items() if label in present}
    base = alt.Chart(alt.NamedData("data"))
    tooltips = [alt.Tooltip("row:N", title="of"), alt.Tooltip("x:Q", title=x_title, format=".3~f")]
    tooltips += [alt.Tooltip(f"{end}:Q", title=f"95 % {end}", format=".3~f") for end in ("low", "high")]
    scale = alt.Scale(zero=True) if domain is None else alt.Scale(domain=domain, nice=False, zero=False)
    x = alt.X("x:Q", title=x_title, scale=scale, axis=alt.Axis(tickCount=6, labelFlush=False, grid=True))
    y = alt.Y("row:N", title=None, sort=None, axis=alt.Axis(labelLimit=220))
    tint = colour(shown)
    bar = base.mark_rule(strokeWidth=9, opacity=0.3).encode(
        alt.X("low:Q", title=x_title), alt.X2("high:Q"), y, tint, tooltip=tooltips
    )
    dot = base.mark_tick(thickness=3, size=17).encode(x, y, tint, tooltip=tooltips)
    layers = [bar, dot]
    if reference is not None:
        layers.insert(0, reference_line().encode(x=alt.X(datum=reference)))
    return Panel(title, alt.layer(*layers), data, "bars", shown, x_title)


CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 12,
        "gridColor": "#8888",
        "gridOpacity": 0.35,
        "domainColor": "#888",
        "tickColor": "#888",
    },
    "title": {"color": "currentColor", "fontSize": 13, "anchor": "start", "frame": "group"},
    "legend": {"labelColor": "currentColor", "titleColor": "currentColor", "labelLimit": 300},
    "header": {"labelColor": "currentColor", "titleColor": "currentColor"},
}


FILE_LEGEND = {
    **CONFIG["legend"],
    **{"orient": "top", "columns": 6, "symbolType": "stroke", "symbolSize": 500, "symbolStrokeWidth": 2.5},
    **{"symbolOpacity": 1, "labelFontSize": 12},
}
PAGE_CONFIG = {**CONFIG, "legend": {"disable": True}}


def bare(panel: Panel) -> dict[str, Any]:
    spec: dict[str, Any] = panel.chart.to_dict(validate=False)
    return {key: value for key, value in spec.items() if key not in ("config", "$schema")}


def page_spec(panel: Panel) -> dict[str, Any]:
    """For the page: as wide as its place, without the legend, which the page has once; hidden algorithms left out"""
    spec = bare(panel)
    hidden = {"name": "hidden", "value": []}
    spec["params"] = [*spec.get("params", []), hidden]
    spec["transform"] = [{"filter": f"indexof(hidden, datum.{SERIES}) < 0"}, *spec.get("transform", [])]
    spec["width"] = "container"
    spec["height"] = 210 if panel.kind == "curves" else ROW_HEIGHT * len(panel.data[SERIES])
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    return spec


def file_spec(figure: Figure, columns: int = 3) -> dict[str, Any]:
    """For a file: all panels, each with its title, and the legend"""
    datasets, charts = {}, []
    looks = {label: look for panel in figure.panels for label, look in panel.looks.items()}
    for i, panel in enumerate(figure.panels):
        spec = bare(panel)
        _shared(spec, f"data{i}", looks)
        datasets[f"data{i}"] = rows(panel.data)
        size = {"width": 620 if figure.wide else 260, "height": 300 if figure.wide else 180}
        spec |= size if panel.kind == "curves" else {"height": ROW_HEIGHT * len(panel.data[SERIES])}
        spec["title"] = panel.title
        charts.append(spec)
    curves_too = any(panel.kind == "curves" for panel in figure.panels)  # bars have their names beside them
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "concat": charts,
        "columns": 1 if figure.wide else columns,
        "resolve": {"scale": {"color": "shared", "strokeDash": "shared"}},
        "datasets": datasets,
        "config": {**CONFIG, "background": "white", "legend": FILE_LEGEND if curves_too else {"disable": True}},
    }


def _shared(spec: Any, name: str, looks: Mapping[str, Look]) -> None:
    """Panels of one file have data of their own and the looks of all"""
    if isinstance(spec, dict):
        if spec.get("data") == {"name": "data"}:
            spec["data"] = {"name": name}
        for key, attribute in (("color", "colour"), ("strokeDash", "dash")):
            channel = spec.get(key)
            if isinstance(channel, dict) and channel.get("field") == SERIES:
                channel["scale"] = {
                    "domain": list(looks),
                    "range": [getattr(look, attribute) for look in looks.values()],
                }
    for each in spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else ():
        _shared(each, name, looks)


def rows(data: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)]


def write_figure(figure: Figure, folder: Path, kind: str) -> Path:
    path = folder / f"{figure.key}.{kind}"
    spec = file_spec(figure)
    if kind == "pdf":
        path.write_bytes(vl_convert.vegalite_to_pdf(spec))
    elif kind == "png":
        path.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
    else:
        path.write_text(vl_convert.vegalite_to_svg(spec))
    return path
