import pytest

from acc_rl.commands.study import scale_notice
from acc_rl.study.grid import grid_from_dict
from acc_rl.study.presets import PRESETS

M = 1_000_000


def grid(name):
    return PRESETS[name][1]


@pytest.mark.parametrize(
    ("name", "runs", "steps"),
    [
        ("quick", 3 * 4 * 2, 240_000),
        ("gym", 6 * 3 * 10, 30 * 31 * M),
        ("fixed-d", 6 * 4 * 10, 40 * 31 * M),
        ("sample-efficient", 6 * 9 * 10, 90 * 5 * M),
        ("td3", 6 * 2 * 10, 20 * 6 * M),
        ("critics", 6 * 4 * 10, 40 * 31 * M),
        ("value-error", 6 * 4 * 5, 20 * 31 * M),
        ("metaworld", 12 * 2 * 10, 20 * 36 * M),
    ],
)
def test_presets_are_the_papers(name, runs, steps):
    specs = grid(name).runs()
    assert len(specs) == len({spec.name for spec in specs}) == runs
    assert sum(spec.steps for spec in specs) == steps
    assert {spec.eval_every for spec in specs} == {1000}
    assert {spec.eval_episodes for spec in specs} == {10}
    assert {spec.threads for spec in specs} == {1}


def test_the_compact_preset():
    runs = PRESETS["compact"][1].runs()
    assert len(runs) == 3 * 4 * 2
    assert {(run.steps, run.threads) for run in runs} == {(100_000, 1)}
    assert {run.algo for run in runs} == {"acc-compact", *(f"tqc-compact-d{d}" for d in (0, 2, 5))}


def test_variants_of_the_presets():
    assert {spec.algo for spec in grid("fixed-d").runs()} == {"acc", "tqc-d0", "tqc-d2", "tqc-d5"}
    assert {spec.algo for spec in grid("critics").runs()} == {"acc", "acc-n2", "sac", "td3"}
    updates = {"acc", "acc-2q", "acc-4q", "sac", "sac-2q", "sac-4q", "td3", "td3-2q", "td3-4q"}
    assert {spec.algo for spec in grid("sample-efficient").runs()} == updates
    steps = {spec.env: spec.steps for spec in grid("gym").runs()}
    assert (steps["Humanoid-v5"], steps["Ant-v5"], steps["Swimmer-v5"]) == (10 * M, 5 * M, 3 * M)
    assert "metaworld/peg-insert-side-v3" in {spec.env for spec in grid("metaworld").runs()}


def test_selection_and_scale():
    some = grid("gym").select(["Hopper", "Ant-v5"], seeds=2, scale=0.01)
    specs = some.runs()
    assert some.name == "gym-x0.01"
    assert [(spec.env, spec.algo, spec.seed) for spec in specs[:4]] == [
        ("Hopper-v5", "acc", 0),
        ("Hopper-v5", "sac", 0),
        ("Hopper-v5", "td3", 0),
        ("Ant-v5", "acc", 0),
    ]
    assert {spec.env: spec.steps for spec in specs} == {"Hopper-v5": 30_000, "Ant-v5": 50_000}
    assert {spec.seed for spec in specs} == {0, 1}
    assert {spec.eval_every for spec in specs} == {1000}
    assert grid("gym").select().runs() == grid("gym").runs()
    assert grid("gym").select(seeds=12).seeds == tuple(range(12))
    with pytest.raises(ValueError, match=r"gym has no task 'Hoper'; did you mean Hopper-v5\?"):
        grid("gym").select(["Hoper"])
    for scale in (0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"scale is {scale}, but must be a number > 0 and <= 1000"):
            grid("gym").select(scale=scale)
    with pytest.raises(ValueError, match="seeds is 0, but must be an integer >= 1"):
        grid("gym").select(seeds=0)


def test_scale_counts_the_runs_that_adapt():
    specs = grid("gym").select(["Hopper"], seeds=2, scale=0.005).runs()
    assert "2 of 2 runs of ACC end before bias.start_step" in scale_notice(0.005, specs)


def test_scale_counts_no_run_that_adapts_from_the_first_episodes_on():
    content = {"tasks": ["Hopper"], "steps": 20_000, "seeds": 2, "variants": ["acc", "acc-x"]}
    bias = [{"rule": "confident"}, {"start_step": 30_000}, {"rule": "confident", "start_step": 20_000}]
    content["variants"] += [{"algo": "acc", "bias": each} for each in bias]
    assert "6 of 10 runs of ACC end before" in scale_notice(0.1, grid_from_dict(content, "mine").runs())


CONTENT = {
    "tasks": ["Hopper", "Pendulum-v1"],
    "steps": {"Hopper": 3e5, "Pendulum-v1": 20_000},
    "seeds": 3,
    "eval_every": 2000,
    "variants": ["acc", {"algo": "acc", "settings": {"critic_updates": 2}, "bias": {"lr": 0.2}}],
    "settings": {"gamma": 0.98, "critic_updates": 1},
}


def test_a_file():
    specs = grid_from_dict(CONTENT, "mine").runs()
    assert len(specs) == 12
    plain, twice = specs[:2]
    assert (plain.env, plain.steps, plain.eval_every) == ("Hopper-v5", 300_000, 2000)
    assert (plain.settings.critic_updates, twice.settings.critic_updates) == (1, 2)
    assert (plain.settings.gamma, twice.settings.gamma) == (0.98, 0.98)
    assert (plain.bias.lr, twice.bias.lr) == (None, 0.2)
    assert grid_from_dict(CONTENT, "mine").name == "mine"
    assert [spec.seed for spec in grid_from_dict({**CONTENT, "seeds": [7, 9]}, "x").runs()][::4] == [7, 9]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variant": []}, "the study has no setting 'variant'; did you mean variants?"),
        ({"tasks": []}, r"tasks is \[\], but must be a list with at least one entry"),
        ({"tasks": [3]}, "tasks is 3, but must be a text"),
        ({"variants": ["accc"]}, "unknown algorithm 'accc'; did you mean acc?"),
        ({"variants": [{"algos": "acc"}]}, "a variant has no setting 'algos'; did you mean algo?"),
        ({"variants": [{"settings": {"gama": 1}}]}, "unknown setting settings.gama; did you mean settings.gamma?"),
        ({"variants": ["acc", "acc"]}, "two variants of study mine give the same run Hopper-v5_acc"),
        ({"tasks": ["Hopper", "Hopper-v5"]}, "tasks has Hopper-v5 twice"),
        ({"seeds": [1, 1]}, "seeds has 1 twice"),
        ({"seeds": float("inf")}, "seeds is inf, but must be an integer >= 1"),
        ({"steps": float("inf")}, "steps is inf, but must be an integer >= 1"),
        ({"name": "../../up"}, r"name is '../../up', but must be the name of a folder"),
        ({"name": ".."}, "name is '..', but must be the name of a folder"),
        ({"variants": ["acc", "sac"], "bias": {"lr": 0.2}}, "bias.lr is 0.2, but sac does not adapt"),
        ({"steps": {"Hopper": 5}}, "steps has no entry for Pendulum-v1"),
        ({"steps": {"Hoper": 5}}, "the study has no task 'Hoper'; did you mean Hopper?"),
        ({"steps": 0.5}, "steps is 0.5, but must be an integer >= 1"),
        ({"seeds": 0}, "seeds is 0, but must be an integer >= 1"),
        ({"seeds": []}, "seeds is"),
        ({"settings": 3}, "settings is 3, but must be a table of settings"),
        ({"eval_every": "often"}, "eval_every is 'often', but must be an integer"),
    ],
)
def test_mistakes_in_files_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        grid_from_dict({**CONTENT, **change}, "mine")


def test_arguments_of_all_tasks_and_of_one_variant_are_merged():
    variants = ["sac", {"algo": "acc", "env_kwargs": {"healthy_reward": 2.0}}]
    content = {"tasks": ["Hopper"], "variants": variants, "seeds": 1, "env_kwargs": {"frame_skip": 5}}
    assert [spec.env_kwargs for spec in grid_from_dict(content, "x").runs()] == [
        {"frame_skip": 5},
        {"frame_skip": 5, "healthy_reward": 2.0},
    ]


@pytest.mark.parametrize("seeds", [[[1]], [-1], ["0"], 10**9, [0.5]])
def test_what_are_no_seeds(seeds):
    with pytest.raises(ValueError, match=r"seeds is .*, but must be a number from 1 to 10000, or a list of integers"):
        grid_from_dict({"tasks": ["Hopper"], "variants": ["sac"], "seeds": seeds}, "x")


def test_more_seeds_and_steps_than_can_be_meant():
    with pytest.raises(ValueError, match="seeds is 1000000000, but must be"):
        grid("gym").select(seeds=10**9)
    with pytest.raises(ValueError, match=r"scale is 1e\+305, but must be"):
        grid("gym").select(scale=1e305)
