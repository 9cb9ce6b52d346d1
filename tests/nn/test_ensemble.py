import copy

import pytest
import torch as th
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from acc_rl.nn.ensemble import make_ensemble


def perceptrons(n_nets, n_inputs, hidden, n_outputs, activation=nn.ReLU):
    return make_ensemble("mlp", n_nets, n_inputs, hidden, n_outputs, activation)


def layers(ensemble, flat):
    """(weight, bias) of each layer of a perceptron"""
    parts = ensemble.parts(flat)
    return list(zip(parts[::2], parts[1::2], strict=True))


def separate(ensemble, activation):
    """The same nets as torch modules of their own."""
    nets = []
    for i in range(ensemble.n_nets):
        modules = []
        for weight, bias in layers(ensemble, ensemble.theta.detach()):
            linear = nn.Linear(weight.shape[2], weight.shape[1]).double()
            linear.weight.data, linear.bias.data = weight[i].clone(), bias[i, :, 0].clone()
            modules += [linear, activation]
        nets.append(nn.Sequential(*modules[:-1]))
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
    ensemble = perceptrons(n_nets, n_inputs, hidden, n_outputs, activation).double()
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
    for layer, (weight, bias) in enumerate(layers(ensemble, ensemble.theta.grad)):
        for i, net in enumerate(nets):
            th.testing.assert_close(weight[i], net[2 * layer].weight.grad)
            th.testing.assert_close(bias[i, :, 0], net[2 * layer].bias.grad)
    if hidden:
        for ours, theirs in zip(ensemble.modules_of_layers.parameters(), shared.parameters(), strict=True):
            th.testing.assert_close(ours.grad, theirs.grad)


def test_frozen_parameters_get_no_gradient_but_inputs_do():
    ensemble = perceptrons(2, 3, [4], 1)
    for parameter in ensemble.parameters():
        parameter.requires_grad = False
    x = th.randn(5, 3, requires_grad=True)
    ensemble(x).sum().backward()
    assert x.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in ensemble.parameters())


def test_two_passes_before_one_backward():
    ensemble, x = perceptrons(2, 3, [4, 4], 1), th.randn(5, 3)
    (ensemble(x).sum() + ensemble(2 * x).sum()).backward()
    together = ensemble.theta.grad.clone()
    ensemble.zero_grad()
    ensemble(x).sum().backward()
    ensemble(2 * x).sum().backward()
    th.testing.assert_close(ensemble.theta.grad, together)


def test_initialisation_is_that_of_separate_linears():
    th.manual_seed(3)
    ensemble = perceptrons(2, 3, [4], 1)
    th.manual_seed(3)
    for i in range(2):
        first, second = nn.Linear(3, 4), nn.Linear(4, 1)
        for layer, linear in enumerate((first, second)):
            weight, bias = layers(ensemble, ensemble.theta)[layer]
            assert th.equal(weight[i], linear.weight)
            assert th.equal(bias[i, :, 0], linear.bias)


def test_nets_that_were_first_asked_in_inference_mode_still_learn():
    net = make_ensemble("mlp", 2, 3, [4], 1)
    with th.inference_mode():
        net(th.ones(5, 3))
    net(th.ones(5, 3)).sum().backward()
    with th.no_grad():
        net.theta += net.theta.grad
    assert net.theta.grad.abs().max() > 0


def test_a_wrong_input_size_is_refused():
    with pytest.raises(AssertionError):
        perceptrons(2, 3, [4], 1)(th.zeros(5, 4))


def test_the_first_nets_alone():
    ensemble = perceptrons(3, 5, [16], 1)
    x = th.randn(32, 5)
    th.testing.assert_close(ensemble(x, n_first=1), ensemble(x)[:1])


def test_frozen_nets_pass_gradients_to_their_input_alone():
    ensemble = perceptrons(2, 3, [4], 1)
    frozen, free = (th.randn(5, 3, generator=th.Generator().manual_seed(0)).requires_grad_() for _ in range(2))
    ensemble(frozen, frozen=True).sum().backward()
    assert ensemble.theta.grad is None
    ensemble(free).sum().backward()
    th.testing.assert_close(frozen.grad, free.grad)


@pytest.mark.parametrize("order", ["forward, zero, backward", "zero, forward, backward"])
@pytest.mark.parametrize("to_none", [True, False])
def test_zero_grad_in_either_order(order, to_none):
    ensemble, x = perceptrons(2, 3, [4], 1), th.randn(5, 3)
    optimizer = th.optim.SGD(ensemble.parameters(), 0.0)
    grads = []
    for _ in range(3):
        if order.startswith("zero"):
            optimizer.zero_grad(set_to_none=to_none)
        loss = ensemble(x).square().sum()
        if order.startswith("forward"):
            optimizer.zero_grad(set_to_none=to_none)
        loss.backward()
        optimizer.step()
        grads.append(ensemble.theta.grad.clone())
    assert grads[0].abs().sum() > 0
    th.testing.assert_close(grads[1:], grads[:1] * 2)


def naive(kind, parts, x, net):
    """SimBa's trunk and perceptrons with LayerNorm and BatchNorm, of one net, in torch's own functions"""
    parts = iter([part[net] for part in parts])

    def linear(h):
        return nn.functional.linear(h, next(parts), next(parts)[:, 0])

    def norm(h):
        return nn.functional.layer_norm(h, h.shape[-1:], next(parts), next(parts))

    def over_batch(h, *affine):
        return nn.functional.batch_norm(h, None, None, *affine, training=True, eps=1e-3)

    if kind == "batchnorm":
        h = over_batch(linear(over_batch(x)), next(parts), next(parts)).relu()
        return linear(over_batch(linear(h), next(parts), next(parts)).relu())
    if kind == "layernorm":
        return linear(norm(linear(norm(linear(x)).relu())).relu())
    h = linear(x)
    for _ in range(2):
        h = h + linear(linear(norm(h)).relu())
    return linear(norm(h))


@pytest.mark.parametrize("kind", ["layernorm", "batchnorm", "simba"])
def test_layers_equal_torchs_own(kind):
    ensemble = make_ensemble(kind, 3, 5, [8, 8], 2).double()
    with th.no_grad():
        ensemble.theta.add_(0.3 * th.randn_like(ensemble.theta))  # scales and offsets of their own
    x, x_alone = (th.randn(7, 5, generator=th.Generator().manual_seed(0)).double().requires_grad_() for _ in range(2))
    leaf = ensemble.theta.detach().clone().requires_grad_()
    expected = th.stack([naive(kind, ensemble.parts(leaf), x_alone, net) for net in range(3)])
    out = ensemble(x)
    th.testing.assert_close(out, expected)
    factor = th.linspace(-1, 2, out.numel()).double().view_as(out)
    (out * factor).sum().backward()
    (expected * factor).sum().backward()
    th.testing.assert_close(x.grad, x_alone.grad)
    th.testing.assert_close(ensemble.theta.grad, leaf.grad)


@pytest.mark.parametrize("kind", ["mlp", "layernorm", "batchnorm", "simba"])
def test_the_parameters_of_an_activation_are_learned(kind):
    ensemble = make_ensemble(kind, 2, 3, [4, 4], 1, nn.PReLU)
    ensemble(th.randn(8, 3)).sum().backward()
    slopes = [parameter for parameter in ensemble.parameters() if parameter is not ensemble.theta]
    assert slopes
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in slopes)


def test_batch_norm_learns_with_the_batchs_statistics_and_acts_with_running_ones():
    ensemble, x = make_ensemble("batchnorm", 2, 3, [4], 1), 5 + 2 * th.randn(500, 3)
    one, two = nn.BatchNorm1d(3, eps=1e-3, momentum=0.01, affine=False), nn.BatchNorm1d(8, eps=1e-3, momentum=0.01)
    weight, bias = ensemble.parts(ensemble.theta.detach())[:2]

    def hidden(train):
        one.train(train), two.train(train)
        h = one(x) @ weight.flatten(0, 1).t() + bias.flatten()
        return two(h)

    for _ in range(3):
        ensemble(x)
        hidden(True)
    statistics = {name: value for name, value in ensemble.state_dict().items() if name != "theta"}
    expected = [one.running_mean, one.running_var, two.running_mean, two.running_var]
    th.testing.assert_close(list(statistics.values()), expected)

    before = {name: value.clone() for name, value in statistics.items()}
    last_weight, last_bias = ensemble.parts(ensemble.theta.detach())[-2:]
    h = hidden(False).relu().view(500, 2, 4).permute(1, 2, 0)
    acting = (last_weight @ h + last_bias).transpose(1, 2).detach()
    th.testing.assert_close(ensemble(x, frozen=True), acting)
    with th.no_grad():
        th.testing.assert_close(ensemble(x), acting)
        th.testing.assert_close(ensemble(x[:1]), acting[:, :1])
    th.testing.assert_close(ensemble.eval()(x).detach(), acting)
    th.testing.assert_close(statistics, before)


def test_nets_of_ones_own():
    ensemble = make_ensemble(lambda i, hidden, o: nn.Linear(i, o), 2, 3, [], 4)
    x = th.randn(5, 3, requires_grad=True)
    th.testing.assert_close(ensemble(x)[1], ensemble.nets[1](x))
    ensemble(x, frozen=True).sum().backward()
    assert x.grad.abs().sum() > 0
    assert all(p.grad is None and p.requires_grad for p in ensemble.parameters())


def test_wrong_kinds_of_nets():
    with pytest.raises(ValueError, match=r"nets is 'simbaa'.* did you mean simba"):
        make_ensemble("simbaa", 1, 3, [4], 1)
    with pytest.raises(ValueError, match=r"net_arch is \[4, 8\]"):
        make_ensemble("simba", 1, 3, [4, 8], 1)


def test_parameters_that_have_moved_are_followed():
    ensemble = perceptrons(2, 3, [4], 1)
    x = th.randn(5, 3)
    with th.no_grad():
        ensemble(x)  # views of the old place
        ensemble.theta.data = th.zeros_like(ensemble.theta)
        assert not ensemble(x).any()
    twin = copy.deepcopy(ensemble)
    with th.no_grad():
        ensemble.theta.fill_(1.0)
        assert not twin(x).any()
