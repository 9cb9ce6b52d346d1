"""A run that was stopped and goes on is, to the bit, the run that was never stopped."""

import pytest
from kit import digests, run, tiny

from acc_rl.runs.interrupt import StopRequest

VARIANTS = {
    "acc": tiny(),
    "acc 2 envs": tiny(n_envs=2),
    "tqc n-step": tiny(algo="tqc", settings={"n_steps": 3}),
    "sac": tiny(algo="sac"),
    "sac gSDE": tiny(algo="sac", settings={"use_sde": True, "sde_sample_freq": 4, "train_freq": 8}),
    "td3": tiny(algo="td3"),
    "acc-td3 2 envs": tiny(algo="acc-td3", n_envs=2, settings={"critic_updates": 2}),
    "acc-ddpg": tiny(algo="acc-ddpg"),
    "acc-sac soft": tiny(algo="acc-sac", bias={"returns": "soft", "tail": "bootstrap"}),
    "acc-dqn": tiny("CartPole-v1", "acc-dqn"),
    "acc-qrdqn": tiny("CartPole-v1", "acc-qrdqn"),
    "hopper": tiny("Hopper-v5"),
}


class Crash(BaseException):
    """As sudden as kill -9: nothing of ours may catch it."""


def crash_at(monkeypatch, calls):
    """At the given numbers of steps seen by this process"""
    from acc_rl.algos.calibrated import Calibrated

    seen, original = [0], Calibrated._store_transition

    def store(self, *args):
        seen[0] += 1
        if seen[0] in calls:
            raise Crash
        return original(self, *args)

    monkeypatch.setattr(Calibrated, "_store_transition", store)


@pytest.mark.parametrize("name", VARIANTS)
def test_killed_and_resumed_equals_uninterrupted(name, tmp_path, monkeypatch):
    spec = VARIANTS[name]
    whole = digests(run(spec, tmp_path / "whole"))
    # before the first checkpoint, in warm-up, and twice while learning
    crash_at(monkeypatch, (50, 50 + 60 + 100, 1000 // spec.n_envs) if spec.n_envs == 1 else (30, 200))
    for _ in range(4):
        try:
            folder = run(spec, tmp_path / "killed")
            break
        except Crash:
            continue
    assert digests(folder) == whole


def test_a_stop_between_checkpoints_loses_no_step(tmp_path, monkeypatch):
    spec = tiny()
    whole = digests(run(spec, tmp_path / "whole"))
    from acc_rl.runs.interrupt import Stopped

    for step in (57, 333, 634):
        stop_at(monkeypatch, step)
        with pytest.raises(Stopped):
            run(spec, tmp_path / "stopped")
    monkeypatch.undo()
    assert digests(run(spec, tmp_path / "stopped")) == whole


def stop_at(monkeypatch, step):
    """The signal comes in the middle of a step"""
    from acc_rl.algos.calibrated import Calibrated

    requests = []
    monkeypatch.setattr(StopRequest, "__init__", lambda self: (vars(self).update(signal=None, _before={}), requests.append(self))[0])
    original = Calibrated._store_transition

    def store(self, *args):
        if self.num_timesteps == step:
            requests[-1].signal = 15
        return original(self, *args)

    monkeypatch.setattr(Calibrated, "_store_transition", store)
