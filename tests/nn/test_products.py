"""Products of many nets, by BLAS and by oneDNN"""

from itertools import pairwise

import pytest
import torch

from acc_rl.nn import products as module
from acc_rl.nn.products import add_products, perceptron, product, products

onednn = pytest.mark.skipif(not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch without oneDNN")
LAYOUTS = ("rows", "columns", "gaps", "columns with gaps")


def matrices(n: int, rows: int, columns: int, layout: str) -> torch.Tensor:
    if layout == "rows":
        return torch.randn(n, rows, columns)
    if layout == "columns":
        return torch.randn(n, columns, rows).transpose(1, 2)
    if layout == "gaps":
        return torch.randn(n, rows, 2 * columns)[..., :columns]
    return torch.randn(n, columns, 2 * rows)[..., :rows].transpose(1, 2)


@pytest.fixture
def calls(monkeypatch):
    """Products by oneDNN, whatever the CPU, and how many there were"""
    made, plain = [], module._onednn
    monkeypatch.setattr(module, "slow_blas", lambda: True)
    monkeypatch.setattr(module, "_onednn", lambda left, right: (made.append(1), plain(left, right))[1])
    return made


@onednn
@pytest.mark.parametrize("right_layout", LAYOUTS)
@pytest.mark.parametrize("left_layout", LAYOUTS)
@pytest.mark.parametrize("n_nets", [1, 3])
def test_products_by_onednn_are_products(calls, n_nets, left_layout, right_layout):
    torch.manual_seed(0)
    left, right = matrices(n_nets, 96, 130, left_layout), matrices(n_nets, 130, 256, right_layout)
    bias, before = torch.randn(n_nets, 96, 1), torch.randn(n_nets, 96, 256)
    exact = torch.bmm(left.double(), right.double())

    def same(out, expected):
        torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-4)

    same(products(left, right), exact)
    same(products(left, right, bias), exact + bias)
    same(product(left[0], right[0], bias[0]), (exact + bias)[0])
    out = before.clone()
    add_products(out, left, right)
    same(out, exact + before)
    assert len(calls) == 3 * n_nets + 1


@onednn
@pytest.mark.parametrize("shared", [True, False])
def test_a_perceptron_by_onednn_learns_as_by_blas(calls, monkeypatch, shared):
    torch.manual_seed(1)
    sizes, n_nets = (40, 128, 128, 30), 2
    x = torch.randn(sizes[0], 256) if shared else torch.randn(n_nets, sizes[0], 256)
    weights = [torch.randn(n_nets, b, a) / a**0.5 for a, b in pairwise(sizes)]
    biases = [torch.randn(n_nets, b, 1) for b in sizes[1:]]
    slope = torch.randn(n_nets, sizes[-1], 256)

    def passes():
        parameters = [each.clone().requires_grad_() for pair in zip(weights, biases, strict=True) for each in pair]
        for each in parameters:
            each.grad = torch.zeros_like(each)
        inputs = x.clone().requires_grad_()
        out = perceptron(inputs, parameters)
        out.backward(slope)
        return [out.detach(), inputs.grad, *(each.grad for each in parameters)]

    by_onednn = passes()
    made = len(calls)
    monkeypatch.setattr(module, "slow_blas", lambda: False)
    for mine, other in zip(by_onednn, passes(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-3)
    assert made == len(calls) > 0


@onednn
def test_small_products_doubles_and_other_devices_are_left_to_torch(calls):
    products(torch.randn(2, 8, 8), torch.randn(2, 8, 8))
    products(torch.randn(2, 128, 128, dtype=torch.double), torch.randn(2, 128, 256, dtype=torch.double))
    assert products(torch.empty(2, 128, 128, device="meta"), torch.empty(2, 128, 256, device="meta")).is_meta
    assert calls == []


@pytest.mark.parametrize(
    ("capability", "vendor", "family", "expected"),
    [
        ("AVX512", "AuthenticAMD", 26, True),
        ("AVX512", "AuthenticAMD", 25, False),  # Zen 4: two halves
        ("AVX512", "GenuineIntel", 26, False),
        ("AVX2", "AuthenticAMD", 26, False),
    ],
)
@onednn
def test_onednn_is_taken_on_amd_with_wide_avx512_alone(monkeypatch, capability, vendor, family, expected):
    about = f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 17\n"
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(module.Path, "read_text", lambda *_: about)
    monkeypatch.setattr(module, "cpu_family", module.cpu_family.__wrapped__)
    assert module.slow_blas.__wrapped__() is expected
