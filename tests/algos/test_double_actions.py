import gymnasium as gym
import numpy as np
import pytest
from small import make


class DoubleActions(gym.Env):
    """As dm_control's tasks"""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(2), {}

    def step(self, action):
        self.t += 1
        return np.zeros(2), 1.0, False, self.t == 20, {}


@pytest.mark.parametrize("name", ["acc", "acc-sac", "acc-td3"])
def test_actions_in_double_precision(name):
    model = make(name, DoubleActions(), learning_starts=30, seed=0, bias={"start_step": 40, "update_interval": 20})
    model.learn(60)
    assert model.calibration.last_update == 60
    assert np.isfinite(model.calibration.measured["gap"])
