"""Pictures and table of docs/control.md: the two rules in a closed loop whose answer is known, and in a study's runs.

    python examples/rules.py toy                               # docs/control/toy.png and its table
    python examples/rules.py study results/control.tar.gz      # docs/control/study-*.png and its table

The loop: Q - R is 4 * (beta - b), which the critic follows with a lag of ten updates, and six noisy episodes are seen
at a time. Without a gap Q - R is 0 whatever beta is, and all that moves beta is noise.
"""

import argparse
from pathlib import Path

import altair as alt
import numpy as np
import vl_convert

from acc_rl.core.controller import Calibrating, Evidence
from acc_rl.core.settings import PAPER
from acc_rl.report.load import load
from acc_rl.store import records
from acc_rl.store.archive import unpacked

RULES, LEVER, LAG, EPISODES, UPDATES = ("paper", "confident"), 4.0, 10, 6, 100
CASES = {"a real gap: d = 1 is right": 4.0, "no gap, noise alone": None}


def closed_loop(rule: str, right: float | None, seed: int) -> list[float]:
    """d after each of 100 updates"""
    rng, controller, seen, path = np.random.default_rng(seed), Calibrating(), [], []
    controller.begin(PAPER.merged({"start": 2.5, "range": (0, 5), "lr": 0.1, "rule": rule}))
    bias = 0.0 if right is None else LEVER * (controller.beta - right)
    for step in range(UPDATES):
        seen = [*seen, rng.normal()][-EPISODES:]
        error = float(np.std(seen, ddof=1) / len(seen) ** 0.5) if len(seen) > 1 else np.nan
        controller.measured(Evidence(float(np.mean(seen)) - bias, error, step, clusters=len(seen), lever=LEVER))
        bias += 0.0 if right is None else (LEVER * (controller.beta - right) - bias) / LAG
        path.append(5 - controller.beta)
    return path


def save(chart: alt.TopLevelMixin, path: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(vl_convert.vegalite_to_png(chart.to_json(), scale=2))


def lines(rows: list[dict[str, object]], x: str, y: str, panel: str, colour: str, detail: str) -> alt.FacetChart:
    chart = alt.Chart(alt.Data(values=rows)).mark_line(opacity=0.7)
    encoded = chart.encode(
        x=alt.X(f"{x}:Q", title=x),
        y=alt.Y(f"{y}:Q", title=y, scale=alt.Scale(zero=False)),
        color=alt.Color(f"{colour}:N", title=None, legend=alt.Legend(labelLimit=400)),
        strokeDash=alt.StrokeDash(f"{colour}:N", title=None),
        detail=f"{detail}:N",
    )
    facets = encoded.properties(width=320, height=200).facet(column=alt.Column(f"{panel}:N", title=None))
    return facets.resolve_scale(y="independent")


def toy() -> None:
    print(
        "| | rule | standard deviation of d after 100 updates | updates until within 0.3 | mean abs(d - 1) after 50 |"
    )
    print("|---|---|--:|--:|--:|")
    rows = []
    for case, right in CASES.items():
        for rule in RULES:
            paths = np.array([closed_loop(rule, right, seed) for seed in range(200)])
            rows += [
                {"update": i + 1, "d": d, "case": case, "rule": rule, "seed": seed}
                for seed, path in enumerate(paths[:8])
                for i, d in enumerate(path)
            ]
            off = np.abs(paths - 1)
            arrives = np.median((off < 0.3).argmax(1)) + 1
            found = "| | |" if right is None else f"| {arrives:.0f} | {off[:, 50:].mean():.2f} |"
            print(f"| {case} | {rule} | {paths[:, -1].std():.2f} {found}")
    save(lines(rows, "update", "d", "case", "rule", "seed"), "docs/control/toy.png")


def study(path: Path) -> None:
    knob, curves = [], []
    with unpacked(path) as folder:
        print("| task | variant | seed | return | Q - R, soft | of R | pessimism |\n|---|---|--:|--:|--:|--:|--:|")
        runs = load(folder).runs
        for run in (each for each in runs if each.last_step == max(other.last_step for other in runs)):
            about = {"task": run.task, "variant": run.label, "seed": run.seed}
            training = list(records.read(folder / run.name / records.TRAINING))
            tests = list(records.read(folder / run.name / records.EVALUATIONS))
            errors = list(records.read(folder / run.name / records.VALUE_ERROR))[-10:]
            knob += [{**about, "step": row["step"], "pessimism": row["pessimism"]} for row in training]
            curves += [{**about, "step": row["step"], "return": row["mean_return"]} for row in tests]
            bias, of = (np.mean([row[name] for row in errors]) for name in ("bias_soft", "mean_return"))
            final = np.mean([row["mean_return"] for row in tests[-2:]])
            ends = [str(run.seed), f"{final:.0f}", f"{bias:+.0f}", f"{of:.0f}", f"{training[-1]['pessimism']:.2f}"]
            print("|", " | ".join([run.task, run.label, *ends]), "|")
    save(lines(knob, "step", "pessimism", "task", "variant", "seed"), "docs/control/study-pessimism.png")
    save(lines(curves, "step", "return", "task", "variant", "seed"), "docs/control/study-return.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["toy", "study"])
    parser.add_argument("archive", nargs="?", type=Path)
    options = parser.parse_args()
    toy() if options.what == "toy" else study(options.archive)
