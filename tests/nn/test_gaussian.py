import math

import pytest
import torch as th
from stable_baselines3.common.distributions import SquashedDiagGaussianDistribution

from acc_rl.nn.gaussian import sample


def test_by_hand():
    """Mean 0, log_std 0, noise 1: a = tanh(1), log pi = -1/2 - log(2 pi)/2 - log(1 - a^2)"""
    actions, log_prob = sample(th.zeros(1, 2, dtype=th.double), th.ones(1, 1, dtype=th.double))
    assert actions.item() == pytest.approx(math.tanh(1))
    expected = -0.5 - 0.5 * math.log(2 * math.pi) - math.log(1 - math.tanh(1) ** 2)
    assert log_prob.item() == pytest.approx(expected, abs=1e-5)


def sb3(outputs, noise):
    mean, log_std = outputs.chunk(2, dim=1)
    distribution = SquashedDiagGaussianDistribution(mean.shape[1]).proba_distribution(mean, log_std.clamp(-20, 2))
    gaussian = mean + log_std.clamp(-20, 2).exp() * noise
    return gaussian.tanh(), distribution.log_prob(gaussian.tanh(), gaussian)


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_values_and_gradients_equal_sb3s_distribution(scale):
    generator = th.Generator().manual_seed(0)
    outputs = scale * th.randn(50, 6, generator=generator, dtype=th.double)
    outputs[:5, 3:] = 3.0  # standard deviations beyond the clip
    noise, weight = th.randn(50, 3, generator=generator, dtype=th.double), th.randn(50, 3, generator=generator).double()
    leaf = outputs.clone().requires_grad_()
    actions, log_prob = sb3(leaf, noise)
    ((actions * weight).sum() + (log_prob * weight[:, 0]).sum()).backward()
    ours = outputs.clone().requires_grad_()
    our_actions, our_log_prob = sample(ours, noise)
    ((our_actions * weight).sum() + (our_log_prob * weight[:, 0]).sum()).backward()
    th.testing.assert_close((our_actions, our_log_prob, ours.grad), (actions, log_prob, leaf.grad))
    assert not ours.grad[:5, 3:].any()


def test_the_exact_form_is_the_same_where_tanh_does_not_saturate_and_has_a_gradient_where_it_does():
    outputs, noise = th.tensor([[0.3, -0.5]], dtype=th.double), th.tensor([[0.7]], dtype=th.double)
    th.testing.assert_close(sample(outputs, noise, exact=True)[1], sample(outputs, noise)[1], rtol=1e-5, atol=1e-5)
    far = th.tensor([[30.0, 0.0]], requires_grad=True)
    sample(far, th.zeros(1, 1), exact=True)[1].sum().backward()
    assert far.grad[0, 0].item() == pytest.approx(2.0)  # log pi grows by 2 per unit of u
    far.grad = None
    sample(far, th.zeros(1, 1))[1].sum().backward()
    assert far.grad[0, 0].item() == 0


def test_autograd_can_pass_through_each_output_alone():
    # not where tanh saturates: there 1 - a^2 has too few digits left for differences
    outputs, noise = (th.linspace(-1, 1, n, dtype=th.double).view(4, -1) for n in (16, 8))
    for index in (0, 1):
        th.autograd.gradcheck(
            lambda outputs, index=index: sample(outputs, noise)[index], outputs.clone().requires_grad_()
        )
