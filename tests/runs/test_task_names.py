import pytest

from acc_rl.runs import envs
from acc_rl.runs.spec import RunSpec
from acc_rl.runs.tasks import GYM_TASKS


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("Pendulum", "Pendulum-v1"),
        ("CartPole", "CartPole-v1"),
        ("Reacher", "Reacher-v5"),
        ("Pendulum-v1", "Pendulum-v1"),
        ("metaworld/push", "metaworld/push-v3"),
        ("Nosuch", "Nosuch"),
        ("module:Env", "module:Env"),
    ],
)
def test_the_newest_version_where_none_is_given(short, full):
    assert RunSpec(short).env == full


@pytest.mark.parametrize("task", GYM_TASKS)
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_the_papers_tasks_with_and_without_version(task):
    assert RunSpec(task).env == RunSpec(f"{task}-v5").env == f"{task}-v5"
    old = RunSpec(f"{task}-v4")
    assert old.name == f"{task}-v4_acc_seed0"
    env = envs.make(old.env)
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    assert env.spec.max_episode_steps == 1000
    env.close()
