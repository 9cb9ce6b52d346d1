"""Tasks that never end: trained, calibrated, evaluated, resumed, in bounded memory."""

import gymnasium as gym
import numpy as np
import pytest
from kit import Crash, at_step, crash, digests, run, tiny
from small import make

from acc_rl.algos import calibration
from acc_rl.commands.main import main
from acc_rl.core import episodes, value_error
from acc_rl.core.episodes import Pairs
from acc_rl.core.errors import SettingError
from acc_rl.inference.diagnose import diagnose
from acc_rl.runs import envs
from acc_rl.runs.callbacks import ValueErrorCallback
from acc_rl.runs.config import read_spec
from acc_rl.runs.evaluation import evaluate_task
from acc_rl.runs.preflight import check_rounds
from acc_rl.runs.spec import RunSpec
from acc_rl.runs.train import make_model
from acc_rl.store import records


class Ring(gym.Env):
    """Four states in a ring, rewards 1, 2, 3, 4 on the way: no end, and the actions do nothing"""

    observation_space = gym.spaces.Box(0, 4, (1,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return np.array([self.state], np.float32), {}

    def step(self, action):
        reward, self.state = self.state + 1.0, (self.state + 1) % 4
        return np.array([self.state], np.float32), reward, False, False, {}


gym.register("Ring-v0", Ring)
ENDLESS = tiny("Ring-v0", horizon=50, bias={"evidence_steps": 20})
WORDS = (
    "train Ring-v0 --horizon 50 --steps 500 --eval-every 200 --eval-episodes 1 --log-every 100 --threads 1 "
    "--learning-starts 100 --batch-size 16 --buffer-size 300 --qf 16 16 --pi 16 --train-freq 4 --bias.start-step 300 "
    "--bias.update-interval 100 --bias.pairs-kept 400 --bias.evidence-steps 20 --checkpoint-every 100 --out"
)
COMMAND = WORDS.split()


def zeros(observations):
    return np.zeros((len(observations), 1))


def test_discounted_and_average_return_by_hand():
    row = evaluate_task(zeros, "Ring-v0", 2, 0, horizon=5, gamma=0.5)
    assert row["returns"] == [1 + 2 + 3 + 4 + 1] * 2
    assert row["lengths"] == [5, 5]
    assert row["mean_discounted"] == 1 + 2 / 2 + 3 / 4 + 4 / 8 + 1 / 16
    assert row["mean_reward"] == 11 / 5


def test_without_a_horizon_rows_are_as_before():
    gym.register("Ring-limited-v0", Ring, max_episode_steps=5)
    assert set(evaluate_task(zeros, "Ring-limited-v0", 1, 0)) == {"mean_return", "std_return", "returns", "lengths"}


@pytest.mark.parametrize("horizon", [0, -1])
def test_a_horizon_is_at_least_one_step(horizon):
    with pytest.raises(SettingError, match=f"horizon is {horizon}"):
        evaluate_task(zeros, "Ring-v0", 1, 0, horizon=horizon)
    with pytest.raises(SettingError, match=f"horizon is {horizon}"):
        RunSpec("Ring-v0", horizon=horizon)


def test_from_the_command_line_killed_and_resumed(tmp_path, monkeypatch, capsys):
    whole = digests(run(ENDLESS, tmp_path / "whole"))
    for step in (60, 437):
        with monkeypatch.context() as patch, pytest.raises(Crash):
            at_step(patch, step, crash)
            main([*COMMAND, str(tmp_path / "killed")])
    assert main([*COMMAND, str(tmp_path / "killed")]) == 0
    folder = tmp_path / "killed" / ENDLESS.name
    assert read_spec(folder) == ENDLESS
    assert digests(folder) == whole
    resolved = records.read_json(folder / records.SPEC)["resolved"]
    assert resolved["bias"]["evidence"] == "steps"
    last = records.read(folder / records.TRAINING)[-1]
    assert last["beta"] != resolved["bias"]["start"]
    assert last["gap_error"] > 0  # blocks of steps, where there is one episode only
    rows = records.read(folder / records.EVALUATIONS)
    assert [row["mean_reward"] for row in rows] == [(12 * 10 + 3) / 50] * 4
    capsys.readouterr()
    assert main(["eval", str(folder), "--episodes", "1", "--horizon", "8"]) == 0
    assert "return 20.0" in (told := capsys.readouterr().out)
    assert "cut after 8 steps: 2.5 per step on average, discounted by 0.99: " in told


def test_what_is_kept_is_bounded(tmp_path, monkeypatch):
    for module in (value_error, calibration):
        monkeypatch.setattr(module, "ENDLESS", 150)
    monkeypatch.setattr(envs, "LONGEST", 200)
    kept = {"calibration": [], "value error": [], "actions": []}
    original = ValueErrorCallback._on_step

    def on_step(self):
        seeded = self.model.env.unwrapped.envs[0]
        kept["calibration"] += self.model.calibration.episodes.open_lengths
        kept["value error"] += self.meter.episodes.open_lengths
        kept["actions"].append(len(seeded._actions or ()))
        assert not isinstance(seeded.env, gym.Wrapper) or not hasattr(seeded.env, "rewards")  # as Monitor has
        return original(self)

    monkeypatch.setattr(ValueErrorCallback, "_on_step", on_step)
    with pytest.warns(UserWarning, match="the open episode of env 0 has more than 200 steps"):
        folder = run(tiny("Ring-v0", horizon=50, steps=1200), tmp_path)
    assert max(kept["calibration"]) <= 400 + 100 + 4  # pairs_kept, and a round of steps until the next update
    assert max(kept["value error"]) == 150
    assert max(kept["actions"]) == 200
    assert kept["actions"][-1] == 0
    # cut every 150 steps, of which the last 100 are left out
    assert records.read(folder / records.VALUE_ERROR) == []
    assert make_model(ENDLESS).env.envs[0].env.limited


def test_an_open_episode_loses_its_beginning_where_nothing_else_bounds_it(monkeypatch):
    monkeypatch.setattr(episodes, "LONGEST", 100)
    kept = episodes.Episodes(1, 0.5)
    for t in range(1000):
        kept.add(np.full((1, 1), t), np.zeros((1, 1)), [1.0], [False], [False], {})
        assert kept.open_lengths[0] <= 100
    kept.cut(0, np.zeros(1))
    assert kept.episodes[0].observations[-1] == 999


def test_value_errors_need_no_end(monkeypatch):
    monkeypatch.setattr(value_error, "ENDLESS", 300)
    watched = ValueErrorCallback(per_record=100)
    make("td3", Ring(), seed=0, learning_starts=10**6).learn(1000, watched)
    assert watched.meter.pairs == 3 * (300 - 100)


def test_a_run_beyond_what_is_played_again_starts_a_new_episode(tmp_path, monkeypatch):
    monkeypatch.setattr(envs, "LONGEST", 150)
    with monkeypatch.context() as patch:
        at_step(patch, 437, crash)
        with pytest.raises(Crash), pytest.warns(UserWarning, match="more than 150 steps"):
            run(ENDLESS, tmp_path)
    with pytest.warns(UserWarning, match=r"env 0 could not be brought back .*without an end"):
        folder = run(ENDLESS, tmp_path)
    assert records.read_json(folder / records.RESULT)["step"] == 500
    assert np.isfinite(records.read(folder / records.TRAINING)[-1]["gap"])


# --- the rule by which a model finds out by itself ---

BIAS = {"start_step": 200, "update_interval": 100, "pairs_kept": 300, "evidence_steps": 20}


def short(monkeypatch, steps=250):
    monkeypatch.setattr(calibration, "ENDLESS", steps)


def test_without_an_end_the_gap_is_measured_by_steps(monkeypatch):
    short(monkeypatch)
    model = make("acc", Ring(), seed=0, bias=BIAS)
    model.learn(249)
    assert model.calibration.last_update == 0
    with pytest.warns(UserWarning, match="no episode has ended in 250 steps") as told:
        model.learn(600, reset_num_timesteps=False)
    assert len(told) == 1
    assert model.calibration.endless
    assert model.calibration.last_update > 700
    assert model.calibration.episodes.open_lengths[0] <= 300 + 100
    again = make("acc", Ring(), seed=0, bias=BIAS)
    again.set_parameters(model.state_dicts())
    assert again.calibration.endless


def test_the_rule_leaves_alone_what_has_an_end_or_was_set(monkeypatch):
    short(monkeypatch)
    for env, bias in ((gym.wrappers.TimeLimit(Ring(), 240), BIAS), (Ring(), {**BIAS, "evidence": "episodes"})):
        model = make("acc", env, seed=0, bias=bias)
        model.learn(600)
        assert not model.calibration.endless
        assert not model.calibration.by_steps


def test_what_waits_for_an_end_is_refused(tmp_path):
    for changes in ({"settings": {"train_freq": "episode"}}, {"settings": {"controller": "top"}}, {"algo": "x-top"}):
        with pytest.raises(SettingError, match="horizon is 50"):
            run(tiny("Ring-v0", **{"horizon": 50, **changes}), tmp_path)
    assert list(tmp_path.iterdir()) == []
    check_rounds(tiny("Ring-v0", horizon=50, algo="x-top", settings={"controller": "acc"}), 100)


def test_blocks_of_steps_by_hand():
    at = {name: np.zeros(8) for name in Pairs.__dataclass_fields__}
    pairs = Pairs(**{**at, "episode": np.array([0, 0, 0, 0, 0, 1, 1, 1])})
    assert pairs.within(2, 0.9).episode.tolist() == [0, 0, 1, 1, 2, 3, 3, 4]


def test_a_critic_can_be_diagnosed_without_an_end():
    model = make("td3", Ring(), seed=0)
    result = diagnose(model, "Ring-v0", 2, horizon=30)
    assert [len(each) for each in result.returns] == [30, 30]
