"""Rounds of training after whole episodes, and runs with one env only, as a robot needs them."""

import signal

import gymnasium as gym
import pytest
from kit import Crash, at_step, crash, digests, run, tiny
from stable_baselines3 import SAC

from acc_rl.algos.calibration import Calibration
from acc_rl.commands.main import main
from acc_rl.commands.train import parse_train
from acc_rl.core.errors import SettingError
from acc_rl.runs import envs
from acc_rl.runs.config import read_spec
from acc_rl.runs.interrupt import Stopped
from acc_rl.runs.spec import RunSpec, from_dict
from acc_rl.runs.train import make_model
from acc_rl.store import records
from acc_rl.store.checkpoint import Checkpoints

BY_EPISODE = {"train_freq": "episode"}
EPISODE = 200  # steps, of Pendulum-v1


@pytest.mark.parametrize(("algo", "changes"), [("acc", {}), ("acc-x", {"gradient_steps": 20})])
def test_killed_between_rounds_and_resumed_equals_uninterrupted(algo, changes, tmp_path, monkeypatch):
    spec = tiny(algo=algo, settings={**BY_EPISODE, **changes})
    whole = run(spec, tmp_path / "whole")
    assert records.read_json(whole / records.RESULT)["step"] == 3 * EPISODE  # the episode that 500 steps end in
    for step in (EPISODE + 1, 2 * EPISODE + 37):
        with monkeypatch.context() as patch, pytest.raises(Crash):
            at_step(patch, step, crash)
            run(spec, tmp_path / "killed")
        last = Checkpoints(tmp_path / "killed" / spec.name / records.CHECKPOINTS).read()
        assert last.step == step // EPISODE * EPISODE
    assert digests(run(spec, tmp_path / "killed")) == digests(whole)


def test_asked_to_stop_it_ends_after_the_episode_and_its_round(tmp_path, monkeypatch):
    spec = tiny(settings={**BY_EPISODE, "gradient_steps": 20})
    whole = digests(run(spec, tmp_path / "whole"))
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        at_step(patch, EPISODE + 50, lambda: signal.raise_signal(signal.SIGTERM))
        run(spec, tmp_path / "stopped", checkpoint_every=10_000)
    assert Checkpoints(tmp_path / "stopped" / spec.name / records.CHECKPOINTS).read().step == 2 * EPISODE
    assert digests(run(spec, tmp_path / "stopped", checkpoint_every=10_000))["step"] == whole["step"]


def rounds(model, steps):
    """(env steps so far, gradient steps) of each round"""
    found, original = [], model.train

    def train(gradient_steps, batch_size):
        found.append((model.num_timesteps, gradient_steps))
        original(gradient_steps, batch_size)

    model.train = train
    model.learn(steps)
    return found


def test_rounds_are_those_of_sb3():
    class Uneven(gym.Wrapper):
        """Episodes of 30, 40, 50, ... steps"""

        episodes, steps = 2, 0

        def reset(self, **kwargs):
            self.episodes, self.steps = self.episodes + 1, 0
            return self.env.reset(**kwargs)

        def step(self, action):
            observation, reward, *_ = self.env.step(action)
            self.steps += 1
            return observation, reward, self.steps == 10 * self.episodes, False, {}

    gym.register("Uneven-v0", lambda: Uneven(gym.make("Pendulum-v1").unwrapped))
    ours = make_model(tiny("Uneven-v0", "sac", settings=BY_EPISODE))
    theirs = SAC(
        "MlpPolicy", "Uneven-v0", learning_starts=100, batch_size=16, train_freq=(1, "episode"), gradient_steps=-1
    )
    assert rounds(ours, 200) == rounds(theirs, 200) == [(30 + 40 + 50, 50), (180, 60), (250, 70)]
    assert ours._n_updates == 50 + 60 + 70


def test_gradient_steps_can_still_be_chosen():
    model = make_model(tiny(settings={**BY_EPISODE, "gradient_steps": 7}))
    assert rounds(model, 300) == [(200, 7), (400, 7)]


def test_nothing_is_measured_within_an_episode(monkeypatch):
    found, original = [], Calibration.measure
    monkeypatch.setattr(Calibration, "measure", lambda self, *args: (found.append(self.clock), original(self, *args)))
    bias = {"update_interval": 70, "start_step": 0}
    make_model(tiny(algo="acc-x", settings={**BY_EPISODE, "gradient_steps": 1}, bias=bias)).learn(500)
    assert found == [200, 400, 600]
    found.clear()
    make_model(tiny(algo="acc-x", bias=bias)).learn(300)
    assert found == [101, 171, 241]  # warm-up is skipped


class Robot(gym.Wrapper):
    """A pendulum that falls after 50 steps, and stands elsewhere each time that it is reset"""

    resets, steps = 0, 0

    def reset(self, *, seed=None, options=None):
        Robot.resets += 1
        self.steps = 0
        return self.env.reset(seed=Robot.resets)

    def step(self, action):
        self.steps += 1
        observation, reward, *_ = self.env.step(action)
        return observation, reward, self.steps == 50, False, {}


def test_what_cannot_be_reset_to_where_it_was_keeps_its_terminals(tmp_path, monkeypatch):
    gym.register("Robot-v0", lambda: Robot(gym.make("Pendulum-v1").unwrapped))
    spec = tiny("Robot-v0", steps=300, eval_episodes=0, settings={**BY_EPISODE, "buffer_size": 500})
    with monkeypatch.context() as patch, pytest.raises(Crash):
        at_step(patch, 210, crash)
        run(spec, tmp_path)
    with pytest.warns(UserWarning, match="env 0 could not be brought back"):
        folder = run(spec, tmp_path)
    buffer = make_model(spec).replay_buffer
    Checkpoints(folder / records.CHECKPOINTS).read().fill(buffer)
    assert buffer.pos == 300
    assert (buffer.dones[:300].ravel().nonzero()[0] + 1).tolist() == [50, 100, 150, 200, 250, 300]
    assert not buffer.timeouts.any()


def test_how_it_is_written(tmp_path):
    assert parse_train(["Hopper", "--train-freq", "episode"]).spec.settings.train_freq == "episode"
    assert parse_train(["Hopper", "--train-freq", "1e1"]).spec.settings.train_freq == 10
    (tmp_path / "run.toml").write_text('env = "Hopper"\n[settings]\ntrain_freq = "episode"\n')
    assert parse_train(["--config", str(tmp_path / "run.toml")]).spec.settings.train_freq == "episode"
    for wrong in ("episodes", 0, True, (1, "episode")):
        with pytest.raises(SettingError, match=r"train_freq is .*'episode'"):
            from_dict({"env": "Hopper", "settings": {"train_freq": wrong}})
    ids = {RunSpec("Hopper", settings={"train_freq": each}).id for each in ("episode", 1, None)}
    assert len(ids) == 3


def test_many_envs_are_refused(tmp_path):
    with pytest.raises(SettingError, match="train_freq is 'episode', but n_envs is 2"):
        run(tiny(n_envs=2, settings=BY_EPISODE), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_evaluation_one_env_is_enough(tmp_path, monkeypatch, capsys):
    there, most = [], []
    original, close = envs.make, envs.Guarded.close

    def make(*args, **kwargs):
        there.append(env := original(*args, **kwargs))
        most.append(len(there))
        return env

    monkeypatch.setattr(envs, "make", make)
    monkeypatch.setattr(envs.Guarded, "close", lambda self: (there.remove(self), close(self)))
    monkeypatch.setattr("acc_rl.runs.train.FEW", 1)  # nor is it moved for a forecast
    spec = tiny(eval_episodes=0, steps=200, settings=BY_EPISODE)
    folder = run(spec, tmp_path, estimate=True)
    assert (max(most), len(most)) == (1, 2)
    assert there == []
    assert records.read_json(folder / records.RESULT)["evaluation"] is None
    assert read_spec(folder) == spec
    monkeypatch.undo()
    assert main(["eval", str(folder), "--episodes", "1"]) == 0
    assert "over 1 episodes" in capsys.readouterr().out
