"""Machine: where and how to compute. It never enters a fingerprint; only what is computed identifies a run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from antiphon.config import Config

TrackerName = Literal["tensorboard", "trackio", "wandb"]


class Machine(Config):
    """The part of the settings that may change the speed and the last bit of a result, but not its meaning.

    Attributes:
        workers: jobs at once; 0 takes the number of cores this process may use.
        threads: threads in each job. On CPU one thread a worker uses the cores best.
        precision: arithmetic of the forward pass; "auto" asks the processor (see train.parallel.precision).
        device: "auto" takes CUDA when there is one.
        micro_batch_tokens: tokens a process computes at once, in whole rows and at least one; 0 means its whole batch.
        activation_checkpointing: keep only the inputs of each layer for the backward pass and compute the rest again:
            less memory, about a third more time, the same gradients.
        compile: compile the layers with torch.compile; "auto" does so on CUDA, where it pays from the first minutes on.
        processes: of each pretraining job. The rows of a batch are divided among them.
        parallel: with several processes, each has a copy of the model (DDP) or a shard of it (FSDP2).
        trackers: where the reports of pretraining go besides their JSON lines; each needs its library.
        save_seconds: a running job saves its state this often, so that a crash costs at most that much.
        save_in_background: write states in a thread while training goes on, at the cost of a copy in memory.
        keep_last: how many of the newest states are kept on the way; the one before the newest is for the case that a
            machine lost its power while writing.
        keep_every: a state is saved after each so many steps and kept for good; 0 keeps none.
    """

    workers: int = Field(default=0, ge=0)
    threads: int = Field(default=1, ge=1)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    micro_batch_tokens: int = Field(default=0, ge=0)
    activation_checkpointing: bool = False
    compile: Literal["auto", "on", "off"] = "auto"
    processes: int = Field(default=1, ge=1)
    parallel: Literal["ddp", "fsdp"] = "ddp"
    trackers: tuple[TrackerName, ...] = ()
    save_seconds: float = Field(default=20.0, gt=0)
    save_in_background: bool = True
    keep_last: int = Field(default=2, ge=1)
    keep_every: int = Field(default=0, ge=0)

    def rows(self, length: int) -> int:
        """Rows of so many tokens that a process computes at once; 0 means all."""
        return max(1, self.micro_batch_tokens // max(length, 1)) if self.micro_batch_tokens else 0
