import pytest

from acc_rl.core.settings import PAPER, BiasSettings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("start", "a"),
        ("lr", "0.1"),
        ("lr", True),
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
        BiasSettings(range=(0, 5)).merged({field: value})
    assert (f"'drop:{value[1]}'" if value == ("drop", 0) else repr(value)) in str(error.value)


def test_unknown_setting_names_the_known_ones():
    with pytest.raises(ValueError, match="unknown setting 'learning_rate'; known are start, range, lr, "):
        BiasSettings().merged({"learning_rate": 0.1})


def test_settings_must_be_a_mapping():
    with pytest.raises(ValueError, match=r"bias is 'lr=0\.1', but must be BiasSettings or a mapping"):
        BiasSettings().merged("lr=0.1")


def test_schedule():
    settings = PAPER.merged({"start_step": 100, "update_interval": 30})
    assert [step for step in range(90, 110) if settings.due(step, 0)] == list(range(100, 110))
    assert not settings.due(134, 105)
    assert settings.due(135, 105)


@pytest.mark.parametrize("tail", [("drop", 7), ["drop", 7], "drop:7"])
def test_a_dropped_tail_has_one_form(tail):
    assert BiasSettings(tail=tail) == BiasSettings(tail="drop:7")
    assert BiasSettings(tail=tail).dropped_tail == 7
    assert BiasSettings(tail="bootstrap").dropped_tail == BiasSettings().dropped_tail == 0


def test_what_is_given_comes_before_what_is_not():
    assert PAPER.merged(BiasSettings(tail="bootstrap")).given() == {**PAPER.given(), "tail": "bootstrap"}
    assert BiasSettings().given() == {}
