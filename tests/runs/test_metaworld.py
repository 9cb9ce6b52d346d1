"""Meta-World's tasks: an episode is a function of its reset seed and its actions."""

import sys

import numpy as np
import pytest

from acc_rl.core.settings import BiasSettings
from acc_rl.runs import envs
from acc_rl.runs.evaluation import evaluate
from acc_rl.runs.spec import RunSpec, Settings, algorithm_arguments
from acc_rl.runs.train import make_model, train
from acc_rl.store import records
from acc_rl.study.presets import MT1

pytest.importorskip("metaworld")


def play(env, seed, steps, actions=0):
    """Observations and rewards of an episode with random actions"""
    rng = np.random.default_rng(actions)
    obs, _ = env.reset(seed=seed)
    rows = [np.append(obs, 0.0)]
    for _ in range(steps):
        obs, reward, terminated, truncated, info = env.step(rng.uniform(-1, 1, 4).astype(np.float32))
        assert not terminated
        assert not truncated
        assert float(info["success"]) in (0.0, 1.0)
        rows.append(np.append(obs, reward))
    return np.array(rows)


@pytest.mark.parametrize("task", MT1)
def test_an_episode_is_a_function_of_seed_and_actions(task):
    env = envs.make(f"metaworld/{task}-v3")
    first = play(env, 1, 25)
    other = play(env, 2, 40, actions=5)
    again = play(env, 1, 25)  # after other episodes, one of them cut off
    env.close()
    env = envs.make(f"metaworld/{task}-v3")
    np.random.seed(7)  # noqa: NPY002 (the global generator must not matter)
    fresh = play(env, 1, 25)
    env.close()
    assert np.array_equal(first, again)
    assert np.array_equal(first, fresh)
    assert first.shape == (26, 40)
    assert not np.array_equal(first[0], other[0])


def test_goals_are_visible_and_drawn_anew():
    env = envs.make("metaworld/push-v3")
    goals = [env.reset(seed=seed)[0][36:39] for seed in range(60)]
    env.close()
    assert len({tuple(goal) for goal in goals}) == 60  # Meta-World itself has 50 at most
    assert all(0.8 <= goal[1] <= 0.9 for goal in goals)


def test_500_steps_then_truncated():
    env = envs.make("metaworld/faucet-open-v3")
    play(env, 0, 499)
    *_, terminated, truncated, _ = env.step(np.zeros(4, dtype=np.float32))
    assert (terminated, truncated) == (False, True)
    assert env.spec.max_episode_steps == 500
    env.close()


def test_a_longer_limit_than_the_tasks_own_is_refused():
    with pytest.raises(ValueError, match="time_limit is 600, but Meta-World's tasks end after 500 steps"):
        envs.check(RunSpec("metaworld/push-v3", time_limit=600))


def test_names_and_the_interval_of_the_rule():
    spec = RunSpec("metaworld/push")
    assert spec.env == "metaworld/push-v3"
    assert spec.name == "metaworld-push-v3_acc_seed0"
    assert algorithm_arguments(spec) == {"bias": {"update_interval": 500}}
    given = RunSpec("metaworld/push", bias=BiasSettings(update_interval=7))
    assert algorithm_arguments(given)["bias"] == {"update_interval": 7}
    assert algorithm_arguments(RunSpec("Hopper")) == {}
    small = Settings(pi=(8,), qf=(8,), buffer_size=100)
    assert make_model(RunSpec("metaworld/push", settings=small)).bias.update_interval == 500


@pytest.mark.filterwarnings("ignore:Constant.*may be too high")
def test_success_is_that_of_any_step():
    """A scripted policy of Meta-World opens the faucet."""
    from metaworld.policies import SawyerFaucetOpenV3Policy

    env, policy = envs.make("metaworld/faucet-open-v3"), SawyerFaucetOpenV3Policy()
    (episode,) = evaluate(lambda obs: np.stack([policy.get_action(each) for each in obs]), [env], [3])
    (idle,) = evaluate(lambda obs: np.zeros((len(obs), 4), dtype=np.float32), [env], [3])
    env.close()
    assert (episode["success"], idle["success"]) == (True, False)
    assert episode["return"] > idle["return"]
    assert episode["length"] == idle["length"] == 500


def test_training(tmp_path):
    settings = Settings(pi=(8,), qf=(8,), n_critics=2, n_atoms=7, batch_size=8, buffer_size=1000, learning_starts=400)
    spec = RunSpec(
        "metaworld/door-open",
        steps=600,
        eval_every=600,
        eval_episodes=1,
        settings=settings,
        bias=BiasSettings(start_step=100),
    )
    folder = train(spec, tmp_path)
    rows = records.read(folder / records.EVALUATIONS)
    assert [row["step"] for row in rows] == [0, 600]
    assert all(row["success"] in (0.0, 1.0) and row["lengths"] == [500] for row in rows)


@pytest.mark.parametrize(
    ("task", "hint"), [("metaworld/pusch", "did you mean metaworld/push-v3?"), ("metaworld/x", "tasks are")]
)
def test_unknown_tasks(task, hint):
    with pytest.raises(ValueError, match="unknown task metaworld/") as error:
        envs.make(RunSpec(task).env)
    assert hint in str(error.value)


def test_missing_package(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "metaworld"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "metaworld", None)
    with pytest.raises(ValueError, match=r"metaworld/push-v3 needs Meta-World: pip install 'acc_rl\[metaworld\]'"):
        envs.make("metaworld/push-v3")
