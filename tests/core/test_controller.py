import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acc_rl.core.controller import (
    STUCK,
    Bandit,
    Calibrating,
    Constant,
    Controller,
    DualTD,
    Evidence,
    make_controller,
)
from acc_rl.core.settings import PAPER

DATA = Path(__file__).parents[1] / "data"
SETTINGS = PAPER.merged({"start": 2.5, "range": (0, 5), "lr": 0.1})


def begun(controller=None, **changes):
    controller = controller or Calibrating()
    controller.begin(SETTINGS.merged(changes))
    return controller


def measure(controller, *gaps):
    for step, gap in enumerate(gaps):
        controller.measured(Evidence(gap, 0.1, step))


def test_first_update_moves_by_the_learning_rate():
    rule = begun()
    measure(rule, -8.0)
    assert rule.scale == 8.0
    assert rule.beta == pytest.approx(2.4)  # 2.5 + 0.1 * (-8 / 8): overestimation lowers beta


def test_second_update_by_hand():
    rule = begun(moving_average=0.5)
    measure(rule, 4.0, 2.0)
    assert rule.scale == 3.0
    assert rule.beta == pytest.approx(2.5 + 0.1 + 0.1 * 2 / 3)


def test_official_numbers():
    golden = json.loads((DATA / "golden_bias_rule.json").read_text())
    rule = begun(
        start=golden["max"] - golden["start"],
        range=(0, golden["max"]),
        lr=golden["lr"],
        moving_average=golden["coefficient"],
    )
    assert len(golden["updates"]) == 200
    for official in golden["updates"]:
        measure(rule, official["mean_return"] - official["mean_q"])
        assert rule.scale == pytest.approx(official["scale"], rel=1e-5)
        assert golden["max"] - rule.beta == pytest.approx(official["dropped"], abs=1e-5)


def test_a_constant_controller_stays():
    rule = begun(Constant())
    measure(rule, 5.0, -1.0)
    assert rule.beta == 2.5
    assert (rule.adapts, Calibrating.adapts) == (False, True)


@given(st.lists(st.floats(-1e6, 1e6), max_size=50))
def test_beta_stays_in_range_and_follows_the_sign_of_the_gap(gaps):
    rule = begun()
    for gap in gaps:
        before = rule.beta
        measure(rule, gap)
        assert 0 <= rule.beta <= 5
        assert (rule.beta - before) * gap >= 0


def test_state_goes_on_where_it_was_saved():
    rule, copy = begun(), begun()
    assert copy.state_dict()["scale"] != copy.state_dict()["scale"]  # NaN: there is none yet
    measure(rule, 3.0)
    copy.load_state_dict(json.loads(json.dumps(rule.state_dict())))
    for each in (rule, copy):
        measure(each, -7.0)
    assert copy.state_dict() == rule.state_dict()
    copy.load_state_dict(begun().state_dict())
    assert copy.scale is None


def test_what_was_set_comes_before_what_was_saved():
    fixed, narrow = begun(Constant(), start=1.0), begun(start=1.0, range=(0.0, 2.0))
    for rule in (fixed, narrow):
        rule.load_state_dict({"beta": 4.5, "scale": 3.0, "stuck": 0.0})
    assert fixed.beta == 1.0
    assert (narrow.beta, narrow.scale) == (2.0, 3.0)


def test_a_controller_of_ones_own_goes_where_it_likes():
    own, copy = begun(Controller()), begun(Controller())
    own.beta = 7.0
    copy.load_state_dict(own.state_dict())
    assert copy.beta == 7.0


@pytest.mark.parametrize("kind", [DualTD, Bandit])
def test_rivals_stay_in_a_range_that_is_narrower_than_the_saved_one(kind):
    wide, narrow = begun(kind()), begun(kind(), range=(2.0, 3.0), start=2.5)
    wide.beta, wide.arm = 5.0, 1
    narrow.load_state_dict(wide.state_dict())
    assert narrow.beta == 3.0


def test_the_end_of_the_range_is_noticed_after_ten_updates_that_point_outward():
    rule = begun(start=4.95)
    measure(rule, *[1.0] * STUCK)
    assert rule.beta == 5.0
    assert rule.at_limit
    measure(rule, -1.0)
    assert not rule.at_limit
    assert rule.metrics()["at_limit"] == 0.0
    measure(rule, *[1.0] * (STUCK - 1))
    assert not rule.at_limit


def test_a_non_finite_gap_is_refused():
    with pytest.raises(ValueError, match="gap is nan at step 0"):
        measure(begun(), float("nan"))


def test_controllers_by_name():
    assert isinstance(make_controller("acc"), Calibrating)
    assert isinstance(make_controller("fixed"), Constant)
    own = Controller()
    assert make_controller(own) is own
    with pytest.raises(ValueError, match="controller is 'pid'"):
        make_controller("pid")


def test_a_wanted_bias_by_hand():
    """target_bias = -0.2 wants Q = 80 where R = 100: a gap of 20 is right, 0 is 20 too little"""
    rule = begun(target_bias=-0.2)
    rule.measured(Evidence(20.0, 1.0, 0, mean_return=100.0))
    assert rule.beta == 2.5
    rule.measured(Evidence(0.0, 1.0, 0, mean_return=100.0))
    assert rule.beta < 2.5
    negative = begun(target_bias=-0.2)
    negative.measured(Evidence(20.0, 1.0, 0, mean_return=-100.0))
    assert negative.beta == 2.5


def test_the_bandit_by_hand():
    rule = begun(Bandit())
    assert rule.beta in (0.0, 5.0)
    first, second = rule.arm, None
    rule.ended(10.0, 1)  # nothing to compare with
    assert rule.weights == [0.0, 0.0]
    second = rule.arm
    rule.ended(14.0, 2)  # feedback 4 alone: standardised 0
    assert rule.weights == [0.0, 0.0]
    third = rule.arm
    rule.ended(12.0, 3)  # feedback 4, -2: mean 1, deviation 3, standardised -1
    expected = [0.0, 0.0]
    expected[third] = -0.1
    assert rule.weights == pytest.approx(expected)
    fourth = rule.arm
    rule.ended(20.0, 4)  # feedback 4, -2, 8: mean 10 / 3
    z = (8 - 10 / 3) / (((4 - 10 / 3) ** 2 + (-2 - 10 / 3) ** 2 + (8 - 10 / 3) ** 2) / 3) ** 0.5
    w = expected[fourth]
    expected[fourth] = 0.9 * w + 0.1 * z / math.exp(w)
    assert rule.weights == pytest.approx(expected)
    assert {first, second, third, fourth} <= {0, 1}


def test_the_bandit_prefers_the_arm_that_pays_and_goes_on_where_it_was_saved():
    rule, copy, previous = begun(Bandit()), begun(Bandit()), 0.0
    optimistic = []
    for step in range(400):
        previous += 1.0 if rule.arm else -1.0
        rule.ended(previous, step)
        optimistic.append(rule.arm)
    assert sum(optimistic[200:]) > 140
    copy.load_state_dict(json.loads(json.dumps(rule.state_dict())))
    for each in (rule, copy):
        each.ended(3.0, 0)
    assert copy.state_dict() == rule.state_dict()


def test_arms_are_drawn_by_the_seed():
    arms = []
    for seed in (0, 0, 1):
        rule = Bandit()
        rule.seed = seed
        begun(rule)
        drawn = []
        for _ in range(30):
            rule.ended(0.0, 0)
            drawn.append(rule.arm)
        arms.append(drawn)
    assert arms[0] == arms[1] != arms[2]


def test_dual_td_by_hand():
    """Estimates of 30 above the target on average lower beta by 1e-4 * 30, at the next env step"""
    rule = begun(DualTD())
    rule.trained(10.0)
    rule.trained(20.0)
    assert rule.beta == 2.5
    rule.advance()
    assert rule.beta == pytest.approx(2.5 - 0.003)
    rule.trained(-1e9)
    assert rule.state_dict() == {"beta": 5.0}  # clipped
