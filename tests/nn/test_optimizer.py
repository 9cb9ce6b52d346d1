import pytest
import torch as th

from acc_rl.nn.optimizer import step

KINDS = {
    "plain": (th.optim.Adam, {"fused": True}),
    "weight decay": (th.optim.Adam, {"fused": True, "weight_decay": 0.1, "betas": (0.5, 0.9), "eps": 1e-3}),
    "maximize": (th.optim.Adam, {"fused": True, "maximize": True}),
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
