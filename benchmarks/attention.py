"""Time of a forward and backward pass by attention kernel, row length and precision: why choose_kernel chooses so.

    python benchmarks/attention.py [--threads 1]

Every line is one shape: 4,096 tokens in rows of T, four documents a row, the default model. The kernels take turns,
and the ratio is that of their medians: above 1, the plain matmul form is the faster one.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from antiphon.model import build
from antiphon.model.attention import Attention, Kernel
from antiphon.model.presets import Model
from antiphon.train.parallel import autocast

TOKENS = 4096
ROUNDS = 9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args().threads)
    model = build.build(Model(positions=4096), 1000, 0)
    print(f"{'precision':10} {'attention':14} {'T':>5}  {'sdpa ms':>8} {'matmul ms':>9}  sdpa/matmul")
    for precision in (torch.float32, torch.bfloat16):
        for attention in Attention:
            for length in (64, 128, 256, 512, 1024, 2048):
                times = measure(model, precision, attention, length)
                medians = {kernel: statistics.median(found) * 1000 for kernel, found in times.items()}
                ratio = medians[Kernel.SDPA] / medians[Kernel.MATMUL]
                name = str(precision).removeprefix("torch.")
                print(
                    f"{name:10} {attention.value:14} {length:5}  {medians[Kernel.SDPA]:8.1f} "
                    f"{medians[Kernel.MATMUL]:9.1f}  {ratio:.2f}",
                    flush=True,
                )


def measure(
    model: build.LanguageModel, precision: torch.dtype, attention: Attention, length: int
) -> dict[Kernel, list[float]]:
    """Seconds of each round by kernel, the first round left out."""
    rows = TOKENS // length
    tokens = torch.randint(0, 1000, (rows, length))
    documents = (torch.arange(length) // (length // 4)).expand(rows, length)
    positions = (torch.arange(length) % (length // 4)).expand(rows, length)
    times: dict[Kernel, list[float]] = {kernel: [] for kernel in Kernel}
    for _ in range(ROUNDS + 1):
        for kernel in Kernel:
            build.use_kernel(model, kernel)
            began = time.perf_counter()
            with autocast(torch.device("cpu"), precision):
                hidden = build.encode(model, tokens, documents, positions, attention)
            hidden.float().square().mean().backward()
            model.zero_grad(set_to_none=True)
            times[kernel].append(time.perf_counter() - began)
    return {kernel: found[1:] for kernel, found in times.items()}


if __name__ == "__main__":
    main()
