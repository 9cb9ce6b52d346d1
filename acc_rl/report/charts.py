"""Charts: each one Vega-Lite specification, for the page and for files.

Data stay apart from the specification, as columns. Colours, dashes and markers follow from the algorithm's place in the
study, so that names are never more than text. Text is drawn in ``currentColor``: it follows the page into the dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

import altair as alt
import numpy as np

from acc_rl.report.colours import Look

SERIES = "series"
ROW_HEIGHT = 26
MARKERS, OF_SINGLE_RUNS = 8, 3
"""per line"""
LABELS = 46
"""pixels for the numbers beside a y axis, in all charts the same: those above each other begin at one line"""
Kind = Literal["curves", "points", "bars"]


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

    @property
    def has_curves(self) -> bool:
        """Or single points: data with x and y"""
        return any(panel.kind != "bars" for panel in self.panels)


def numbers(values: Any, digits: int = 5) -> list[float | None]:
    """For JSON: short, null for NaN"""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in np.asarray(values, float)]


def whole(values: Any) -> list[float | int | None]:
    return [int(v) if v == int(v) else float(v) for v in np.asarray(values, float)]


def by_look(channel: Any, looks: Mapping[str, Look], attribute: str) -> Any:
    scale = alt.Scale(domain=list(looks), range=[getattr(look, attribute) for look in looks.values()])
    return channel(f"{SERIES}:N", scale=scale, title=None, sort=None)


def colour(looks: Mapping[str, Look]) -> Any:
    return by_look(alt.Color, looks, "colour")


def of_data(data: Mapping[str, Sequence[Any]], looks: Mapping[str, Look]) -> dict[str, Look]:
    """The looks of those algorithms that the data are of"""
    present = set(data[SERIES])
    return {label: look for label, look in looks.items() if label in present}


def marked(data: Mapping[str, Sequence[Any]]) -> list[int]:
    """1 for the rows that get a marker: a few of each line, not where the other lines have theirs"""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(zip(*(data[name] for name in (SERIES, "line") if name in data), strict=True)):
        if data["y"][row] is not None:
            groups.setdefault(key, []).append(row)
    chosen: set[int] = set()
    markers = OF_SINGLE_RUNS if "line" in data else MARKERS
    for number, known in enumerate(groups.values()):
        places = (np.arange(markers) + (number + 0.5) / len(groups)) / markers
        # not at the ends of a long line, where half of a marker would be outside
        chosen.update(known[int((0.02 + 0.96 * place) * len(known))] for place in places)
    return [int(row in chosen) for row in range(len(data["y"]))]


def span(data: Sequence[Mapping[str, Sequence[Any]]]) -> tuple[float, float]:
    """From 0 or the lowest line to the highest band, for charts with one y axis in common"""

    def known(*names: str) -> list[float]:
        return [0.0, *(v for each in data for name in names for v in each.get(name, ()) if v is not None)]

    low, high = min(known("y")), max(known("y", "high"))
    return low, high + 0.03 * (high - low)


def short(*columns: Sequence[float | None]) -> str:
    """Format of an axis' numbers: all of them whole, in thousands or in millions, by the largest"""
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
    x_end: float | None = None,
    percent: bool = False,
    zero: bool = False,
    least: float | None = None,
    domain: tuple[float, float] | None = None,
    reference: float | None = None,
    log: bool = False,
) -> Panel:
    """Lines with bands; columns series, x, y and, for the bands, low and high; ``line`` tells single runs apart.

    The x axis is 0 to ``x_end``. The y axis is 0 to 100 % with ``percent``, contains 0 with ``zero``, begins at
    ``least``, is the ``domain``, or is logarithmic.
    """
    data, shown = {**data, "mark": marked(data)}, of_data(data, looks)
    x_scale = alt.Scale(nice=False, zero=False) if x_end is None else alt.Scale(domain=[0, x_end], nice=False)
    x_axis = alt.Axis(labelExpr=short(data["x"]), tickCount=5, labelFlush=True)
    x = alt.X("x:Q", title=x_title, scale=x_scale, axis=x_axis)
    values = [data[name] for name in ("y", "low", "high") if name in data]
    scale = y_scale(percent, zero, least, domain, log)
    y = alt.Y("y:Q", title=y_title, scale=scale, axis=y_axis(values, percent, log))
    base = alt.Chart(alt.NamedData("data"))
    tint = colour(shown)
    detail = {"detail": alt.Detail("line:N")} if "line" in data else {}
    width, size = (1.0, 30) if "line" in data else (2.0, 50)
    line = base.mark_line(strokeWidth=width, clip=True)
    point = base.transform_filter("datum.mark == 1").mark_point(filled=True, opacity=1, size=size)
    layers = [
        line.encode(x, y, tint, by_look(alt.StrokeDash, shown, "dash"), **detail),
        point.encode(x, y, tint, by_look(alt.Shape, shown, "shape")),
    ]
    if "low" in data:
        ends = alt.Y("low:Q", title=y_title, scale=scale), alt.Y2("high:Q")
        layers.insert(0, base.mark_area(opacity=0.17, clip=True).encode(x, *ends, tint))
    if reference is not None:
        layers.insert(0, reference_line().encode(y=alt.Y(datum=reference)))
    return Panel(title, alt.layer(*layers), data, "curves", shown, x_title)


def y_scale(percent: bool, zero: bool, least: float | None, domain: tuple[float, float] | None, log: bool) -> Any:
    if log:
        return alt.Scale(type="log", nice=False)
    if percent or domain:
        return alt.Scale(domain=[0, 1] if domain is None else list(domain))
    return alt.Scale(zero=zero) if least is None else alt.Scale(domainMin=least)


def y_axis(values: Sequence[Sequence[float | None]], percent: bool, log: bool) -> Any:
    how: dict[str, Any] = {"format": "%"} if percent else {"labelExpr": short(*values)}
    how["tickCount"] = 5
    if log:
        how = {"format": "~r", "values": [digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5)]}
    # without grid=True a reference alone would have none
    return alt.Axis(**how, labelFlush=False, grid=True, minExtent=LABELS)


def spans_magnitudes(data: Mapping[str, Sequence[Any]]) -> bool:
    """Whether, on a linear axis from 0, a few large values would leave no room for the others"""
    values: list[float] = [v for name in ("y", "low", "high") for v in data.get(name, ()) if v is not None]
    return min(values) > 0 and max(values) > 20 * median(values)


def reference_line() -> Any:
    once = alt.Chart(alt.NamedData("data")).transform_aggregate(rows="count()")  # not once per row of the data
    return once.mark_rule(strokeDash=[3, 3], opacity=0.6, color="currentColor")


def points(
    title: str, data: Mapping[str, Sequence[Any]], looks: Mapping[str, Look], x_title: str, y_title: str
) -> Panel:
    """A mark per run, and a line at x = 0; columns series, line (which run), x and y"""
    shown = of_data(data, looks)
    tooltips = [alt.Tooltip(f"{SERIES}:N", title="algorithm"), alt.Tooltip("line:N", title="run")]
    tooltips += [alt.Tooltip("x:Q", title=x_title, format=",.3~r"), alt.Tooltip("y:Q", title=y_title, format=",.4~r")]
    x_axis = alt.Axis(labelExpr=short(data["x"]), tickCount=5, labelFlush=False, grid=True)
    room = alt.Scale(padding=8)  # no mark on the frame
    x = alt.X("x:Q", title=x_title, scale=room, axis=x_axis)
    y = alt.Y("y:Q", title=y_title, scale=room, axis=y_axis([data["y"]], percent=False, log=False))
    marks = alt.Chart(alt.NamedData("data")).mark_point(filled=True, opacity=0.85, size=70)
    marks = marks.encode(x, y, colour(shown), by_look(alt.Shape, shown, "shape"), tooltip=tooltips)
    return Panel(title, alt.layer(reference_line().encode(x=alt.X(datum=0)), marks), data, "points", shown, x_title)


def intervals(
    title: str,
    data: Mapping[str, Sequence[Any]],
    looks: Mapping[str, Look],
    x_title: str,
    reference: float | None = None,
    domain: tuple[float, float] | None = None,
) -> Panel:
    """A dot with its interval per row; columns row, series, x, low, high. Without a domain, x begins at 0."""
    shown = of_data(data, looks)
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
    "legend": {"disable": True},  # the page has its own, and so have files
}


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
    spec["height"] = ROW_HEIGHT * len(panel.data[SERIES]) if panel.kind == "bars" else 210
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    return spec
