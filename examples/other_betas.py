"""The figures in docs/theorem.md about other starts of beta, and about a beta that is held."""

from dataclasses import replace

import numpy as np
from rich.progress import track

from acc_rl.theory.tabular import ALGORITHMS, SETTINGS, grid_world, mean_and_error, walk

STEPS, WALKS, SHOWN = 20_000, 100, (5_000, 10_000, 20_000)
NEVER = STEPS + 1
CASES = {
    **{f"from {start}": replace(SETTINGS, start=start) for start in (0.0, 0.5, 1.0)},
    **{f"held at {start}": replace(SETTINGS, start=start, start_step=NEVER) for start in (0.3, 0.5)},
}

if __name__ == "__main__":
    for name, settings in track(CASES.items(), transient=True):
        result = walk(grid_world(), STEPS, WALKS, np.random.default_rng(0).spawn(2)[0], settings)
        for truth, told in (("optimal", "the best policy"), ("followed", "the followed policy")):
            mean, error = (part[ALGORITHMS.index("ACC")] for part in mean_and_error(result.bias(truth)))
            cells = [f"{mean[i]:+.2f} ± {error[i]:.2f}" for i in np.searchsorted(result.steps, SHOWN)]
            print(f"{name:<12} bias against {told:<20} after {SHOWN} steps: {', '.join(cells)}")
