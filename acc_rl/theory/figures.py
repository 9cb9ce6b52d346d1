"""Tables and figures of Theorem 1 and of Algorithm 1 with tables."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt
import numpy as np
import vl_convert
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from acc_rl.theory import tabular, theorem
from acc_rl.theory.tabular import ALGORITHMS, Walk, mean_and_error
from acc_rl.theory.theorem import Row

Chart: TypeAlias = alt.VConcatChart
Z95 = 1.96
WALK = "walk"

# Okabe and Ito's colours can be distinguished with any kind of colour blindness
COLOURS = {
    "normal": "#0072B2",
    "uniform": "#E69F00",
    "fair coin": "#009E73",
    "exponential": "#CC79A7",
    "rare gain": "#D55E00",
    "rare loss": "#56B4E9",
    "Q-learning": "#D55E00",
    "double Q-learning": "#0072B2",
    "ACC": "#009E73",
}
SHAPES = {
    "normal": "circle",
    "uniform": "square",
    "fair coin": "diamond",
    "exponential": "circle",
    "rare gain": "triangle-up",
    "rare loss": "triangle-down",
}
BIAS = "bias (standard deviations of a return)"


def demonstrate(
    returns: Sequence[int], repeats: int, walks: int, steps: int, seed: int, out: Path
) -> tuple[list[Table], list[Path]]:
    """Simulate both, with a progress bar; write their figures to ``out``."""
    for_walk, for_returns = np.random.default_rng(seed).spawn(2)
    simulated = theorem.biases(returns, repeats, for_returns)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("walk", total=steps)
        walk = tabular.walk(
            tabular.grid_world(), steps, walks, for_walk, progress=lambda step: bar.update(task, completed=step)
        )
        rows = list(bar.track(simulated, total=len(theorem.CASES) * len(returns), description="returns"))
        drawn = bar.add_task("figures", total=None)
        out.mkdir(parents=True, exist_ok=True)
        paths = write(out, "theorem", theorem_chart(rows), [row.as_dict() for row in rows])
        paths += write(out, "tabular", tabular_chart(walk), walk_rows(walk))
        bar.update(drawn, total=1, completed=1)
    return [theorem_table(rows), tabular_table(walk)], paths


def theorem_table(rows: Sequence[Row]) -> Table:
    """Two lines per case: the exact bias, and the simulated one; columns are numbers of returns"""
    table = Table(title="Bias of clip(mean of n returns, Q_min, Q_max)\nin standard deviations of a return")
    table.add_column("returns [Q_min, Q_max]", no_wrap=True)
    numbers = list(dict.fromkeys(row.n for row in rows))
    for i, n in enumerate(numbers):
        table.add_column(f"n = {n}" if i == 0 else str(n), justify="right", no_wrap=True)
    group = ""
    for case in dict.fromkeys(row.case for row in rows):
        if case.group != group:
            table.add_section()
            table.add_row(case.group, style="bold")
            group = case.group
        cells = {row.n: row for row in rows if row.case == case}
        table.add_row(case.name, *(_signed(cells[n].exact) for n in numbers))
        table.add_row("  simulated", *(_signed(cells[n].simulated) for n in numbers), style="dim")
    table.caption = f"largest difference: {_largest_z(rows):.1f} standard errors"
    return table


def _signed(value: float) -> str:
    return f"{round(value, 4) + 0.0:+.4f}"  # + 0.0: no -0.0000


def _largest_z(rows: Iterable[Row]) -> float:
    return max((abs(row.simulated - row.exact) / row.error for row in rows if row.error > 0), default=0.0)


def tabular_table(walk: Walk) -> Table:
    """Bias of each algorithm against both truths, at a tenth, a quarter, half and the end"""
    table = Table(
        title=f"Estimate of the start's value less the truth\nmean of {walk.beta.shape[-1]} walks ± standard error"
    )
    table.add_column("less the value of", no_wrap=True)
    table.add_column("step", justify="right")
    for name in ALGORITHMS:
        table.add_column(name, justify="right", no_wrap=True)
    for reference, text in (("optimal", f"the best policy ({walk.optimum:.2f})"), ("followed", "the followed policy")):
        mean, error = mean_and_error(walk.bias(reference))
        for k, share in enumerate((0.1, 0.25, 0.5, 1.0)):
            i = round(share * len(walk.steps)) - 1
            cells = (f"{m:+.2f} ± {e:.2f}" for m, e in zip(mean[:, i], error[:, i], strict=True))
            table.add_row(text if k == 0 else "", f"{walk.steps[i]}", *cells)
        table.add_section()
    return table


def theorem_chart(rows: Sequence[Row]) -> Chart:
    """Exact bias as lines, simulated bias as points with 95 % intervals, one panel per assumption"""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.case.group, []).append(row)
    noise = max(abs(row.simulated) + Z95 * row.error for g in (theorem.HOLDS, theorem.INSIDE) for row in groups[g])
    above = alt.hconcat(
        _bias_panel("Unbiased: all assumptions hold", groups[theorem.HOLDS], (-noise, noise), 420),
        _bias_panel("Unbiased as well: no return beyond the walls", groups[theorem.INSIDE], (-noise, noise), 420),
    )
    broken = [theorem.DISTANCE, theorem.SYMMETRY, theorem.OUTSIDE]
    ends = [row.exact for g in broken for row in groups[g]]
    titles = ["Biased: unequal distances", "Biased: returns not symmetric", "Biased for ever: Q not between the walls"]
    panels = [
        _bias_panel(title, groups[g], (min(0.0, *ends), max(0.0, *ends)), 260)
        for title, g in zip(titles, broken, strict=True)
    ]
    title = alt.TitleParams(
        "Theorem 1: is clip(mean of n returns, Q_min, Q_max) an unbiased estimate of Q?",
        subtitle=[
            "Lines: exact bias. Points: simulation with 95 % intervals. In brackets the walls [Q_min, Q_max], "
            "as distances from Q in standard deviations of a return.",
            "The upper panels are enlarged: what is left there is the noise of the simulation.",
        ],
        anchor="start",
    )
    rows_of_panels = [_own_legends(above), _own_legends(alt.hconcat(*panels))]
    data = {group: _points(part) for group, part in groups.items()}
    return _finished(_own_legends(alt.vconcat(*rows_of_panels, title=title)), data)


def _own_legends(chart: Any) -> Any:
    return chart.resolve_scale(color="independent", shape="independent")


def _bias_panel(title: str, rows: Sequence[Row], limits: tuple[float, float], width: int) -> Any:
    cases = list(dict.fromkeys(row.case for row in rows))
    numbers, names = sorted({row.n for row in rows}), [case.name for case in cases]
    scale = alt.Scale(type="log", domain=[numbers[0] * 0.8, numbers[-1] * 1.25], nice=False)
    axis = alt.Axis(values=numbers, format="d", labelOverlap=True)
    legend = alt.Legend(title=None, orient="bottom", direction="vertical", columns=1, labelLimit=300)
    colour = alt.Color(
        "case:N", legend=legend, scale=alt.Scale(domain=names, range=[COLOURS[c.returns.name] for c in cases])
    )
    shape = alt.Shape(
        "case:N", legend=legend, scale=alt.Scale(domain=names, range=[SHAPES[c.returns.name] for c in cases])
    )
    y = alt.Y("exact:Q", title=BIAS, scale=alt.Scale(domain=list(limits), nice=True, padding=8))
    base = alt.Chart(alt.NamedData(cases[0].group))
    lines = base.mark_line(strokeWidth=2).encode(
        alt.X("n:Q", title="number of returns n", scale=scale, axis=axis), y, colour
    )
    bars = base.mark_rule(strokeWidth=1.5).encode(
        alt.X("beside:Q", scale=scale), alt.Y("from:Q"), alt.Y2("to:Q"), colour
    )
    points = base.mark_point(filled=True, opacity=1, size=55).encode(
        alt.X("beside:Q", scale=scale), alt.Y("simulated:Q"), colour, shape
    )
    return alt.layer(_level(0.0), lines, bars, points, title=title, width=width, height=230)


def _points(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Where the exact values are all 0, the simulated ones stand beside each other"""
    cases = list(dict.fromkeys(row.case for row in rows))
    step = 1.08 if cases[0].group == theorem.HOLDS else 1.0
    return [
        {
            "case": row.case.name,
            "n": row.n,
            "beside": row.n * step ** (cases.index(row.case) - (len(cases) - 1) / 2),
            "exact": row.exact,
            "simulated": row.simulated,
            "from": row.simulated - Z95 * row.error,
            "to": row.simulated + Z95 * row.error,
        }
        for row in rows
    ]


def tabular_chart(walk: Walk) -> Chart:
    """Both biases, the value that was achieved, and beta, over time with 95 % intervals of the mean"""
    seeds = walk.beta.shape[-1]
    title = alt.TitleParams(
        "Algorithm 1 with tables: bias of the start state's value on a 3 x 3 grid with noisy rewards",
        subtitle=[
            f"Mean of {seeds} walks and its 95 % interval. The target is r + γ · [β · max estimate + (1 − β) · double "
            f"estimate]; the best policy is worth {walk.optimum:.2f}."
        ],
        anchor="start",
    )
    above = alt.hconcat(
        _curves("bias_to_best", "Bias against the best policy (Q*)", "estimate − value of the best policy", level=0.0),
        _curves(
            "bias_to_followed",
            "Bias against the policy that made the returns",
            "estimate − value of the followed policy",
            level=0.0,
        ),
    )
    below = alt.hconcat(
        _curves(
            "value_of_followed",
            "What the followed policy is worth (dashed: the best)",
            "value of the followed policy",
            level=walk.optimum,
        ),
        _curves("beta", "β, mean over the walks: 1 is the max, 0 the double estimate", "β"),
    )
    return _finished(alt.vconcat(above, below, title=title), {WALK: walk_rows(walk)})


def _curves(name: str, title: str, text: str, level: float | None = None) -> Any:
    """One column of ``walk_rows`` over time"""
    legend = alt.Legend(title=None, orient="top", symbolType="stroke", symbolStrokeWidth=3, symbolOpacity=1)
    scale = alt.Scale(domain=list(ALGORITHMS), range=[COLOURS[name] for name in ALGORITHMS])
    base = alt.Chart(alt.NamedData(WALK)).encode(
        alt.X("step:Q", title="env steps", axis=alt.Axis(format=",d", tickCount=5)),
        color=alt.Color("algorithm:N", legend=legend, scale=scale),
    )
    ends = {end: f"datum.{name} {sign} {Z95} * datum.{name}_error" for end, sign in (("bottom", "-"), ("top", "+"))}
    band = base.transform_calculate(**ends).mark_area(opacity=0.25)
    line = base.mark_line(strokeWidth=2).encode(alt.Y(f"{name}:Q", title=text))
    layers = [band.encode(alt.Y("bottom:Q", title=text), alt.Y2("top:Q")), line]
    below = [] if level is None else [_level(level)]
    return alt.layer(*below, *layers, title=title, width=400, height=230)


def _level(value: float) -> Any:
    data = alt.Data(values=[{"level": value}])
    return alt.Chart(data).mark_rule(color="#555", strokeDash=[4, 3]).encode(y="level:Q")


def _finished(chart: Any, data: Mapping[str, list[dict[str, Any]]]) -> Chart:
    """In one style, and with its data last: Altair copies a chart, data and all, at every step"""
    styled: Chart = (
        chart.configure(background="white", font="Helvetica, Arial, sans-serif", padding=12)
        .configure_axis(gridColor="#e6e6e6", labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_legend(labelFontSize=12)
        .configure_title(fontSize=14, subtitleFontSize=12, subtitleColor="#444", anchor="start", offset=10)
        .configure_view(stroke="#bbb")
    )
    styled.datasets = dict(data)
    return styled


def walk_rows(walk: Walk) -> list[dict[str, Any]]:
    """One row per algorithm and time: means over the walks and their standard errors"""
    named = {
        "bias_to_best": walk.bias("optimal"),
        "bias_to_followed": walk.bias("followed"),
        "value_of_followed": walk.achieved,
        "beta": walk.beta,
    }
    columns: dict[str, Any] = {}
    for name, values in named.items():
        columns[name], columns[f"{name}_error"] = mean_and_error(values)
    return [
        {"algorithm": algorithm, "step": int(step), **{name: float(column[k, i]) for name, column in columns.items()}}
        for k, algorithm in enumerate(ALGORITHMS)
        for i, step in enumerate(np.asarray(walk.steps))
    ]


def write(folder: Path, name: str, chart: Chart, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """The figure in three formats and its numbers as CSV"""
    svg, png, pdf, table = paths = [folder / f"{name}.{suffix}" for suffix in ("svg", "png", "pdf", "csv")]
    chart.save(svg)
    picture = svg.read_text(encoding="utf-8")  # drawn once: the other two show the same
    png.write_bytes(vl_convert.svg_to_png(picture, scale=2))
    pdf.write_bytes(vl_convert.svg_to_pdf(picture))
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return paths
