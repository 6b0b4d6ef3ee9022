"""What a training state holds beside the weights, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from antiphon.train import checkpoint


def states_differ(one: Path, other: Path) -> list[str]:
    """What differs between the training states of two checkpoints."""
    first, second = (dict(_leaves(checkpoint.read_training(folder))) for folder in (one, other))
    assert first.keys() == second.keys()
    return [name for name, value in first.items() if not torch.equal(value, second[name])]


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors and numbers of a nest of dicts and lists, by their places."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            # The rate is set at every step.
            if key != "lr":
                yield from _leaves(inner, f"{name}.{key}")
    elif isinstance(value, torch.Tensor | float | int):
        yield name, torch.as_tensor(value)
