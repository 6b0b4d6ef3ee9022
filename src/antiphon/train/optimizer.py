"""Optimizers, from torch."""

from __future__ import annotations

import torch
from torch import nn


def adamw(
    model: nn.Module, *, weight_decay: float, betas: tuple[float, float], epsilon: float, decay_all: bool = False
) -> torch.optim.AdamW:
    """Fused AdamW; the loop sets the learning rate at every step.

    Args:
        model: its parameters that ask for gradients.
        weight_decay: decoupled, of matrices only: norms, biases and embeddings are left alone unless `decay_all`.
        betas, epsilon: as in Loshchilov and Hutter 2019 (arXiv 1711.05101).
        decay_all: decay every parameter, as the MLM-vs-CLM study's code does.
    """
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    decayed, plain = [], []
    for parameter in model.parameters():
        if parameter.requires_grad:
            matrix = parameter.ndim >= 2 and id(parameter) not in embeddings
            (decayed if matrix or decay_all else plain).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    # The default rate is never used: the loop sets it before the first step.
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=0.0, betas=betas, eps=epsilon, fused=True
    )
