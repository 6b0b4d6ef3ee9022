"""Time of a forward and backward pass by attention kernel, row length and precision: why choose_kernel chooses so.

    python benchmarks/attention.py [--threads 1] [--cpu-time]

Every line is one shape: 4,096 tokens in rows of T, the default model. The kernels take turns; what is printed are the
medians in milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from antiphon.model import build
from antiphon.model.attention import Attention, Kernel, choose_kernel
from antiphon.model.presets import Model
from antiphon.train.parallel import autocast

CPU = torch.device("cpu")
TOKENS = 4096
KERNELS = (Kernel.SDPA, Kernel.MATMUL, Kernel.DOCUMENTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true", help="of a machine with other work; with one thread only")
    choice = parser.parse_args()
    torch.set_num_threads(choice.threads)
    clock = time.process_time if choice.cpu_time else time.perf_counter
    model = build.build(Model(positions=TOKENS), 1000, 0)
    print(
        "| precision | attention | T | documents a row |"
        + "".join(f" {kernel.name} |" for kernel in KERNELS)
        + " chosen |"
    )
    print("|---|---|---|---|" + "---|" * len(KERNELS) + "---|")
    for precision in (torch.float32, torch.bfloat16):
        for attention in (Attention.CAUSAL, Attention.BIDIRECTIONAL):
            for length in (128, 256, 512, 1024, 2048):
                for number in (2, 8):
                    times = measure(model, precision, attention, length, number, choice.rounds, clock)
                    name = str(precision).removeprefix("torch.")
                    cells = "".join(f" {statistics.median(times[kernel]) * 1000:.0f} |" for kernel in KERNELS)
                    chosen = choose_kernel(CPU, precision, length).name
                    print(f"| {name} | {attention.value} | {length} | {number} |{cells} {chosen} |", flush=True)


def measure(
    model: build.LanguageModel,
    precision: torch.dtype,
    attention: Attention,
    length: int,
    number: int,
    rounds: int,
    clock: Callable[[], float],
) -> dict[Kernel, list[float]]:
    """Seconds of each round by kernel, the first round left out; the documents of a row have random lengths."""
    rows = TOKENS // length
    generator = torch.Generator().manual_seed(length)
    tokens = torch.randint(0, 1000, (rows, length), generator=generator)
    documents = torch.zeros(rows, length, dtype=torch.int64)
    for row in range(rows):
        documents[row, torch.randperm(length - 1, generator=generator)[: number - 1] + 1] = 1
    documents = documents.cumsum(1)
    positions = torch.arange(length).expand(rows, length)
    times: dict[Kernel, list[float]] = {kernel: [] for kernel in KERNELS}
    for _ in range(rounds + 1):
        for kernel in KERNELS:
            build.use_kernel(model, kernel)
            began = clock()
            with autocast(CPU, precision):
                hidden = build.encode(model, tokens, documents, positions, attention)
            hidden.float().square().mean().backward()
            model.zero_grad(set_to_none=True)
            times[kernel].append(clock() - began)
    return {kernel: found[1:] for kernel, found in times.items()}


if __name__ == "__main__":
    main()
