"""Study folders as runs leave them, without a run."""

import json

import numpy as np

LEVELS = {"acc": 1.0, "tqc-d0": 0.5, "tqc-d2": 0.9, "tqc-d5": 0.7, "sac": 0.75, "td3": 0.65, "acc-td3": 0.8}
SCALES = {"HalfCheetah-v5": 12000.0, "Hopper-v5": 3500.0, "Pendulum-v1": -150.0}


def spec(env, algo, seed, steps=100_000, every=1000, **settings):
    return {
        "env": env,
        "algo": algo,
        "steps": steps,
        "seed": seed,
        "eval_every": every,
        "settings": {"critic_updates": None, "gamma": None, **settings},
        "bias": {"start": None},
    }


def name(content):
    given = "_".join(f"{key}={value}" for key, value in content["settings"].items() if value is not None)
    parts = [content["env"].replace("/", "-"), content["algo"], given, f"seed{content['seed']}"]
    return "_".join(part for part in parts if part).replace("/", "-")


def resolved(content):
    algo = content["algo"]
    updates = int(algo[-2]) if algo.endswith("q") and algo[-2].isdigit() else 1
    critics = 2 if algo.endswith("-n2") or not algo.startswith(("acc", "tqc")) else 5
    return {"critic_updates": updates, "n_critics": critics, "gamma": 0.99}


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_run(study, content, until=None, success=False, episodes=10, extras=True, folder=None, gaps=False):
    """One run that learns along a saturating curve; ``until`` cuts it off; with ``gaps``, its rule drops ever less."""
    run = study / (folder or name(content))
    run.mkdir(parents=True)
    rng = np.random.default_rng([content["seed"], *content["env"].encode(), *content["algo"].encode()])
    steps, every = content["steps"], content["eval_every"]
    until = steps if until is None else until
    (run / "spec.json").write_text(json.dumps({**content, "resolved": resolved(content)}))
    provenance = {
        "versions": {"python": "3.11.7", "acc_rl": "0.1.0", "torch": "2.13.0+cpu", "mujoco": "3.3.0"},
        "cpu": "A CPU",
        "cores": 2,
        "threads": 1,
        "git_commit": "0" * 40,
        "command": ["acc", "train"],
        "started": "2026-01-01T00:00:00+0000",
    }
    (run / "provenance.json").write_text(json.dumps(provenance))
    top = SCALES.get(content["env"], 1000.0)
    level = LEVELS.get(content["algo"], 0.85) * (1 + 0.08 * rng.normal())
    at = np.arange(0, until + 1, every)
    share = level * (1 - np.exp(-4 * at / steps * level)) + 0.03 * rng.normal(size=len(at))
    mean = top * share if top > 0 else top * (8 - 7 * np.clip(share, 0, 1))
    episodes_of = mean[:, None] + abs(top) * 0.05 * rng.normal(size=(len(at), episodes))
    rows = []
    for i, step in enumerate(at):
        row = {"step": int(step), "number": i, "mean_return": float(mean[i]), "std_return": float(abs(top) * 0.05)}
        row |= {"returns": episodes_of[i].tolist(), "lengths": [1000] * episodes}
        rows.append(row | ({"success": float(np.clip(share[i], 0, 1))} if success else {}))
    write_rows(run / "evaluations.jsonl", rows)
    if extras:
        write_extras(run, content, at[1:], steps, rng)
        if gaps:
            write_gaps(run, steps)
    if until == steps:
        (run / "result.json").write_text(json.dumps({"step": steps, "seconds": 1.0, "evaluation": rows[-1]}))
    return run


def write_extras(run, content, at, steps, rng):
    """Training, value error and clock, one row per ``at``"""
    d = np.clip(2.5 + np.cumsum(rng.normal(size=len(at)) * 0.1), 0, 5)
    calibrated = content["algo"].startswith(("acc", "tqc")) and "td3" not in content["algo"]
    more = [{"dropped_per_net": float(each)} if calibrated else {} for each in d]
    training = [
        {
            "step": int(s),
            "episode_return": 1.0,
            "beta": 5 - float(d[i]) if content["algo"].startswith("acc") else 0.0,
            "gap": 0.1,
            **more[i],
        }
        for i, s in enumerate(at)
    ]
    write_rows(run / "training.jsonl", training)
    error = np.abs(0.3 * np.exp(-3 * at / steps) + 0.1 + 0.03 * rng.normal(size=len(at)))
    rows = [
        {"step": int(s), "pairs": 1000, "bias": float(e * 9), "normalised": float(e)}
        for s, e in zip(at, error, strict=True)
    ]
    write_rows(run / "value_error.jsonl", [row | {"mean_q": 1.0, "mean_return": 50.0} for row in rows])
    pace = 0.01 * resolved(content)["n_critics"] * resolved(content)["critic_updates"]
    write_rows(run / "clock.jsonl", [{"step": int(s), "seconds": float(s * pace)} for s in at])


def write_gaps(run, steps):
    """What newer records have too: gaps with their errors, whether beta is at its end, and relative value errors"""
    rows = [json.loads(line) for line in (run / "training.jsonl").read_text().splitlines()]
    for row in rows:
        gap = {"gap": 24.1, "gap_soft": 9.87, "gap_full": -1.234}
        row |= gap | {f"{name}_error": abs(value) / 10 for name, value in gap.items()}
        if "dropped_per_net" in row and row["beta"] > 0:
            d = max(0.0, 2.5 - 4 * row["step"] / steps)
            row |= {"dropped_per_net": d, "beta": 5 - d, "at_limit": int(d == 0)}
    write_rows(run / "training.jsonl", rows)
    errors = [json.loads(line) for line in (run / "value_error.jsonl").read_text().splitlines()]
    more = [{"relative": row["normalised"] / 2, "bias_soft": row["bias"] + 3} for row in errors]
    write_rows(run / "value_error.jsonl", [row | new for row, new in zip(errors, more, strict=True)])


def write_study(
    path, tasks, algos, seeds, name="study", steps=100_000, every=1000, success=False, gaps=False, **settings
):
    path.mkdir(parents=True, exist_ok=True)
    specs = [spec(task, algo, seed, steps, every, **settings) for task in tasks for algo in algos for seed in seeds]
    content = {"name": name, "source": "test", "scale": 1.0, "created": "2026-01-01T00:00:00+0000", "runs": specs}
    (path / "study.json").write_text(json.dumps(content))
    for each in specs:
        write_run(path, each, success=success, gaps=gaps)
    return path
