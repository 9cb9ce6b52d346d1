import copy

import pytest
import torch as th
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from acc_rl.nn.ensemble import Ensemble


def separate(ensemble, activation):
    """The same nets as torch modules of their own."""
    nets = []
    for i in range(ensemble.n_nets):
        layers = []
        for weight, bias in ensemble.layers(ensemble.theta.detach()):
            linear = nn.Linear(weight.shape[2], weight.shape[1]).double()
            linear.weight.data, linear.bias.data = weight[i].clone(), bias[i, :, 0].clone()
            layers += [linear, activation]
        nets.append(nn.Sequential(*layers[:-1]))
    return nets


@settings(max_examples=100)
@given(
    n_nets=st.integers(1, 5),
    n_inputs=st.integers(1, 6),
    hidden=st.lists(st.integers(1, 9), max_size=3),
    n_outputs=st.integers(1, 5),
    batch=st.integers(1, 7),
    activation=st.sampled_from([nn.ReLU, nn.Tanh, nn.ELU, nn.SiLU, nn.PReLU]),
)
def test_outputs_and_gradients_equal_separate_nets(n_nets, n_inputs, hidden, n_outputs, batch, activation):
    ensemble = Ensemble(n_nets, n_inputs, hidden, n_outputs, activation).double()
    shared = activation().double()
    nets = separate(ensemble, shared)
    x, x_alone = (
        th.linspace(-1, 1, batch * n_inputs).double().view(batch, n_inputs).requires_grad_() for _ in range(2)
    )
    out, expected = ensemble(x), th.stack([net(x_alone) for net in nets])
    assert out.shape == (n_nets, batch, n_outputs)
    th.testing.assert_close(out, expected)
    factor = th.linspace(-1, 2, out.numel()).double().view_as(out)
    (out * factor).sum().backward()
    (expected * factor).sum().backward()
    th.testing.assert_close(x.grad, x_alone.grad)
    for layer, (weight, bias) in enumerate(ensemble.layers(ensemble.theta.grad)):
        for i, net in enumerate(nets):
            th.testing.assert_close(weight[i], net[2 * layer].weight.grad)
            th.testing.assert_close(bias[i, :, 0], net[2 * layer].bias.grad)
    if hidden:
        for ours, theirs in zip(ensemble.activation.parameters(), shared.parameters(), strict=True):
            th.testing.assert_close(ours.grad, theirs.grad)


def test_frozen_parameters_get_no_gradient_but_inputs_do():
    ensemble = Ensemble(2, 3, [4], 1)
    for parameter in ensemble.parameters():
        parameter.requires_grad = False
    x = th.randn(5, 3, requires_grad=True)
    ensemble(x).sum().backward()
    assert x.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in ensemble.parameters())


def test_two_passes_before_one_backward():
    ensemble, x = Ensemble(2, 3, [4, 4], 1), th.randn(5, 3)
    (ensemble(x).sum() + ensemble(2 * x).sum()).backward()
    together = ensemble.theta.grad.clone()
    ensemble.zero_grad()
    ensemble(x).sum().backward()
    ensemble(2 * x).sum().backward()
    th.testing.assert_close(ensemble.theta.grad, together)


def test_initialisation_is_that_of_separate_linears():
    th.manual_seed(3)
    ensemble = Ensemble(2, 3, [4], 1)
    th.manual_seed(3)
    for i in range(2):
        first, second = nn.Linear(3, 4), nn.Linear(4, 1)
        for layer, linear in enumerate((first, second)):
            weight, bias = ensemble.layers(ensemble.theta)[layer]
            assert th.equal(weight[i], linear.weight)
            assert th.equal(bias[i, :, 0], linear.bias)


def test_a_net_alone_in_torchs_own_modules():
    ensemble, x = Ensemble(3, 4, [5, 6], 2, nn.Tanh), th.randn(7, 4)
    for i in range(3):
        th.testing.assert_close(ensemble.sequential(i)(x), ensemble(x)[i])


def test_a_wrong_input_size_is_refused():
    with pytest.raises(AssertionError):
        Ensemble(2, 3, [4], 1)(th.zeros(5, 4))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.PReLU])
def test_the_way_back_by_hand_is_autograds(activation):
    th.manual_seed(0)
    ensemble = Ensemble(3, 5, [16, 8], 4, activation)
    x, grad = th.randn(32, 5), th.randn(3, 32, 4)
    inputs = x.clone().requires_grad_()
    ensemble(inputs).backward(grad)
    expected = [parameter.grad.clone() for parameter in ensemble.parameters()]
    for parameter in ensemble.parameters():
        parameter.grad = th.full_like(parameter, 7.0)  # what was there is written over
    out, pullback = ensemble.vjp(x)
    th.testing.assert_close(out, ensemble(x))
    assert pullback(grad) is None
    for parameter, each in zip(ensemble.parameters(), expected, strict=True):
        th.testing.assert_close(parameter.grad, each)
    d_x = ensemble.vjp(x)[1](grad, parameters=False, inputs=slice(2, None))
    th.testing.assert_close(d_x, inputs.grad[:, 2:])


def test_the_way_back_through_the_first_nets_alone():
    th.manual_seed(0)
    ensemble = Ensemble(3, 5, [16], 1)
    x, grad = th.randn(32, 5), th.randn(1, 32, 1)
    inputs = x.clone().requires_grad_()
    ensemble(inputs)[:1].backward(grad)
    out, pullback = ensemble.vjp(x, n_first=1)
    assert out.shape == (1, 32, 1)
    th.testing.assert_close(pullback(grad, parameters=False, inputs=slice(None)), inputs.grad)


def test_parameters_that_have_moved_are_followed():
    ensemble = Ensemble(2, 3, [4], 1)
    x = th.randn(5, 3)
    with th.no_grad():
        ensemble(x)  # views of the old place
        ensemble.theta.data = th.zeros_like(ensemble.theta)
        assert not ensemble(x).any()
    assert not ensemble.vjp(x)[0].any()
    twin = copy.deepcopy(ensemble)
    with th.no_grad():
        ensemble.theta.fill_(1.0)
        assert not twin(x).any()
