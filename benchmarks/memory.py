"""Peak memory of one training step by row length and vocabulary: grows with their sum, not with their product.

    python benchmarks/memory.py [--tiny]

Every cell is a process of its own: the peak of its resident memory in a forward and backward pass of CLM on one row,
above what it was before, weights and libraries included. `ours` is a Learner; `plain` is the same network with logits
for every place and torch's cross-entropy. Rows hold four documents.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="one small cell, to see that it works")
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    choice = parser.parse_args()
    if choice.cell:
        way, length, vocabulary = choice.cell
        print(peak(way, int(length), int(vocabulary)))
        return
    lengths = [64] if choice.tiny else [512, 1024, 2048, 4096]
    vocabularies = [1000] if choice.tiny else [8192, 32768, 131072]
    print("MiB, ours / plain\n\n| row length |" + "".join(f" V = {size:,} |" for size in vocabularies))
    print("|---|" + "---|" * len(vocabularies))
    for length in lengths:
        cells = []
        for vocabulary in vocabularies:
            ours, plain = (
                float(
                    subprocess.run(
                        [sys.executable, __file__, "--cell", way, str(length), str(vocabulary)],
                        stdout=subprocess.PIPE, text=True, check=True,
                    ).stdout
                )
                for way in ("ours", "plain")
            )  # fmt: skip
            cells.append(f" {ours:,.0f} / {plain:,.0f} |")
        print(f"| {length:,} |" + "".join(cells), flush=True)


def peak(way: str, length: int, vocabulary: int) -> float:
    """MiB above the resident memory before the step."""
    import torch
    import torch.nn.functional as functional

    from antiphon.model import build
    from antiphon.model.attention import Attention, choose_kernel
    from antiphon.model.loss import Learner
    from antiphon.model.presets import Model

    torch.set_num_threads(1)
    network = build.build(Model(layers=4, width=128, heads=4, ffn=384, positions=8192), vocabulary, 0)
    build.use_kernel(network, choose_kernel(torch.device("cpu"), torch.float32, length))
    inputs = torch.randint(0, vocabulary, (1, length))
    labels = inputs.roll(-1, 1)
    documents = (torch.arange(length) // (length // 4))[None]
    positions = (torch.arange(length) % (length // 4))[None]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if way == "ours":
        total = Learner(network)(inputs, labels, documents, positions, Attention.CAUSAL)
    else:
        build.use_kernel(network, build.Kernel.SDPA)
        hidden = build.encode(network, inputs, documents, positions, Attention.CAUSAL)
        total = functional.cross_entropy(build.logits(network, hidden)[0].float(), labels[0], reduction="sum")
    total.backward()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


if __name__ == "__main__":
    main()
