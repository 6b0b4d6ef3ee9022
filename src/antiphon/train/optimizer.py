"""Optimizers: torch's AdamW and Muon, and LAMB and StableAdamW from pytorch_optimizer. The loop sets the rate."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from antiphon.config import UserError


class Kind(enum.Enum):
    """Which rule turns gradients into an update."""

    ADAMW = "adamw"
    LAMB = "lamb"
    STABLEADAMW = "stableadamw"
    MUON = "muon"


class Stepper(Protocol):
    """What the loop needs of an optimizer."""

    @property
    def param_groups(self) -> list[dict[str, Any]]: ...
    def step(self) -> Any: ...
    def zero_grad(self, set_to_none: bool = True) -> None: ...


class Together:
    """One or more of torch's optimizers, each over its own parameters, seen as one.

    Attributes:
        parts: the optimizers.
    """

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = list(parts)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all parts."""
        return [group for part in self.parts for group in part.param_groups]

    def step(self) -> None:
        """Apply the gradients."""
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none=set_to_none)


def make(
    kind: Kind,
    model: nn.Module,
    *,
    weight_decay: float,
    betas: tuple[float, float],
    epsilon: float,
    decay_all: bool = False,
    outer: Iterable[Tensor] = (),
) -> Together:
    """An optimizer over the parameters of a model that ask for gradients; the loop sets its learning rate.

    * adamw: Loshchilov and Hutter 2019 (arXiv 1711.05101), torch's fused one.
    * stableadamw: AdamW whose rate is divided by the RMS of the update where that is over 1 (Wortsman et al. 2023,
      arXiv 2304.13013, algorithm 2).
    * lamb: You et al. 2020 (arXiv 1904.00962), algorithm 2, with the decay inside the trust ratio, weight norms cut at
      10 and no bias correction; the library's own clipping of gradients is off, since the loop clips.
    * muon: Jordan et al. 2024, momentum 0.95 (Nesterov), orthogonalised, for the hidden matrices; all else, the
      embeddings and the output matrix included, has AdamW. Its rate is scaled as in Liu et al. 2025 (arXiv
      2502.16982), section 2.2, so that learning rate and weight decay are AdamW's.

    Args:
        kind: which.
        model: its parameters.
        weight_decay: decoupled, of matrices only: norms, biases and embeddings are left alone unless `decay_all`.
        betas: decay of the two moments; muon's matrices have none of them.
        epsilon: added to the root of the second moment.
        decay_all: decay every parameter.
        outer: weights between tokens and hidden states (embeddings and output), which are not hidden matrices.

    Raises:
        UserError: the library that has this optimizer is not installed, or the optimizer cannot work on shards.
    """
    decayed, plain = _divided(model, decay_all)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    # The default rate is never used: the loop sets it before the first step.
    if kind is Kind.ADAMW:
        return Together([torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=epsilon, fused=True)])
    if kind is Kind.MUON:
        return _muon(model, groups, betas, epsilon, outer)
    if any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        raise UserError(
            f"optimizer.name is '{kind.value}', which needs norms of whole weights and cannot work on shards of them. "
            "Set machine.parallel to 'ddp', or choose 'adamw' or 'muon'."
        )
    try:
        from pytorch_optimizer import Lamb, StableAdamW
    except ImportError:
        raise UserError(
            f"optimizer.name is '{kind.value}', which comes from the package pytorch_optimizer, and that is not "
            "installed. Install it with: pip install 'antiphon[optimizers]', or choose 'adamw' or 'muon'."
        ) from None
    # One parameter at a time: batched updates mix sharded norms up.
    if kind is Kind.STABLEADAMW:
        return Together([StableAdamW(groups, lr=0.0, betas=betas, eps=epsilon, kahan_sum=False, foreach=False)])
    # adam_debias leaves the rate as it is set; without it the first step would be made with rate / (1 - beta1).
    lamb = Lamb(
        groups, lr=0.0, betas=betas, eps=epsilon, weight_decouple=False, pre_norm=False, adam_debias=True, foreach=False
    )
    return Together([lamb])


def adamw(
    model: nn.Module, *, weight_decay: float, betas: tuple[float, float], epsilon: float, decay_all: bool = False
) -> Together:
    """Fused AdamW; arguments as in `make`."""
    return make(Kind.ADAMW, model, weight_decay=weight_decay, betas=betas, epsilon=epsilon, decay_all=decay_all)


def _divided(model: nn.Module, decay_all: bool) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The parameters that decay, and those that do not."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    decayed, plain = [], []
    for parameter in model.parameters():
        if parameter.requires_grad:
            matrix = parameter.ndim >= 2 and id(parameter) not in embeddings
            (decayed if matrix or decay_all else plain).append(parameter)
    return decayed, plain


def _muon(
    model: nn.Module,
    groups: list[dict[str, Any]],
    betas: tuple[float, float],
    epsilon: float,
    outer: Iterable[Tensor],
) -> Together:
    outside = {id(weight) for weight in outer}
    outside |= {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}

    def chosen(hidden: bool) -> list[dict[str, Any]]:
        kept = [
            {
                **group,
                "params": [
                    parameter
                    for parameter in group["params"]
                    if (parameter.ndim == 2 and id(parameter) not in outside) == hidden
                ],
            }
            for group in groups
        ]
        return [group for group in kept if group["params"]]

    parts: list[torch.optim.Optimizer] = []
    if matrices := chosen(hidden=True):
        parts.append(torch.optim.Muon(matrices, lr=0.0, adjust_lr_fn="match_rms_adamw"))
    if rest := chosen(hidden=False):
        parts.append(torch.optim.AdamW(rest, lr=0.0, betas=betas, eps=epsilon, fused=True))
    return Together(parts)
