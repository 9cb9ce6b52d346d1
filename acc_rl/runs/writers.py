"""SB3's log as rows of a run's own files."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.logger import KVWriter

from acc_rl.runs.callbacks import python_number
from acc_rl.runs.resume import Clock
from acc_rl.store.records import Rows


class RowWriter(KVWriter):
    """SB3's log as rows of training.jsonl; what the clock says goes elsewhere, since it differs from run to run."""

    NAMES = {"rollout/ep_rew_mean": "episode_return", "rollout/ep_len_mean": "episode_length"}  # noqa: RUF012

    def __init__(self, rows: Rows, clock_rows: Rows, clock: Clock) -> None:
        self.rows, self.clock_rows, self.clock = rows, clock_rows, clock

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        row = {"step": step}
        for key, value in sorted(key_values.items()):
            section, _, name = key.partition("/")
            if section in ("train", "bias") or key in self.NAMES:
                row[self.NAMES.get(key, name)] = python_number(value)
        self.rows.append(row)
        self.clock_rows.append({"step": step, "seconds": round(self.clock.seconds, 3)})

    def close(self) -> None:
        pass
