"""A clear error at once, and nothing broken enters the replay buffer."""

import gymnasium as gym
import numpy as np
import pytest
from small import CONTINUOUS, OWN, env_class, make
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from acc_rl.algos.registry import REGISTRY


@pytest.mark.parametrize("name", OWN)
def test_unknown_env_and_wrong_action_space(name):
    with pytest.raises(gym.error.Error, match="Hoper"):
        make(name, "Hoper-v5")
    if name in CONTINUOUS:
        message = r"needs a Box action space, but the env's is Discrete\(2\): acc-dqn and acc-qrdqn can learn it"
    else:
        message = r"needs a Discrete action space, but the env's is Box.*: acc-x, acc, .* and acc-ddpg can learn it"
    with pytest.raises(ValueError, match=message):
        make(name, "CartPole-v1" if name in CONTINUOUS else "Pendulum-v1")


@pytest.mark.parametrize("name", ["acc-td3", "acc-ddpg", "acc-dqn", "acc-qrdqn"])
def test_soft_returns_need_a_soft_critic(name):
    with pytest.raises(ValueError, match=r"bias.returns is 'soft', but ACC\w+ has no entropy_bonus"):
        make(name, env_class(name)(), bias={"returns": "soft"})


def test_quantile_range_beyond_the_atoms():
    with pytest.raises(ValueError, match="would reach -25, but there are only n_atoms=25"):
        make("acc-qrdqn", "CartPole-v1", policy_kwargs={"n_quantiles": 25}, bias={"range": (0, 30)})


def test_negative_exploration_noise():
    with pytest.raises(ValueError, match="exploration_noise is -1, but must be a number >= 0"):
        make("td3", "Pendulum-v1", exploration_noise=-1)


@pytest.mark.parametrize("dropped", [-0.1, 7, 8.5, float("nan")])
def test_dropped_per_net_outside_the_atoms(dropped):
    with pytest.raises(ValueError, match=rf"dropped_per_net is {dropped}, but must be in \[0, n_atoms\) = \[0, 7\)"):
        make("tqc", "Pendulum-v1", dropped_per_net=dropped)


def test_dropped_per_net_that_rounds_to_everything():
    with pytest.raises(ValueError, match=r"dropped_per_net is 6\.9, "):
        make("tqc", "Pendulum-v1", dropped_per_net=6.9)  # 2 * 6.9 rounds to all 14 atoms


def test_range_beyond_the_atoms():
    with pytest.raises(ValueError, match=r"bias.range=\(0, 5\): .* would reach 5, .* n_atoms=5"):
        make("acc", "Pendulum-v1", n_atoms=5)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"bias": {"lr": -1}}, r"bias\.lr is -1"),
        ({"bias": {"speed": 1}}, "unknown setting 'speed'"),
        ({"critic_updates": 0}, "critic_updates is 0, but must be an integer >= 1"),
        ({"critic_updates": 2.0}, "critic_updates is 2.0"),
        ({"n_critics": 0}, "n_critics is 0"),
        ({"n_atoms": 0}, "n_atoms is 0"),
        ({"n_steps": 0}, "n_steps is 0, but must be an integer >= 1"),
        ({"n_steps": -2}, "n_steps is -2"),
        ({"batch_size": 0}, "batch_size is 0, but must be an integer >= 1"),
        (
            {"n_steps": 3, "replay_buffer_kwargs": {"n_steps": 5}},
            "replay_buffer_kwargs has n_steps = 5, but n_steps",
        ),
    ],
)
@pytest.mark.parametrize("name", ["acc", "tqc"])
def test_settings(name, kwargs, message):
    with pytest.raises(ValueError, match=message):
        make(name, "Pendulum-v1", **kwargs)


def test_actions_that_do_not_begin_with_0():
    env = gym.make("CartPole-v1")
    env.action_space = gym.spaces.Discrete(2, start=1)
    with pytest.raises(ValueError, match=r"the env's actions are Discrete\(2, start=1\), but must begin with 0"):
        make("acc-dqn", env)


def test_a_gamma_of_numpys_is_pythons():
    model = make("acc-x", "Pendulum-v1", n_steps=3, gamma=np.float64(0.98), learning_starts=20)
    model.learn(40)
    assert type(model.gamma) is float


@pytest.mark.parametrize("name", ["acc", "sac", "td3", "acc-ddpg"])
def test_numbers_that_are_given_twice(name):
    with pytest.raises(ValueError, match="n_critics is 3, but policy_kwargs has 2"):
        make(name, "Pendulum-v1", n_critics=3, policy_kwargs={"n_critics": 2})
    for kwargs in ({"policy_kwargs": {"n_critics": 3}}, {"n_critics": 3}):
        model = REGISTRY[name].make("MlpPolicy", "Pendulum-v1", buffer_size=10, **kwargs)
        assert model.policy_kwargs["n_critics"] == 3


@pytest.mark.parametrize("sizes", [{"pi": [8], "vf": [16]}, (8, 8)])
def test_hidden_sizes_of_another_form(sizes):
    with pytest.raises(ValueError, match="but must be a list of hidden sizes, or a dictionary of pi and qf"):
        make("acc", "Pendulum-v1", policy_kwargs={"net_arch": sizes})


def test_nets_that_the_actor_of_gsde_cannot_have():
    with pytest.warns(UserWarning, match="SB3's own: nets 'layernorm' is for the critics"):
        make("sac", "Pendulum-v1", use_sde=True, policy_kwargs={"nets": "layernorm"})
    make("sac", "Pendulum-v1", use_sde=True, policy_kwargs={"nets": {"qf": "layernorm"}})


def test_atoms_that_are_given_twice():
    with pytest.raises(ValueError, match="n_atoms is 7, but policy_kwargs has 9"):
        make("acc", "Pendulum-v1", n_atoms=7, policy_kwargs={"n_atoms": 9})


class Broken(gym.Env):
    """Gives something that is no number at step 60, at the end of an episode or at the reset."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (2,))

    def __init__(self, what, value=np.nan):
        self.what, self.value, self.t = what, value, 0

    def observe(self, broken):
        obs = np.zeros(3)
        if broken:
            obs[1] = self.value
        return obs

    def reset(self, *, seed=None, options=None):
        return self.observe(self.what == "reset"), {}

    def step(self, action):
        self.t += 1
        now = self.t == 60
        reward = self.value if now and self.what == "reward" else 1.0
        final = now and self.what == "final"
        return self.observe(final or (now and self.what == "observation")), reward, final, False, {}


MESSAGES = {
    "reward": "reward of env 1 is {} at step 120: the environment returned it",
    "observation": r"observation of env 1 is {} at index \[1\] at step 120",
    "final": r"final observation of env 1 is {} at index \[1\] at step 120",
    "reset": r"observation of env 1 is {} at index \[1\] at step 0",
}


@pytest.mark.parametrize("what", MESSAGES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.filterwarnings("ignore:invalid value")  # of VecNormalize, on its way to our check
def test_what_is_no_number_is_named_and_not_stored(what, value, normalized):
    if (what, value, normalized) == ("final", np.inf, True):
        return  # VecNormalize clips it to a finite number before anyone sees it
    env = DummyVecEnv([lambda: Broken("nothing"), lambda: Broken(what, value)])
    model = make("acc", VecNormalize(env) if normalized else env)
    with pytest.raises(ValueError, match=MESSAGES[what].format(value)):
        model.learn(1000)
    buffer = model.replay_buffer
    assert buffer.pos == {"reset": 0}.get(what, 59)
    for stored in (buffer.observations, buffer.next_observations, buffer.rewards, buffer.actions):
        assert np.isfinite(stored).all()


def test_a_diverged_policy_is_named():
    model = make("acc", "Pendulum-v1")
    model.predict = lambda obs, deterministic: (np.array([[np.nan]]), None)
    with pytest.raises(ValueError, match=r"action of env 0 is nan .*the policy has diverged"):
        model.learn(100)


def test_a_diverged_critic_is_named():
    model = make("acc", "Pendulum-v1", learning_starts=10_000)
    model.critic.ensemble.theta.data.fill_(np.nan)
    with pytest.raises(ValueError, match="gap is nan at step 200: "):
        model.learn(1000)
