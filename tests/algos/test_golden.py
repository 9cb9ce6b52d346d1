"""Numbers of the official implementation: given its weights, minibatches and noise, we arrive at its weights."""

import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from acc_rl import TQC

DATA = Path(__file__).parents[1] / "data"


class Shapes(gym.Env):
    """Only its spaces matter."""

    def __init__(self, n_obs, n_actions):
        self.observation_space = spaces.Box(-np.inf, np.inf, (n_obs,), np.float32)
        self.action_space = spaces.Box(-1, 1, (n_actions,), np.float32)


def load_critic(critic, golden, prefix):
    for i, (weight, bias) in enumerate(zip(critic.ensemble.weights, critic.ensemble.biases, strict=True)):
        layer = f"fc{i}" if i < len(critic.ensemble.weights) - 1 else "last_fc"
        for net in range(len(weight)):
            weight.data[net] = th.tensor(golden[f"{prefix}/qf{net}.{layer}.weight"])
            bias.data[net, :, 0] = th.tensor(golden[f"{prefix}/qf{net}.{layer}.bias"])


def load_actor(actor, golden, prefix):
    for i, layer in enumerate([m for m in actor.latent_pi if isinstance(m, th.nn.Linear)]):
        layer.weight.data = th.tensor(golden[f"{prefix}/net.fc{i}.weight"])
        layer.bias.data = th.tensor(golden[f"{prefix}/net.fc{i}.bias"])
    (actor.mu.weight.data, actor.log_std.weight.data) = th.tensor(golden[f"{prefix}/net.last_fc.weight"]).chunk(2)
    (actor.mu.bias.data, actor.log_std.bias.data) = th.tensor(golden[f"{prefix}/net.last_fc.bias"]).chunk(2)


def model_with(golden, config, state):
    model = TQC(
        "MlpPolicy",
        Shapes(config["state_dim"], config["action_dim"]),
        learning_rate=config["lr"],
        buffer_size=1,
        gamma=config["discount"],
        tau=config["tau"],
        target_entropy=config["target_entropy"],
        dropped_per_net=config["dropped_per_net"],
        n_critics=config["n_critics"],
        n_atoms=config["n_atoms"],
        critic_updates=config["critic_updates"],
        policy_kwargs={"net_arch": {"pi": config["actor_hidden"], "qf": config["critic_hidden"]}},
        device="cpu",
    )
    load_critic(model.critic, golden, f"{state}/critic")
    load_critic(model.critic_target, golden, f"{state}/critic_target")
    load_actor(model.actor, golden, f"{state}/actor")
    model.log_ent_coef.data = th.tensor(golden[f"{state}/log_alpha"])
    model.set_logger(Logger(None, []))
    return model


def parameters(model):
    yield "log_alpha", model.log_ent_coef
    yield from model.policy.named_parameters()


def train_on_recorded(model, golden, config, monkeypatch):
    noise = iter(th.tensor(golden[f"noise{i}"]) for i in range(10_000))
    batches = iter(range(10_000))

    def sample(batch_size, env=None):
        batch = {
            key: th.tensor(golden[f"batch{next_index}/{key}"])
            for next_index in [next(batches)]
            for key in ("state", "action", "next_state", "not_done", "reward")
        }
        return ReplayBufferSamples(
            batch["state"], batch["action"], batch["next_state"], 1 - batch["not_done"], batch["reward"]
        )

    monkeypatch.setattr(model.replay_buffer, "sample", sample)
    monkeypatch.setattr(th.distributions.Normal, "rsample", lambda self: self.loc + self.scale * next(noise))
    model.train(config["steps"], config["batch"])


@pytest.mark.parametrize("name", ["golden_tqc_1q", "golden_tqc_2q"])
def test_training_steps_end_at_the_official_weights(name, monkeypatch):
    golden = np.load(DATA / f"{name}.npz")
    config = json.loads(str(golden["config"]))
    model, expected = (model_with(golden, config, state) for state in ("before", "after"))
    train_on_recorded(model, golden, config, monkeypatch)
    for (key, ours), (_, official) in zip(parameters(model), parameters(expected), strict=True):
        largest = official.abs().max()
        th.testing.assert_close(ours, official, rtol=1e-4, atol=1e-4 * largest.item(), msg=key)
