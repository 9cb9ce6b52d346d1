"""The tables of README.md, docs/results.md and docs/early.md, from the records in results/.

python examples/results.py results/modern.tar.gz                                       # per task and algorithm
python examples/results.py results/modern.tar.gz results/beside.tar.gz --beside       # with rows of the literature
python examples/results.py results/modern.tar.gz --short                               # the README's table
python examples/results.py results/modern.tar.gz results/rivals.tar.gz --tasks Hopper --algos acc-x x-top   # part of it
python examples/results.py results/modern.tar.gz --against acc-x                       # differences, with intervals
python examples/results.py results/modern.tar.gz --ranks                               # does less bias earn more?
python examples/results.py results/modern.tar.gz --made                                # commits and CPUs of the runs
python examples/results.py results/early.tar.gz --steps 26000 50000 100000             # run by run at these steps
python examples/results.py --renew README.md docs/results.md docs/early.md             # all tables of these pages
python examples/results.py --draw                                                      # all pictures in docs/results
"""

import argparse
import io
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, redirect_stdout
from math import isfinite
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from scipy.stats import spearmanr, ttest_ind

from acc_rl.report.calibration import at_end
from acc_rl.report.curves import final_level
from acc_rl.report.export import write_figure
from acc_rl.report.figures import figures
from acc_rl.report.load import Run, load, together
from acc_rl.report.page import read
from acc_rl.report.published import everything
from acc_rl.runs.tasks import full_name
from acc_rl.store import records
from acc_rl.store.archive import unpacked

COLUMNS = (
    ("d", records.TRAINING, "dropped_per_net", 1, ".2f"),
    ("return", records.EVALUATIONS, "mean_return", 5000, ".0f"),
    ("Q", records.VALUE_ERROR, "mean_q", 5000, ".0f"),
    ("R", records.VALUE_ERROR, "mean_return", 5000, ".0f"),
    ("Q - R", records.VALUE_ERROR, "bias", 5000, "+.0f"),
    ("abs(Q - R) / abs(R)", records.VALUE_ERROR, "normalised", 5000, ".2f"),
)
"""title, records, what of them, over how many steps, and how it is written"""
BESIDE = ("SAC_lr1e-3", "CrossQ (authors' files)", "SimbaV2_utd2", "XQC_utd2", "FlashSAC")
"""of the published returns; all of them of version 4 of the tasks"""
BLOCK = re.compile(r"(<!-- python examples/results\.py (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
SHORT = "SimbaV2_utd2"
"""the one of them in the short table: two updates per env step"""

RESULTS, PICTURES = Path("results"), Path("docs/results")
DRAWN = {
    "": (("modern",), ("tasks", "final", "improvement", "calibration-beta", "bias-full", "return-bias")),
    "compact": (("compact",), ("tasks", "calibration-dropped")),
}
"""folder below PICTURES: the archives, and which of their figures"""


def selected(runs: list[Run], tasks: list[str] | None, algos: list[str] | None) -> list[Run]:
    """The runs asked for, sorted by task and by algorithm in the order asked for"""
    runs = [run for run in runs if not tasks or run.task in map(full_name, tasks)]
    if not algos:
        return runs
    if missing := set(algos) - {run.label for run in runs}:
        raise SystemExit(f"no runs of {', '.join(sorted(missing))}: there are {', '.join({r.label: 0 for r in runs})}")
    return sorted((run for run in runs if run.label in algos), key=lambda run: algos.index(run.label))


def at_step(folder: Path, step: int) -> Iterator[str]:
    for _, part, name, before, form in COLUMNS:
        rows = [row for row in records.read(folder / part) if step - before < row["step"] <= step]
        values = [row[name] for row in rows if row.get(name) is not None]
        yield f"{mean(values):{form}}" if values else "-"


def run_by_run(folder: Path, steps: list[int]) -> None:
    runs = load(folder).runs
    for step in steps:
        print(f"After {step:,} steps:\n")
        print("| task | algorithm | seed |", " | ".join(column[0] for column in COLUMNS), "|")
        print("|---|---|---|" + "--:|" * len(COLUMNS))
        for run in runs:
            if run.last_step >= step:
                print("|", " | ".join([run.task, run.label, str(run.seed), *at_step(folder / run.name, step)]), "|")
        print()


def written(value: float, form: str) -> str:
    return f"{value:{form}}" if isfinite(value) else "-"


def at_the_end(runs: list[Run], returns: dict[str, float]) -> None:
    ended = [run for run in runs if run.finished]
    drops = any(run.has("training", "dropped_per_net") for run in ended)
    knob, title, form = ("dropped_per_net", "d", ".1f") if drops else ("beta", "beta", ".2f")
    succeeds = any(run.has("evaluations", "success") for run in ended)
    titles = ["return, run by run", "mean", *["success"] * succeeds, "Q - R, run by run", "R", title]
    print("| task | algorithm |", " | ".join(titles), "|")
    print("|---|---|" + "--:|" * len(titles))
    for task in dict.fromkeys(run.task for run in ended):
        for label in dict.fromkeys(run.label for run in ended if run.task == task):
            mine = [run for run in ended if (run.task, run.label) == (task, label)]
            levels = [final_level(run) for run in mine]
            cells = [", ".join(f"{level:.0f}" for level in levels), f"{mean(levels):.0f}"]
            if succeeds:
                cells.append(", ".join(written(final_level(run, "success"), ".0%") for run in mine))
            cells.append(", ".join(written(-at_end(run, "gap_full"), "+.0f") for run in mine))
            cells.append(", ".join(f"{returns[run.name]:.0f}" for run in mine))
            cells.append(", ".join(written(at_end(run, knob), form) for run in mine))
            print(f"| {task} | {label} |", " | ".join(cells), "|")


def in_short(runs: list[Run]) -> None:
    """A row per task: mean and standard deviation of the final returns, and a published return"""
    ended = [run for run in runs if run.finished]
    labels = list(dict.fromkeys(run.label for run in ended))
    print("| return |", " | ".join(f"`{label}`" for label in labels), f"| {SHORT}, published (v4) |")
    print("|---|" + "--:|" * (len(labels) + 1))
    for task in dict.fromkeys(run.task for run in ended):
        cells = [task]
        for label in labels:
            cells.append(level_of(run for run in ended if (run.task, run.label) == (task, label)))
        print("|", " | ".join([*cells, literature(task, SHORT, ended[0].steps)]), "|")


def level_of(runs: Iterable[Run]) -> str:
    """Mean and standard deviation of the final returns, and the number of runs"""
    levels = [final_level(run) for run in runs]
    spread = f" ± {stdev(levels):.0f}" if len(levels) > 1 else ""
    return f"{mean(levels):.0f}{spread} ({len(levels)})" if levels else ""


def literature(task: str, algo: str, step: int) -> str:
    """What is published for version 4 of the task"""
    found = [
        row for row in everything() if (f"{row.env}-v5", row.version, row.step, row.algo) == (task, "v4", step, algo)
    ]
    return f"*{found[0].mean:.0f}*" if found else ""


def beside(runs: list[Run]) -> None:
    """A row per algorithm, and one per algorithm of the literature"""
    ended = [run for run in runs if run.finished]
    tasks, labels = (list(dict.fromkeys(getattr(run, name) for run in ended)) for name in ("task", "label"))
    print("| return |", " | ".join(tasks), "|\n|---|" + "--:|" * len(tasks))
    for label in labels:
        cells = [level_of(run for run in ended if (run.task, run.label) == (task, label)) for task in tasks]
        print(f"| `{label}` |", " | ".join(cells), "|")
    for algo in BESIDE:
        print(
            f"| *{algo}, published (v4)* |", " | ".join(literature(task, algo, ended[0].steps) for task in tasks), "|"
        )


def tasks_of(runs: list[Run]) -> Iterator[tuple[str, dict[str, list[Run]]]]:
    """Each task with its finished runs by algorithm"""
    ended = [run for run in runs if run.finished]
    for task in dict.fromkeys(run.task for run in ended):
        mine = [run for run in ended if run.task == task]
        yield (
            task,
            {label: [run for run in mine if run.label == label] for label in dict.fromkeys(r.label for r in mine)},
        )


def against(runs: list[Run], label: str) -> None:
    """Final returns of one algorithm less those of each other, task by task; intervals by Welch's t"""
    print(f"| task | {label} less | difference | 95 % interval | runs | {label} earns more in |")
    print("|---|---|--:|--:|--:|--:|")
    for task, by_label in tasks_of(runs):
        own = np.array([final_level(run) for run in by_label.pop(label, [])])
        for other, theirs in by_label.items() if len(own) else ():
            levels = np.array([final_level(run) for run in theirs])
            cells = [
                task,
                other,
                f"{own.mean() - levels.mean():+.0f}",
                welch(own, levels),
                f"{len(own)}, {len(levels)}",
            ]
            won = np.mean((own[:, None] > levels) + 0.5 * (own[:, None] == levels))
            print("|", " | ".join([*cells, f"{100 * won:.0f} % of pairs"]), "|")


def welch(a: np.ndarray, b: np.ndarray) -> str:
    if min(len(a), len(b)) < 2:
        return "-"
    interval = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    return f"{interval.low:+.0f} to {interval.high:+.0f}"


def ranks(runs: list[Run]) -> None:
    """Per task, over the runs of all algorithms: rank correlations of the final return with the bias"""
    print("| task | runs | return and abs(Q - R) | p | return and Q - R | p |\n|---|--:|--:|--:|--:|--:|")
    for task, by_label in tasks_of(runs):
        ended = [run for mine in by_label.values() for run in mine]
        bias, level = (
            np.array([of(run) for run in ended]) for of in (lambda run: -at_end(run, "gap_full"), final_level)
        )
        found = [spearmanr(each, level) for each in (np.abs(bias), bias)]
        cells = [f"{each.statistic:+.2f} | {each.pvalue:.2g}" for each in found]
        print("|", " | ".join([task, str(len(ended)), *cells]), "|")


def made(runs: list[Run]) -> None:
    """A row per commit and CPU that made finished runs, in order of time"""
    found: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for start in run.provenance.get("starts", [run.provenance]) if run.finished else ():
            found.setdefault(((start["git_commit"] or "-")[:7], start["cpu"]), []).append(
                f"{start['started'][:10]} {run.name}"
            )
    print("| commit | CPU | runs begun | on |\n|---|---|--:|---|")
    for (commit, cpu), rows in sorted(found.items(), key=lambda item: min(item[1])):
        days = sorted({row.split()[0] for row in rows})
        print(f"| {commit} | {cpu} | {len({row.split()[1] for row in rows})} | {', '.join(days)} |")


def last_returns(folder: Path, run: Run) -> float:
    """The discounted returns that the gap was measured on, over the last 5 % of the steps"""
    rows = [row for row in records.read(folder / records.TRAINING) if row["step"] >= 0.95 * run.last_step]
    return mean(row["mean_return"] for row in rows if row.get("mean_return") is not None)


def draw() -> None:
    """The figures of every page whose archives are there"""
    for folder, (names, keys) in DRAWN.items():
        archives = [RESULTS / f"{name}.tar.gz" for name in names]
        if not all(archive.exists() for archive in archives):
            continue
        (PICTURES / folder).mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            source = read([opened.enter_context(unpacked(archive)) for archive in archives])
        drawn = {figure.key: figure for figure in figures(source)}
        for key in keys:
            print(write_figure(drawn[key], PICTURES / folder, "png"))
            print(*drawn[key].notes, sep="\n")


def renewed(page: str) -> str:
    """The page with what the commands write now, between each command and the mark of its end"""
    return BLOCK.sub(lambda found: found[1] + written_by(shlex.split(found[2])) + found[3], page)


def written_by(arguments: list[str]) -> str:
    with redirect_stdout(io.StringIO()) as text:
        main(arguments)
    return text.getvalue()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", type=Path, nargs="*")
    parser.add_argument("--renew", type=Path, nargs="+", metavar="PAGE", help="write the tables of these pages anew")
    parser.add_argument("--draw", action="store_true", help="draw the pictures in docs/results anew")
    parser.add_argument("--steps", type=int, nargs="+", help="run by run at these steps; of one archive")
    parser.add_argument("--short", action="store_true", help="a row per task")
    parser.add_argument("--beside", action="store_true", help="a row per algorithm, with those of the literature")
    parser.add_argument("--against", metavar="ALGORITHM", help="its final returns less those of the others, per task")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="only these")
    parser.add_argument("--algos", nargs="+", metavar="ALGORITHM", help="only these, as the tables call them")
    parser.add_argument("--ranks", action="store_true", help="rank correlations of return and bias over runs, per task")
    parser.add_argument("--made", action="store_true", help="which commits and CPUs the runs were made with")
    asked = parser.parse_args(arguments)
    if not asked.archives and not asked.renew and not asked.draw:
        parser.error("name an archive of acc study pack, pages to --renew, or --draw")
    if asked.draw:
        draw()
    for page in asked.renew or ():
        page.write_text(renewed(page.read_text()))
    studies, found = [], list[float]()
    for archive in asked.archives:
        with unpacked(archive) as folder:
            if asked.steps:
                run_by_run(folder, asked.steps)
                continue
            studies.append(load(folder))
            found += [last_returns(folder / run.name, run) for run in studies[-1].runs]
    runs = together(studies).runs if studies else []
    returns = {run.name: each for run, each in zip(runs, found, strict=True)}
    runs = selected(runs, asked.tasks, asked.algos)
    if asked.short:
        in_short(runs)
    elif asked.beside:
        beside(runs)
    elif asked.against:
        against(runs, asked.against)
    elif asked.ranks:
        ranks(runs)
    elif asked.made:
        made(runs)
    elif runs:
        at_the_end(runs, returns)


if __name__ == "__main__":
    main()
