"""Which parts of modern critics pay at one update per env step on one CPU core? A plain script without the package.

    python examples/screening.py plain HalfCheetah-v5 --seed 0     # one run, a row of results/screening.jsonl
    python examples/screening.py --table                         # what all rows say

Every variant is a soft actor-critic whose pessimism ``beta`` is turned by ACC's rule, on soft returns with a
bootstrapped tail, from the first episodes of the learned policy. Variants differ in what ``VARIANTS`` lists.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS = Path(__file__).parents[1] / "results" / "screening.jsonl"


@dataclass(frozen=True)
class Variant:
    trunk: str = "mlp"
    """mlp | ln (LayerNorm after each layer) | bro (LayerNorm residual) | xqc (BatchNorm after each layer) |
    flash (BatchNorm residual, expansion 4)"""
    critic: tuple[int, int] = (256, 2)
    """width, layers or blocks"""
    actor: tuple[int, int] = (256, 2)
    actor_trunk: str = ""
    """the critic's unless given"""
    normalize_observations: bool = False
    categorical: bool = False
    """101 atoms on [-5, 5] and PoolOrMin instead of 25 quantiles and Truncate"""
    scale_rewards: bool = False
    unit_weights: bool = False
    lr: float = 1e-3
    lr_end: float = 1.0
    """share of lr that is left at the end"""
    alpha: float = 1.0
    """temperature at the start"""
    gamma: float = 0.99
    tau: float = 0.005
    batch: int = 256
    policy_delay: int = 1
    pessimistic_actor: bool = False
    """the actor's objective is Q_beta instead of the mean"""
    target_entropy: float = -1.0
    """per dimension of the action"""
    fixed_beta: float | None = None
    """leave beta there instead of calibrating it"""

    @property
    def joint(self) -> bool:
        return self.trunk in ("xqc", "flash")


PLAIN = Variant()
XQC = Variant(
    trunk="xqc", critic=(256, 4), categorical=True, scale_rewards=True, unit_weights=True, alpha=0.01, policy_delay=3,
    lr=3e-4, lr_end=0.1,
)  # fmt: skip
FLASH = Variant(
    trunk="flash", critic=(128, 2), actor=(64, 2), categorical=True, scale_rewards=True, unit_weights=True, alpha=0.01,
    policy_delay=2, lr=3e-4, lr_end=0.5, tau=0.01, batch=512,
)  # fmt: skip
CAT = Variant(normalize_observations=True, categorical=True, scale_rewards=True, alpha=0.1)
BRO = Variant(trunk="bro", critic=(256, 1), actor=(256, 1), normalize_observations=True)
VARIANTS = {
    "plain": PLAIN,
    "plain-norm": replace(PLAIN, normalize_observations=True),
    "bro": BRO,
    "xqc": XQC,
    "xqc-fast": replace(XQC, lr=1e-3, alpha=0.1, policy_delay=2),
    "flash": FLASH,
    "flash-fast": replace(FLASH, lr=1e-3, alpha=0.1, batch=256, tau=0.005),
    # one part at a time on the plain learner
    "plain-bn": replace(PLAIN, trunk="xqc", critic=(256, 2)),
    "plain-cat": CAT,
    # one part at a time on the categorical learner
    "ln-cat": replace(CAT, trunk="ln", actor_trunk="mlp"),
    "bn-cat": replace(CAT, trunk="xqc", normalize_observations=False),
    "bn-cat-delay": replace(CAT, trunk="xqc", normalize_observations=False, policy_delay=2),
    "unit-cat": replace(CAT, trunk="xqc", normalize_observations=False, unit_weights=True, lr_end=0.1),
    "ln-cat-delay": replace(CAT, trunk="ln", actor_trunk="mlp", policy_delay=2),
    # always the smaller critic
    "plain-min": replace(CAT, fixed_beta=0.0),
    "ln-min": replace(CAT, trunk="ln", actor_trunk="mlp", fixed_beta=0.0),
    "bn-min": replace(CAT, trunk="xqc", normalize_observations=False, fixed_beta=0.0),
    "unit-min": replace(
        CAT, trunk="xqc", normalize_observations=False, unit_weights=True, lr_end=0.1, policy_delay=2, fixed_beta=0.0
    ),
    # the actor sees the same pessimism
    "plain-cat-actor": replace(CAT, pessimistic_actor=True),
    "plain-min-actor": replace(CAT, pessimistic_actor=True, fixed_beta=0.0),
    "bn-min-actor": replace(
        CAT, trunk="xqc", normalize_observations=False, fixed_beta=0.0, pessimistic_actor=True, policy_delay=2
    ),
}


# --- layers, batched over nets: (nets, batch, features) ---


class Linear(nn.Module):
    def __init__(self, nets: int, n_in: int, n_out: int, bias: bool = True) -> None:
        super().__init__()
        each = [nn.Linear(n_in, n_out, bias=bias) for _ in range(nets)]
        self.weight = nn.Parameter(torch.stack([x.weight.detach().t() for x in each]))
        self.bias = nn.Parameter(torch.stack([x.bias.detach() for x in each])[:, None]) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(x, self.weight) if self.bias is None else torch.baddbmm(self.bias, x, self.weight)


class LayerNorm(nn.Module):
    def __init__(self, nets: int, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(nets, 1, width)), nn.Parameter(torch.zeros(nets, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.bias, F.layer_norm(x, x.shape[-1:]), self.weight)


class BatchNorm(nn.Module):
    def __init__(self, nets: int, width: int) -> None:
        super().__init__()
        self.nets, self.norm = nets, nn.BatchNorm1d(nets * width, eps=1e-3, momentum=0.01)

    def forward(self, x: Tensor) -> Tensor:
        nets, batch, width = x.shape
        return self.norm(x.transpose(0, 1).reshape(batch, -1)).view(batch, nets, width).transpose(0, 1)


class Residual(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


def trunk(kind: str, nets: int, n_in: int, n_out: int, width: int, depth: int) -> nn.Sequential:
    def linear(a: int, b: int, bias: bool = True) -> Linear:
        return Linear(nets, a, b, bias)

    layers: list[nn.Module] = []
    if kind == "mlp":
        for i in range(depth):
            layers += [linear(n_in if i == 0 else width, width), nn.ReLU()]
    elif kind == "ln":
        for i in range(depth):
            layers += [linear(n_in if i == 0 else width, width), LayerNorm(nets, width), nn.ReLU()]
    elif kind == "bro":
        layers += [linear(n_in, width), LayerNorm(nets, width), nn.ReLU()]
        for _ in range(depth):
            block = [linear(width, width), LayerNorm(nets, width), nn.ReLU()]
            layers += [Residual(*block, linear(width, width), LayerNorm(nets, width))]
    elif kind == "xqc":
        layers += [BatchNorm(nets, n_in)]
        for i in range(depth):
            layers += [linear(n_in if i == 0 else width, width, False), BatchNorm(nets, width), nn.ReLU()]
    elif kind == "flash":
        layers += [BatchNorm(nets, n_in), linear(n_in, width, False)]
        for _ in range(depth):
            wide = [linear(width, 4 * width, False), BatchNorm(nets, 4 * width), nn.ReLU()]
            layers += [Residual(*wide, linear(4 * width, width, False), BatchNorm(nets, width), nn.ReLU())]
        layers += [nn.RMSNorm(width, eps=1e-6)]
    return nn.Sequential(*layers, linear(width, n_out))


@torch.no_grad()
def to_unit_rows(net: nn.Module) -> None:
    for layer in net.modules():
        if isinstance(layer, Linear):
            layer.weight.div_(layer.weight.norm(dim=1, keepdim=True).clamp_min(1e-8))


# --- the agent ---


class Running:
    """Mean and variance of all that was seen"""

    def __init__(self, n: int) -> None:
        self.mean, self.var, self.count = np.zeros(n), np.ones(n), 1e-4

    def add(self, x: Any) -> None:
        self.count += 1
        delta = x - self.mean
        self.mean = self.mean + delta / self.count
        self.var = self.var + (delta * (x - self.mean) - self.var) / self.count


class Agent:
    quantiles, atoms, bound, d_max = 25, 101, 5.0, 5.0

    def __init__(self, v: Variant, n_obs: int, n_act: int, steps: int) -> None:
        self.v, self.n_act, self.steps = v, n_act, steps
        n_out = self.atoms if v.categorical else self.quantiles
        self.critic = trunk(v.trunk, 2, n_obs + n_act, n_out, *v.critic)
        self.actor = trunk(v.actor_trunk or v.trunk, 1, n_obs, 2 * n_act, *v.actor)
        if v.unit_weights:
            to_unit_rows(self.critic), to_unit_rows(self.actor)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = torch.tensor(math.log(v.alpha), requires_grad=True)
        self.optimizers = [
            torch.optim.Adam(p, lr=v.lr, fused=True)
            for p in (self.critic.parameters(), self.actor.parameters(), [self.log_alpha])
        ]
        self.support = torch.linspace(-self.bound, self.bound, self.atoms)
        self.tau_m = (torch.arange(self.quantiles) + 0.5) / self.quantiles
        self.low, self.high = (0.0, 1.0) if v.categorical else (0.0, self.d_max)
        self.beta = (self.low + self.high) / 2 if v.fixed_beta is None else v.fixed_beta
        self.gap_scale: float | None = None
        self.obs_stats, self.return_stats = Running(n_obs), Running(1)
        self.largest_return, self.open_return = 0.0, 0.0
        self.updates = 0

    # observations and rewards as the nets see them
    def seen(self, obs: np.ndarray) -> Tensor:
        if self.v.normalize_observations:
            obs = (obs - self.obs_stats.mean) / np.sqrt(self.obs_stats.var + 1e-8)
        return torch.as_tensor(obs, dtype=torch.float32)

    @property
    def reward_scale(self) -> float:
        if not self.v.scale_rewards:
            return 1.0
        return max(math.sqrt(self.return_stats.var[0]), self.largest_return / self.bound, 1e-8)

    def observe(self, obs: np.ndarray, reward: float, ended: bool) -> None:
        self.obs_stats.add(obs)
        self.open_return = self.v.gamma * self.open_return + reward
        self.return_stats.add(self.open_return)
        self.largest_return = max(self.largest_return, abs(self.open_return))
        if ended:
            self.open_return = 0.0

    def act(self, obs: Tensor, greedy: bool = False) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(obs[None])[0].chunk(2, dim=-1)
        if greedy:
            return mean.tanh(), mean
        log_std = -10 + 6 * (1 + log_std.tanh()) if self.v.trunk == "flash" else log_std.clamp(-20, 2)
        noise = torch.randn_like(mean)
        raw = mean + log_std.exp() * noise
        jacobian = 2 * (math.log(2) - raw - F.softplus(-2 * raw))
        log_prob = (-0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - jacobian).sum(-1)
        return raw.tanh(), log_prob

    def values(self, z: Tensor) -> Tensor:
        """(nets, batch)"""
        return (z.softmax(-1) * self.support).sum(-1) if self.v.categorical else z.mean(-1)

    def estimate(self, obs: Tensor, actions: Tensor) -> Tensor:
        x = torch.cat([obs, actions], -1)
        return self.values(self.critic(x.expand(2, *x.shape))).mean(0)

    def update(self, obs: Tensor, actions: Tensor, rewards: Tensor, next_obs: Tensor, terminal: Tensor) -> None:
        v, alpha = self.v, self.log_alpha.detach().exp()
        self.critic.train(), self.target.train(), self.actor.eval()
        with torch.no_grad():
            next_actions, next_log_prob = self.act(next_obs)
        now, after = torch.cat([obs, actions], -1), torch.cat([next_obs, next_actions], -1)
        n = len(now)
        both = torch.cat([now, after])
        with torch.no_grad():
            x = both if v.joint else after
            z_next = self.target(x.expand(2, *x.shape))[:, -n:]
            discount = v.gamma * (1 - terminal)
            bellman = lambda z: rewards + discount * (z - alpha * next_log_prob[:, None])  # noqa: E731
        x = both if v.joint else now
        z = self.critic(x.expand(2, *x.shape))[:, :n]
        loss = self.categorical_loss(z, z_next, bellman) if v.categorical else self.quantile_loss(z, z_next, bellman)
        self.step(0, self.critic, loss)
        with torch.no_grad():
            for t, p in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                t.lerp_(p, v.tau)
        self.updates += 1
        if self.updates % v.policy_delay:
            return
        self.critic.eval(), self.actor.train()
        new_actions, log_prob = self.act(obs)
        x = torch.cat([obs, new_actions], -1)
        self.critic.requires_grad_(False)
        q = self.values(self.critic(x.expand(2, *x.shape)))
        self.critic.requires_grad_(True)
        k = (1 - self.beta) if v.categorical else 1.0
        value = (1 - k) * q.mean(0) + k * q.amin(0) if v.pessimistic_actor else q.mean(0)
        self.step(1, self.actor, (alpha * log_prob - value).mean())
        self.actor.eval()
        excess = (log_prob.detach() + v.target_entropy * self.n_act).mean()
        self.step(2, None, -self.log_alpha * excess)

    def step(self, i: int, net: nn.Module | None, loss: Tensor) -> None:
        optimizer = self.optimizers[i]
        optimizer.zero_grad()
        loss.backward()
        progress = min(self.updates / self.steps, 1.0)
        optimizer.param_groups[0]["lr"] = self.v.lr * (1 + progress * (self.v.lr_end - 1))
        optimizer.step()
        if net is not None and self.v.unit_weights:
            to_unit_rows(net)

    def quantile_loss(self, z: Tensor, z_next: Tensor, bellman: Any) -> Tensor:
        with torch.no_grad():
            pooled = z_next.transpose(0, 1).reshape(z.shape[1], -1).sort().values
            dropped = round((self.d_max - self.beta) * 2)
            y = bellman(pooled[:, : pooled.shape[1] - dropped])
        u = y[None, :, None, :] - z[..., None]
        huber = torch.where(u.abs() <= 1, 0.5 * u.square(), u.abs() - 0.5)
        return ((self.tau_m[:, None] - (u.detach() < 0).float()).abs() * huber).mean()

    def categorical_loss(self, z: Tensor, z_next: Tensor, bellman: Any) -> Tensor:
        with torch.no_grad():
            p = z_next.softmax(-1)
            smaller = (p * self.support).sum(-1).argmin(0)
            least = torch.where((smaller == 0)[:, None], p[0], p[1])
            p = torch.lerp(least, p.mean(0), self.beta)
            place = (bellman(self.support).clamp(-self.bound, self.bound) + self.bound) / (2 * self.bound)
            place = place * (self.atoms - 1)
            below = place.floor().long().clamp(0, self.atoms - 2)
            share = place - below
            y = torch.zeros_like(p).scatter_add_(1, below, p * (1 - share)).scatter_add_(1, below + 1, p * share)
        return -(y * z.log_softmax(-1)).sum(-1).mean(1).sum()

    @torch.no_grad()
    def calibrate(self, episodes: deque[Any]) -> dict[str, float]:
        """ACC's rule on soft returns with a bootstrapped tail"""
        self.critic.eval(), self.actor.eval()
        alpha, scale = self.log_alpha.exp().item(), self.reward_scale
        gaps, returns = [], []
        for obs, actions, rewards, final, truncated in episodes:
            states = self.seen(np.concatenate([obs, final[None]]))
            fresh, log_prob = self.act(states)
            bonus = (-alpha * log_prob).double().numpy()
            value = float(self.estimate(states[-1:], fresh[-1:])) + bonus[-1] if truncated else 0.0
            q = self.estimate(states[:-1], torch.as_tensor(actions)).double().numpy()
            R = np.empty(len(rewards))
            for t in reversed(range(len(rewards))):
                later = value if t == len(rewards) - 1 else value + bonus[t + 1]
                R[t] = value = rewards[t] / scale + self.v.gamma * later
            gaps.append(R - q)
            returns.append(R)
        gap = float(np.concatenate(gaps).mean())
        if self.v.fixed_beta is None:
            self.gap_scale = abs(gap) if self.gap_scale is None else 0.95 * self.gap_scale + 0.05 * abs(gap)
            move = 0.02 * (self.high - self.low) * gap / (self.gap_scale + 1e-8)
            self.beta = min(max(self.beta + move, self.low), self.high)
        return {"gap": gap * scale, "mean_return": float(np.concatenate(returns).mean()) * scale}


# --- the run ---


def evaluate(agent: Agent, env: gym.Env[Any, Any], episodes: int, seed: int) -> float:
    agent.actor.eval()
    total = 0.0
    for i in range(episodes):
        obs, ended = env.reset(seed=seed + i)[0], False
        while not ended:
            with torch.no_grad():
                action = agent.act(agent.seen(obs)[None], greedy=True)[0][0].numpy()
            obs, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            ended = terminated or truncated
    return total / episodes


def run(name: str, task: str, seed: int, steps: int, starts: int = 5000, every: int = 5000) -> Iterator[dict[str, Any]]:
    """The row so far, after every evaluation"""
    v = VARIANTS[name]
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env, test_env = gym.make(task), gym.make(task)
    n_obs, n_act = env.observation_space.shape[0], env.action_space.shape[0]
    high = env.action_space.high
    agent = Agent(v, n_obs, n_act, steps)
    S, A, R, N, D = (np.zeros((steps, n), np.float32) for n in (n_obs, n_act, 1, n_obs, 1))
    obs, _ = env.reset(seed=seed)
    episodes: deque[Any] = deque()
    first, calibrated, learned_from = 0, 0, 0
    curve: list[dict[str, float]] = []
    measured: dict[str, float] = {}
    clock, spent = time.perf_counter(), 0.0
    for t in range(steps):
        if t < starts:
            action = rng.uniform(-1, 1, n_act).astype(np.float32)
        else:
            agent.actor.eval()
            with torch.no_grad():
                action = agent.act(agent.seen(obs)[None])[0][0].numpy()
        new, reward, terminated, truncated, _ = env.step(action * high)
        S[t], A[t], R[t], N[t], D[t] = obs, action, reward, new, terminated
        agent.observe(new, float(reward), terminated or truncated)
        obs = new
        if terminated or truncated:
            if first >= starts:  # episodes of the learned policy alone
                part = slice(first, t + 1)
                episodes.append((S[part], A[part], R[part, 0].astype(float), np.asarray(new), not terminated))
                learned_from += t + 1 - first
                if t - calibrated >= 1000:
                    measured = agent.calibrate(episodes)
                    calibrated = t
                    while learned_from > 5000 and len(episodes) > 1:
                        learned_from -= len(episodes.popleft()[2])
            first = t + 1
            obs, _ = env.reset()
        if t >= starts:
            i = rng.integers(0, t + 1, v.batch)
            rewards = torch.as_tensor(R[i] / agent.reward_scale, dtype=torch.float32)
            agent.update(agent.seen(S[i]), torch.as_tensor(A[i]), rewards, agent.seen(N[i]), torch.as_tensor(D[i]))
        if (t + 1) % every == 0:
            spent += time.perf_counter() - clock
            score = evaluate(agent, test_env, 5, 10_000 + 100 * seed)
            curve.append({"step": t + 1, "return": round(score, 1), "beta": round(agent.beta, 3), **measured})
            if t + 1 > starts:
                ms = round(1000 * spent / (t + 1 - starts), 2)
                about = {"variant": name, "task": task, "seed": seed, "steps": t + 1, "ms_per_step": ms}
                yield {**about, "date": time.strftime("%Y-%m-%d"), "curve": curve}
            clock = time.perf_counter()


def table() -> None:
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    tasks = sorted({row["task"] for row in rows})
    print("| variant | " + " | ".join(f"{task}, 25k | 50k | beta at the end" for task in tasks) + " | ms per step |")
    print("|---" * (2 + 3 * len(tasks)) + "|")
    for name in VARIANTS:
        cells, ms = [], []
        for task in tasks:
            mine = [row for row in rows if (row["variant"], row["task"]) == (name, task)]
            points = [{p["step"]: p for p in row["curve"]} for row in mine]
            for step in (25_000, 50_000):
                cells.append(", ".join(f"{p[step]['return']:.0f}" for p in points if step in p))
            cells.append(", ".join(f"{row['curve'][-1]['beta']:.2f}" for row in mine))
            ms += [row["ms_per_step"] for row in mine]
        if ms:
            print(f"| {name} | " + " | ".join(cells) + f" | {min(ms):.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variant", nargs="?", choices=list(VARIANTS))
    parser.add_argument("task", nargs="?", default="HalfCheetah-v5")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--table", action="store_true", help="print what all rows say, and end")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.table:
        table()
    elif options.variant is None:
        parser.error("name a variant, or --table")
    else:
        row: dict[str, Any] = {}
        try:
            for row in run(options.variant, options.task, options.seed, options.steps):
                print(row["variant"], row["task"], row["seed"], row["curve"][-1], row["ms_per_step"], "ms", flush=True)
        finally:  # a run that is cut off keeps what it has
            if row:
                with ROWS.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
