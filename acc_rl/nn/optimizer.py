"""Optimizer steps without what torch does around them."""

from __future__ import annotations

import torch

PLAIN = {"amsgrad": False, "capturable": False, "differentiable": False, "fused": True}
SUBNORMAL = 5e-324
"""times one it is zero where subnormal numbers are"""


def step(optimizer: torch.optim.Optimizer) -> None:
    """``optimizer.step()`` with subnormal numbers taken as zero.

    Adam's moving averages of weights without gradients decay into them, and on Intel's CPUs a step over such numbers
    takes ten times as long. A weight never notices: beside eps they are nothing.
    """
    flushed = SUBNORMAL * 1.0 == 0.0
    torch.set_flush_denormal(True)
    try:
        _step(optimizer)
    finally:
        torch.set_flush_denormal(flushed)


@torch.no_grad()
def _step(optimizer: torch.optim.Optimizer) -> None:
    """A fused Adam with one parameter is called directly, which small nets notice"""
    group = optimizer.param_groups[0]
    parameter = group["params"][0]
    state = optimizer.state.get(parameter)
    hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    single = len(optimizer.param_groups) == len(group["params"]) == 1 and parameter.grad is not None
    plain = PLAIN.items() <= group.items() and not group.get("decoupled_weight_decay")
    if not (type(optimizer) is torch.optim.Adam and single and state and plain) or hooks:
        optimizer.step()
        return
    state["step"] += 1
    torch._fused_adam_(
        [parameter],
        [parameter.grad],
        [state["exp_avg"]],
        [state["exp_avg_sq"]],
        [],
        [state["step"]],
        lr=group["lr"],
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=False,
        maximize=group["maximize"],
    )
