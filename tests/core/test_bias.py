import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acc_rl.core.bias import AdaptiveBias, BiasSettings, FixedBias

DATA = Path(__file__).parents[1] / "data"


def test_first_update_moves_by_the_learning_rate():
    rule = AdaptiveBias()
    rule.update(gap=-8.0, step=25_000)
    assert rule.scale == 8.0
    assert rule.beta == pytest.approx(2.4)  # 2.5 + 0.1 * (-8 / 8): overestimation lowers beta


def test_second_update_by_hand():
    rule = AdaptiveBias(BiasSettings(moving_average=0.5))
    rule.update(4.0, 25_000)
    rule.update(2.0, 26_000)
    assert rule.scale == 3.0
    assert rule.beta == pytest.approx(2.5 + 0.1 + 0.1 * 2 / 3)


def test_official_numbers():
    golden = json.loads((DATA / "golden_bias_rule.json").read_text())
    rule = AdaptiveBias(
        BiasSettings(
            start=golden["max"] - golden["start"],
            range=(0, golden["max"]),
            lr=golden["lr"],
            moving_average=golden["coefficient"],
        )
    )
    assert len(golden["updates"]) == 200
    for step, official in enumerate(golden["updates"]):
        rule.update(official["mean_return"] - official["mean_q"], step)
        assert rule.scale == pytest.approx(official["scale"], rel=1e-5)
        assert golden["max"] - rule.beta == pytest.approx(official["dropped"], abs=1e-5)


def test_schedule():
    rule = AdaptiveBias(BiasSettings(start_step=100, update_interval=30))
    assert [step for step in range(90, 110) if rule.due(step)] == list(range(100, 110))
    rule.update(1.0, 105)
    assert not rule.due(134)
    assert rule.due(135)
    rule.restart_clock()
    assert not rule.due(99)
    assert rule.due(100)


def test_fixed_bias_measures_but_stays():
    fixed, adaptive = FixedBias(beta=3.0), AdaptiveBias()
    for step, gap in enumerate([5.0, -1.0, 0.5]):
        fixed.update(gap, step)
        adaptive.update(gap, step)
    assert fixed.beta == 3.0
    assert fixed.scale == adaptive.scale
    assert fixed.due(30_000) == adaptive.due(30_000)


@given(st.lists(st.floats(-1e6, 1e6), max_size=50))
def test_beta_stays_in_range_and_follows_the_sign_of_the_gap(gaps):
    rule = AdaptiveBias()
    for step, gap in enumerate(gaps):
        before = rule.beta
        rule.update(gap, step)
        assert 0 <= rule.beta <= 5
        assert (rule.beta - before) * gap >= 0


@pytest.mark.parametrize("make", [AdaptiveBias, lambda: FixedBias(1.0)])
def test_state_goes_on_where_it_was_saved(make):
    rule, copy = make(), make()
    rule.update(3.0, 25_000)
    copy.load_state_dict(json.loads(json.dumps(rule.state_dict())))
    for r in (rule, copy):
        r.update(-7.0, 26_000)
    assert copy.state_dict() == rule.state_dict()


def test_what_was_set_comes_before_what_was_saved():
    fixed, narrow = FixedBias(1.0), AdaptiveBias(BiasSettings(start=1.0, range=(0.0, 2.0)))
    for rule in (fixed, narrow):
        rule.load_state_dict({"beta": 4.5, "scale": 3.0, "last_update": 7})
        assert (rule.scale, rule.last_update) == (3.0, 7)
    assert fixed.beta == 1.0
    assert narrow.beta == 2.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("start", "a"),
        ("lr", "0.1"),
        ("lr", True),
        ("moving_average", None),
        ("range", (5.0, 0.0)),
        ("range", (0.0, float("inf"))),
        ("range", 5),
        ("start", 5.1),
        ("start", float("nan")),
        ("lr", 0.0),
        ("lr", float("nan")),
        ("update_interval", 0),
        ("update_interval", 1e3),
        ("start_step", -1),
        ("pairs_kept", 0),
        ("moving_average", 0.0),
        ("moving_average", 1.5),
        ("returns", "entropy"),
        ("tail", "cut"),
        ("tail", ("drop", 0)),
        ("tail", ("drop",)),
    ],
)
def test_errors_name_the_field_and_the_value(field, value):
    with pytest.raises(ValueError, match=rf"bias\.{field} is .*must be") as error:
        BiasSettings().merged({field: value})
    assert repr(value) in str(error.value)


def test_unknown_setting_names_the_known_ones():
    with pytest.raises(ValueError, match="unknown setting 'learning_rate'; known are lr, "):
        BiasSettings().merged({"learning_rate": 0.1})


def test_settings_must_be_a_mapping():
    with pytest.raises(ValueError, match=r"bias is 'lr=0\.1', but must be BiasSettings or a mapping"):
        BiasSettings().merged("lr=0.1")


def test_a_gap_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="gap is nan at step 7"):
        AdaptiveBias().update(float("nan"), 7)
