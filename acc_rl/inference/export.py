"""A policy as an ONNX file: raw observations in, env actions out."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.preprocessing import preprocess_obs
from torch import nn

from acc_rl.algos.actors import DeterministicActor, GaussianActor
from acc_rl.core.errors import AccError, needs
from acc_rl.inference.policy import Policy
from acc_rl.nn.head import Law
from acc_rl.store.files import write_whole
from acc_rl.store.policy import ObservationNormalizer, acting_module

TRIED = 1000
"""observations on which the file is compared with torch"""
TOLERANCE = 1e-5


class _Acting(nn.Module):
    """The deterministic action in plain torch modules, scaled to the env's range"""

    low: th.Tensor
    high: th.Tensor

    def __init__(self, policy: BasePolicy) -> None:
        super().__init__()
        actor = acting_module(policy)
        if not isinstance(actor, (GaussianActor, DeterministicActor)):
            raise AccError("the actor of gSDE is SB3's own, which cannot be exported: train without use_sde")
        self.space, self.extractor, self.net = policy.observation_space, actor.features_extractor, actor.net
        self.normalizer = actor.normalizer or nn.Identity()
        assert isinstance(policy.action_space, spaces.Box)
        self.shape = policy.action_space.shape
        self.n_actions = int(np.prod(self.shape))
        self.register_buffer("low", th.as_tensor(policy.action_space.low.flatten()))
        self.register_buffer("high", th.as_tensor(policy.action_space.high.flatten()))

    def forward(self, observation: th.Tensor) -> th.Tensor:
        outputs = self.net(self.normalizer(self.extractor(preprocess_obs(observation, self.space))))[0]
        unit = outputs[:, : self.n_actions].tanh()  # a Gaussian's means come first
        actions: th.Tensor = self.low + 0.5 * (unit + 1.0) * (self.high - self.low)
        return actions.reshape(-1, *self.shape)


class _Greedy(nn.Module):
    """The action of the largest Q"""

    def __init__(self, policy: BasePolicy) -> None:
        super().__init__()
        assert isinstance(policy.action_space, spaces.Discrete)
        self.network, self.start = acting_module(policy), int(policy.action_space.start)

    def forward(self, observation: th.Tensor) -> th.Tensor:
        q: th.Tensor = self.network(observation)
        q = Law(q.transpose(1, 2)).mean() if q.dim() == 3 else q  # QR-DQN: (batch, atoms, actions)
        return q.argmax(dim=1) + self.start


class _Normalized(nn.Module):
    """Observations as the policy was trained on them, computed in double as VecNormalize does"""

    mean: th.Tensor
    scale: th.Tensor

    def __init__(self, normalizer: ObservationNormalizer) -> None:
        super().__init__()
        self.clip = normalizer.clip
        self.register_buffer("mean", th.as_tensor(normalizer.mean[""]))
        self.register_buffer("scale", th.as_tensor(normalizer.scale[""]))

    def forward(self, observation: th.Tensor) -> th.Tensor:
        return ((observation.double() - self.mean) / self.scale).clamp(-self.clip, self.clip).float()


def export_onnx(policy: Policy, path: Path) -> float:
    """Write the file, compare it with torch on 1000 observations, and give the largest difference."""
    with needs("onnx", "export needs ONNX"):
        import onnx  # noqa: F401, which torch uses
        import onnxruntime
    if path.is_dir():
        raise AccError(f"{path} is a folder: name the file to write")
    if path.suffix != ".onnx":
        raise AccError(f"file is {path}, but must end in .onnx: ONNX is the one format that is written")
    space = policy.policy.observation_space
    if not isinstance(space, spaces.Box):
        raise AccError(f"a policy on {space} cannot be exported: only Box observations can")
    discrete = isinstance(policy.policy.action_space, spaces.Discrete)
    module = (_Greedy if discrete else _Acting)(policy.policy).eval()
    whole = module if policy.normalizer is None else nn.Sequential(_Normalized(policy.normalizer), module).eval()
    example = th.as_tensor(np.stack([space.sample() for _ in range(2)])).float()
    file = io.BytesIO()
    with warnings.catch_warnings(), th.no_grad():
        warnings.simplefilter("ignore")  # the exporter warns of its own future
        th.onnx.export(
            whole,
            (example,),
            file,  # type: ignore[arg-type]
            dynamo=False,
            input_names=["observation"],
            output_names=["action"],
            dynamic_axes={"observation": {0: "batch"}, "action": {0: "batch"}},
        )
    space.seed(0)
    observations = np.stack([space.sample() for _ in range(TRIED)]).astype(np.float32)
    session: Any = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    (actions,) = session.run(None, {"observation": observations})
    difference = float(np.abs(actions - policy(observations)).max())
    largest = 1.0 if isinstance(module, _Greedy) else max(1.0, float(module.high.abs().max()))
    if not difference < TOLERANCE * largest:
        raise AccError(f"the exported policy differs from torch's by {difference:g}: nothing was written")
    write_whole(path, file.getvalue())
    return difference
