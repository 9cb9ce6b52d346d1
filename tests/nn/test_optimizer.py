import pytest
import torch as th

from acc_rl.nn.optimizer import step

KINDS = {
    "plain": (th.optim.Adam, {"fused": True}),
    "weight decay": (th.optim.Adam, {"fused": True, "weight_decay": 0.1, "betas": (0.5, 0.9), "eps": 1e-3}),
    "maximize": (th.optim.Adam, {"fused": True, "maximize": True}),
    "decoupled decay": (th.optim.Adam, {"fused": True, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "amsgrad": (th.optim.Adam, {"fused": True, "amsgrad": True}),
    "not fused": (th.optim.Adam, {}),
    "AdamW": (th.optim.AdamW, {"fused": True}),
    "SGD": (th.optim.SGD, {"momentum": 0.9}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_parameters", [1, 2])
def test_equals_torchs_own_step(kind, n_parameters):
    make, settings = KINDS[kind]
    ours, theirs = ([th.nn.Parameter(th.arange(5.0)) for _ in range(n_parameters)] for _ in range(2))
    own, torchs = (make(parameters, lr=0.1, **settings) for parameters in (ours, theirs))
    for i in range(4):
        for parameter in (*ours, *theirs):
            parameter.grad = th.linspace(-1, 2, 5) * (i + 1)
        own.param_groups[0]["lr"] = torchs.param_groups[0]["lr"] = 0.1 / (i + 1)
        step(own)
        torchs.step()
    for a, b in zip(ours, theirs, strict=True):
        assert th.equal(a, b)
    th.testing.assert_close(own.state_dict(), torchs.state_dict(), rtol=0, atol=0)


def test_hooks_are_called_and_a_parameter_without_gradient_stays():
    parameter = th.nn.Parameter(th.ones(3))
    optimizer = th.optim.Adam([parameter], fused=True)
    parameter.grad = th.ones(3)
    step(optimizer)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    step(optimizer)
    assert calls == [1]
    before, parameter.grad = parameter.detach().clone(), None
    step(optimizer)
    assert th.equal(parameter, before)


def subnormal(tensor):
    return ((tensor != 0) & (tensor.abs() < th.finfo(tensor.dtype).tiny)).any()


def test_subnormal_averages_become_zero_and_no_weight_notices():
    ours, theirs = (th.nn.Parameter(th.linspace(0.1, 1, 8)) for _ in range(2))
    own, torchs = (th.optim.Adam([each], fused=True) for each in (ours, theirs))
    for i in range(1200):
        for each in (ours, theirs):
            each.grad = th.where(th.arange(8) < 4, float(i == 0), th.arange(8.0) - i % 7)  # half of them once alone
        step(own)
        torchs.step()
    assert th.equal(ours, theirs)
    assert subnormal(torchs.state[theirs]["exp_avg"])
    assert not subnormal(own.state[ours]["exp_avg"])


@pytest.mark.parametrize("flushed", [False, True])
def test_how_the_thread_takes_subnormal_numbers_stays_as_it_was(flushed):
    parameter = th.nn.Parameter(th.ones(3))
    parameter.grad, smallest = th.ones(3), th.tensor(1e-40)
    try:
        th.set_flush_denormal(flushed)
        step(th.optim.Adam([parameter], fused=True))
        assert (smallest * 1 == 0) == flushed
    finally:
        th.set_flush_denormal(False)
