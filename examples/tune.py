"""What is left to tune when ACC chooses d: learning rate, size of the nets, gamma. `python examples/tune.py --help`"""

import argparse

import optuna

from acc_rl import RunSpec, train
from acc_rl.store.records import read_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("env", nargs="?", default="Pendulum")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--out", default="tuning")
    options = parser.parse_args()

    def objective(trial: optuna.Trial) -> float:
        width = trial.suggest_categorical("width", [64, 128, 256])
        settings = {"pi": (width, width), "qf": (width, width), "learning_starts": min(1000, options.steps // 10)}
        settings["learning_rate"] = trial.suggest_float("learning_rate", 1e-4, 3e-3, log=True)
        settings["gamma"] = 1 - trial.suggest_float("one_minus_gamma", 0.003, 0.05, log=True)
        spec = RunSpec(options.env, algo="acc-x", steps=options.steps, seed=trial.number, threads=1, settings=settings)
        return read_json(train(spec, options.out) / "result.json")["evaluation"]["mean_return"]

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=options.trials)
    print(f"best of {options.trials}: {study.best_value:.1f} with {study.best_params}")


if __name__ == "__main__":
    main()
