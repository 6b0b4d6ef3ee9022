"""The state of a training: network, optimizer and average of the weights, from a checkpoint and to one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from antiphon.machine import Machine
from antiphon.model import build
from antiphon.model.attention import choose_kernel
from antiphon.model.compiled import compile_learner
from antiphon.model.loss import Learner
from antiphon.pretrain.config import Pretrain
from antiphon.train import checkpoint, optimizer, parallel
from antiphon.train.average import Average
from antiphon.train.optimizer import Together
from antiphon.train.parallel import Parallel


@dataclasses.dataclass
class State:
    """What training changes.

    Attributes:
        run: its settings.
        device, precision: where and in what it computes.
        ranks: this process among others.
        network: the network; its parameters are shards when several processes divide them.
        alone: network and loss, as this process would call them if it were the only one.
        learner: network and loss as they are called: for several processes, what keeps them in step.
        optimizer: over the network's parameters.
        average: of the weights, when asked for.
        bad: how many of the newest steps were not finite.
    """

    run: Pretrain
    device: torch.device
    precision: torch.dtype
    ranks: Parallel
    network: build.LanguageModel
    alone: Learner
    learner: nn.Module
    optimizer: Together
    average: Average | None
    bad: int

    @classmethod
    def open(cls, run: Pretrain, vocabulary: int, machine: Machine, ranks: Parallel, origin: Path | None) -> State:
        """Fresh, or as it was saved, by however many processes.

        Args:
            run: what is trained.
            vocabulary: V.
            machine: where.
            ranks: this process among others.
            origin: a checkpoint; None begins with fresh weights.
        """
        device = parallel.device(machine)
        saved: dict[str, Any] = {}
        begun: dict[str, Tensor] | None = None
        bad = 0
        if origin is None:
            network = build.build(run.model, vocabulary, run.seed)
        else:
            network = build.load(origin)
            saved = checkpoint.read_training(origin)
            bad = saved["bad_steps"]
        if run.optimizer.ema and saved:
            # The file in Hugging Face form holds the average; training goes on from the weights themselves.
            begun = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
            with torch.no_grad():
                for name, parameter in network.named_parameters():
                    parameter.copy_(saved["weights"][name])
        network.to(device)  # pyright: ignore[reportCallIssue, reportArgumentType]
        if machine.activation_checkpointing:
            build.checkpoint_activations(network)
        alone = Learner(network, run.optimizer.z_loss)
        if parallel.compiles(machine):
            compile_learner(alone)
        learner = parallel.divided(alone, build.layers(network), machine, ranks)
        average = Average(network, run.optimizer.ema, begun) if run.optimizer.ema else None
        precision = parallel.precision(machine)
        state = cls(run, device, precision, ranks, network, alone, learner, fresh_optimizer(run, network), average, bad)
        state.use_kernel_for(run.batch.block)
        if saved:
            checkpoint.restore_optimizer(saved["optimizer"], state.optimizer, network)
        return state

    def use_kernel_for(self, length: int) -> None:
        """Compute attention with the kernel that is best for rows of this length."""
        kernel = choose_kernel(self.device, self.precision, length)
        if kernel is not build.kernel(self.network):
            build.use_kernel(self.network, kernel)

    def restart_optimizer(self) -> None:
        """Forget the moments."""
        self.optimizer = fresh_optimizer(self.run, self.network)

    def writer(self) -> tuple[Callable[[Path], None], dict[str, Any]]:
        """A copy of the state, for `checkpoint.save`: what writes the model, and what goes to `state.pt`.

        All ranks call this together; only the first one's copy is of use.
        """
        keep = self.ranks.rank == 0
        weights = self._copied(dict(self.network.named_parameters()), keep)
        training: dict[str, Any] = {
            "optimizer": checkpoint.optimizer_state(self.optimizer, self.network, keep),
            "bad_steps": self.bad,
        }
        if self.average is not None:
            training["weights"] = weights
            weights = self._copied(self.average.tensors, keep)
        return lambda folder: build.save(self.network, folder, weights), training

    def _copied(self, tensors: dict[str, Any], keep: bool) -> dict[str, Tensor]:
        return {name: checkpoint.copied(tensor, keep) for name, tensor in tensors.items()}


def fresh_optimizer(run: Pretrain, network: build.LanguageModel) -> Together:
    """The optimizer a run begins with."""
    settings = run.optimizer
    return optimizer.make(
        optimizer.Kind(settings.name),
        network,
        weight_decay=settings.weight_decay,
        betas=settings.betas,
        epsilon=settings.epsilon,
        decay_all=settings.decay_all,
        outer=build.outer(network),
    )
