"""Numbers of the official implementation: given its weights, minibatches and noise, we arrive at its weights."""

import json
from itertools import count
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


def load_nets(ensemble, golden, names):
    """``names[i]`` is the prefix of net i's weights."""
    parts = ensemble.parts(ensemble.theta.data)
    layers = list(zip(parts[::2], parts[1::2], strict=True))
    for i, (weight, bias) in enumerate(layers):
        layer = f"fc{i}" if i < len(layers) - 1 else "last_fc"
        for net, name in enumerate(names):
            weight[net] = th.tensor(golden[f"{name}.{layer}.weight"])
            bias[net, :, 0] = th.tensor(golden[f"{name}.{layer}.bias"])


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
    for critic in ("critic", "critic_target"):
        nets = [f"{state}/{critic}/qf{i}" for i in range(config["n_critics"])]
        load_nets(getattr(model, critic).ensemble, golden, nets)
    load_nets(model.actor.net, golden, [f"{state}/actor/net"])
    model.log_ent_coef.data = th.tensor(golden[f"{state}/log_alpha"])
    model.set_logger(Logger(None, []))
    return model


def parameters(model):
    yield "log_alpha", model.log_ent_coef
    yield from model.policy.named_parameters()


def train_on_recorded(model, golden, config, monkeypatch):
    noise = (th.tensor(golden[f"noise{i}"]) for i in count())
    batches = count()

    def sample(batch_size, env=None):
        i, keys = next(batches), ("state", "action", "next_state", "not_done", "reward")
        batch = {key: th.tensor(golden[f"batch{i}/{key}"]) for key in keys}
        return ReplayBufferSamples(
            batch["state"], batch["action"], batch["next_state"], 1 - batch["not_done"], batch["reward"]
        )

    monkeypatch.setattr(model.replay_buffer, "sample", sample)
    monkeypatch.setattr(th, "randn", lambda *shape, device: next(noise))
    model.train(config["steps"], config["batch"])


@pytest.mark.parametrize("name", ["golden_tqc_1q", "golden_tqc_2q"])
def test_training_steps_end_at_the_official_weights(name, monkeypatch):
    golden = np.load(DATA / f"{name}.npz")
    config = json.loads(str(golden["config"]))
    model, expected = (model_with(golden, config, state) for state in ("before", "after"))
    train_on_recorded(model, golden, config, monkeypatch)
    before = model_with(golden, config, "before")
    for (key, ours), (_, official), (_, start) in zip(*map(parameters, (model, expected, before)), strict=True):
        largest, moved = official.abs().max().item(), (official - start).abs().max().item()
        th.testing.assert_close(ours, official, rtol=1e-4, atol=1e-4 * largest, msg=key)
        # the steps are small: their directions must agree too
        th.testing.assert_close(ours, official, rtol=0, atol=1e-2 * moved, msg=key)
