"""An average of the weights over the steps: often better than the last weights, and what is published then."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from antiphon.train.parallel import like


class Average:
    """The exponential moving average of a model's parameters.

    With weights w(t) after t steps and decay d: average(0) = w(0), average(t) = d average(t-1) + (1-d) w(t). A step
    that was not applied does not count. Where the optimizer is reset the average goes on: it follows the weights, and
    they are not reset.

    Source: Polyak and Juditsky 1992 for averaging; GPT-BERT (arXiv 2410.24159) publishes such weights.

    Attributes:
        tensors: by the names of the parameters; placed and sharded as these are.
    """

    def __init__(self, model: nn.Module, decay: float, begun: Mapping[str, Tensor] | None = None) -> None:
        """Begin at the model's weights, or go on from an average of whole tensors."""
        self._decay = decay
        self._parameters = dict(model.named_parameters())
        self.tensors = {
            name: parameter.detach().clone() if begun is None else like(begun[name], parameter.detach())
            for name, parameter in self._parameters.items()
        }

    def update(self) -> None:
        """Take the weights of one more step in."""
        own = [_local(tensor) for tensor in self.tensors.values()]
        now = [_local(parameter.detach()) for parameter in self._parameters.values()]
        torch._foreach_lerp_(own, now, 1.0 - self._decay)  # pyright: ignore[reportPrivateImportUsage]


def _local(tensor: Tensor) -> Tensor:
    """The part of a tensor that lies here."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
