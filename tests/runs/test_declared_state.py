"""State of algorithms, schedules and controllers of one's own: declared and resumed exactly, or an error by name."""

from collections import deque
from functools import partial

import numpy as np
import pytest
import torch as th
from own_models import learn, own_model, resumes_exactly, same, seeded
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

from acc_rl import ACC
from acc_rl.core.controller import Calibrating
from acc_rl.runs.state import UndeclaredState
from acc_rl.store.checkpoint import Checkpoints

# --- attributes of an algorithm of one's own ---


class Keeping(ACC):
    """Changes ``kept`` by what it learns, and learns by what it has kept."""

    start = staticmethod(list)

    def __init__(self, *args, **kwargs):
        if (start := type(self).start()) is not Ellipsis:
            self.kept = start
        super().__init__(*args, **kwargs)

    def change(self, x):
        self.kept.append(x)

    def number(self):
        return sum(self.kept)

    def train(self, gradient_steps, batch_size=100):
        super().train(gradient_steps, batch_size)
        self.change(self.largest_reward + self.num_timesteps)
        with th.no_grad():
            self.critic_target.ensemble.theta.mul_(float(1 - 1e-6 * self.number()))


def changing(start, change, number):
    return type("Kept", (Keeping,), {"start": staticmethod(start), "change": change, "number": number})


def append(self, x):
    self.kept = [*self.kept, x]


def add_in_place(self, x):
    self.kept += np.float32(x / 3)


def first(self, x):
    self.kept = x if self.kept is None else self.kept + x


def first_float32(self, x):
    self.kept = np.float32(x / 3) if self.kept is None else self.kept * 1.01


def first_deque(self, x):
    self.kept = deque(maxlen=3) if self.kept is None else self.kept
    self.kept.append(np.float32(x / 3))


def later(self, x):
    self.kept = [*getattr(self, "kept", []), x]


def total(self):
    return sum(self.kept)


def itself(self):
    return self.kept if self.kept is None else float(self.kept * np.ones(1, np.float32)[0])


KEPT = {
    "a list": Keeping,
    "another list each time": changing(list, append, total),
    "an array": changing(lambda: np.zeros(3, np.float32), add_in_place, total),
    "a deque": changing(lambda: deque(maxlen=5), Keeping.change, total),
    "np.float32": changing(lambda: np.float32(0), add_in_place, itself),
    "a number that was None": changing(lambda: None, first, itself),
    "np.float32 that was None": changing(lambda: None, first_float32, itself),
    "a deque that was None": changing(lambda: None, first_deque, total),
    "a list that was not there": changing(lambda: ..., later, total),
}


@pytest.mark.parametrize("name", KEPT)
def test_state_that_is_not_declared_is_an_error_with_its_name(name, tmp_path):
    with pytest.raises(UndeclaredState, match=f"kept of {KEPT[name].__name__} has changed"):
        learn(own_model(KEPT[name]), tmp_path, 100)
    assert Checkpoints(tmp_path).read().step == 40  # the last before training


@pytest.mark.parametrize("name", KEPT)
def test_state_that_is_declared_is_resumed_exactly(name, tmp_path):
    attributes = (*KEPT[name].state_attributes, "kept")
    declared = type("Declared", (KEPT[name],), {"state_attributes": attributes})
    whole, parts = resumes_exactly(lambda: own_model(declared), tmp_path)
    assert repr(parts.kept) == repr(whole.kept)
    assert type(parts.kept) is type(whole.kept)
    # before there is anything to keep
    learn(own_model(declared), tmp_path / "early", 20)
    learn(own_model(declared), tmp_path / "early", 120)
    assert same(tmp_path / "whole", tmp_path / "early", 120)


def test_declared_state_that_is_no_data_is_an_error_with_its_name(tmp_path):
    attributes = (*Keeping.state_attributes, "kept")
    cls = type("Odd", (Keeping,), {"state_attributes": attributes, "start": staticmethod(object)})
    with pytest.raises(ValueError, match="/attributes/kept: a value of type object cannot be saved"):
        learn(own_model(cls), tmp_path, 40)


@pytest.mark.parametrize("n_envs", [1, 2])
def test_ornstein_uhlenbeck_noise_with_a_vec_monitor_resumes_exactly(n_envs, tmp_path):
    def make():
        noise = OrnsteinUhlenbeckActionNoise(np.zeros(1), np.ones(1))
        venv = VecMonitor(DummyVecEnv([partial(seeded, i) for i in range(n_envs)]))
        return own_model(env=venv, action_noise=noise, learning_starts=20)

    resumes_exactly(make, tmp_path)


# --- schedules and controllers ---


class Counting:
    """A learning rate that depends on how often it was asked for"""

    def __init__(self):
        self.calls = 0

    def __call__(self, progress):
        self.calls += 1
        return 1e-3 / self.calls


def counting_function():
    counter = Counting()
    return lambda progress: counter(progress)


@pytest.mark.parametrize("make", [Counting, counting_function])
def test_a_schedule_with_state_is_an_error_with_its_name(make, tmp_path):
    with pytest.raises(UndeclaredState, match="learning_rate of ACC has changed"):
        learn(own_model(learning_rate=make()), tmp_path, 60)


def halving(progress):
    return 1e-3 * (0.5 + 0.5 * progress)


@pytest.mark.parametrize("schedule", [halving, lambda progress: 1e-3 * progress, partial(halving), 1e-3])
def test_a_schedule_without_state_is_fine(schedule, tmp_path):
    assert learn(own_model(learning_rate=schedule), tmp_path, 60).num_timesteps == 60


class Counts(Calibrating):
    """Turns beta by how many gaps it has seen"""

    def begin(self, settings):
        super().begin(settings)
        self.seen = 0

    def measured(self, evidence):
        super().measured(evidence)
        self.seen += 1
        self.beta = self.clipped(self.beta + 0.01 * self.seen)


class Declares(Counts):
    stored = (*Calibrating.stored, "seen")


class SavesItself(Counts):
    def state_dict(self):
        return {**super().state_dict(), "times": float(self.seen)}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.seen = int(state["times"])


@pytest.mark.parametrize("cls", [Declares, SavesItself])
def test_a_controller_of_ones_own_resumes_exactly(cls, tmp_path):
    _, parts = resumes_exactly(lambda: own_model(controller=cls()), tmp_path, 220, 177)
    assert parts.calibration.controller.seen == 3


def test_state_of_a_controller_that_is_not_declared_is_an_error_with_its_name(tmp_path):
    with pytest.raises(UndeclaredState, match=r"controller\.seen of ACC has changed .* the controller's stored"):
        learn(own_model(controller=Counts()), tmp_path, 120)
