"""Speed of the report: its bootstrap against rliable's, and a study of 6 tasks x 8 algorithms x 10 seeds x 5000
evaluations read, computed and rendered, with the peak of memory. Writes about 2 GB for it into a temporary folder.

    python benchmarks/report_page.py [--evaluations 5000] [--only rliable|study]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

TASKS = ("HalfCheetah-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5", "Hopper-v5", "Swimmer-v5")
ALGOS = ("acc", "acc-2q", "acc-4q", "acc-n2", "sac", "td3", "acc-td3", "tqc-d2")
SEEDS = 10


def against_rliable(replicates: int = 2000, points: int = 20, repeats: int = 3) -> None:
    """IQM with its interval of 10 runs x 6 tasks at several points, one machine, one process, best of ``repeats``"""
    from acc_rl.report import statistics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from rliable import library, metrics

    scores = np.random.default_rng(0).random((10, 6, points))
    values, strata = scores.transpose(1, 0, 2).reshape(60, points), np.repeat(np.arange(6), 10)

    def ours() -> None:
        statistics.aggregate(values, strata, "iqm", np.random.default_rng(0), replicates)

    def theirs() -> None:
        def iqm(x: np.ndarray) -> np.ndarray:
            return np.array([metrics.aggregate_iqm(x[..., i]) for i in range(points)])

        library.get_interval_estimates({"a": scores}, iqm, reps=replicates)

    seconds = []
    for function in (ours, theirs):
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        seconds.append(min(times))
    print(f"IQM with interval, 10 runs x 6 tasks x {points} points, {replicates} resamples")
    print(f"  here {seconds[0]:.3f} s, rliable {seconds[1]:.3f} s: {seconds[1] / seconds[0]:.1f} times as fast")


def write_run(folder: Path, task: str, algo: str, seed: int, evaluations: int) -> dict[str, object]:
    """A run with all its records: an evaluation, a row of training, of value error and of the clock per 1000 steps"""
    folder.mkdir(parents=True)
    rng = np.random.default_rng([seed, *f"{task}{algo}".encode()])
    steps = 1000 * np.arange(evaluations)
    level = rng.uniform(0.5, 1) * 5000
    mean = level * (1 - np.exp(-4 * steps / steps[-1])) + rng.normal(size=evaluations) * 100
    returns = mean[:, None] + rng.normal(size=(evaluations, 10)) * 200
    noise = rng.normal(size=(evaluations, 8))
    d = np.clip(2.5 + np.cumsum(noise[:, 0]) * 0.02, 0, 5)
    spec: dict[str, object] = {"env": task, "algo": algo, "seed": seed, "steps": int(steps[-1]), "eval_every": 1000}
    updates, critics = {"2q": 2, "4q": 4}.get(algo[-2:], 1), 2 if algo == "acc-n2" else 5
    spec |= {"settings": {}, "bias": {}, "resolved": {"critic_updates": updates, "n_critics": critics}}
    (folder / "spec.json").write_text(json.dumps(spec))
    (folder / "provenance.json").write_text(json.dumps({"versions": {"acc_rl": "0.1.0"}, "cpu": "any", "cores": 2}))
    (folder / "result.json").write_text("{}")
    names = ("actor_loss", "critic_loss", "ent_coef", "ent_coef_loss", "episode_return", "gap", "mean_q", "scale")
    files = {name: [] for name in ("evaluations", "training", "value_error", "clock")}
    for i, step in enumerate(steps.tolist()):
        row = {"step": step, "number": i, "mean_return": mean[i], "std_return": 200.0}
        files["evaluations"].append({**row, "returns": returns[i].tolist(), "lengths": [1000] * 10})
        metrics = dict(zip(names, noise[i].tolist(), strict=True))
        files["training"].append({"step": step, "beta": 5 - d[i], "dropped_per_net": d[i], **metrics})
        error = {"bias": noise[i, 1], "absolute": abs(noise[i, 1]), "normalised": abs(noise[i, 2])}
        files["value_error"].append({"step": step, "pairs": step, **error, "mean_q": 1.0, "mean_return": 1.0})
        files["clock"].append({"step": step, "seconds": step * 0.04})
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return spec


def whole_study(evaluations: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        study = Path(temporary) / "study"
        specs = [
            write_run(study / f"{task}_{algo}_seed{seed}", task, algo, seed, evaluations)
            for task in TASKS
            for algo in ALGOS
            for seed in range(SEEDS)
        ]
        (study / "study.json").write_text(json.dumps({"name": "benchmark", "runs": specs}))
        size = sum(file.stat().st_size for file in study.rglob("*.jsonl"))
        out = Path(temporary) / "report"
        start = time.perf_counter()
        command = [sys.executable, "-m", "acc_rl.commands.main", "report", str(study), "--out", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        peak, computing = usage.ru_maxrss / 2**20, usage.ru_utime + usage.ru_stime
        page = (out / "index.html").stat().st_size
        print(
            f"{len(TASKS)} tasks x {len(ALGOS)} algorithms x {SEEDS} seeds x {evaluations} evaluations, "
            f"{size / 1e9:.2f} GB"
        )
        print(f"  read, computed and rendered in {seconds:.1f} s ({computing:.1f} s of computing time)")
        print(f"  peak of memory {peak:.2f} GiB, page {page / 1e6:.1f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=5000)
    parser.add_argument("--only", choices=["rliable", "study"])
    arguments = parser.parse_args()
    if arguments.only != "study":
        against_rliable()
    if arguments.only != "rliable":
        whole_study(arguments.evaluations)
