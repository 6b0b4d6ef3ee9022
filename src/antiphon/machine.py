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
        micro_batch_rows: rows a device computes at once; 0 means the whole batch.
        trackers: where the reports of pretraining go besides their JSON lines; each needs its library.
        save_seconds: a running job saves its state this often, so that a crash costs at most that much.
    """

    workers: int = Field(default=0, ge=0)
    threads: int = Field(default=1, ge=1)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    micro_batch_rows: int = Field(default=0, ge=0)
    trackers: tuple[TrackerName, ...] = ()
    save_seconds: float = Field(default=20.0, gt=0)
