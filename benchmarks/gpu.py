"""The study's 210M and 610M networks on one device: tokens a second, MFU, memory, recompilations; and exactness.

    benchmarks/gpu.sh [--tiny]

Rows of 2,048 tokens hold pieces of 12 to 2,048 tokens, as in the MLM-vs-CLM study (arXiv 2507.00994, footnote 6). What
is timed is `antiphon.train.loop.train` on a compiled `Learner` with bfloat16 products and fused AdamW. MFU counts the
operations of `model.presets.training_flops` (attention only where a token may look) against the card's dense peak.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import gc
import io
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch._dynamo.utils import counters

from antiphon.data.batches import PADDING, TokenBatch
from antiphon.draws import generator
from antiphon.model import build
from antiphon.model.attention import Attention, Kernel, choose_kernel
from antiphon.model.compiled import check_compiled, compile_learner
from antiphon.model.loss import Learner, Loss
from antiphon.model.presets import Model, body_parameters, training_flops
from antiphon.pretrain.objective import LMBatch, Vocabulary
from antiphon.pretrain.schedule import Schedule
from antiphon.train.loop import train
from antiphon.train.optimizer import adamw
from antiphon.train.parallel import autocast
from antiphon.train.peak import peak_flops

STUDY = {
    "210M": Model(layers=12, width=768, heads=12, ffn=3072, tied=False),
    "610M": Model(layers=26, width=1152, heads=18, kv_heads=6, ffn=4096, tied=False),
}
TINY = {
    "tiny": Model(layers=2, width=64, heads=4, ffn=96, tied=False),
    "tiny, grouped": Model(layers=2, width=64, heads=4, kv_heads=2, ffn=96, tied=False),
}
OBJECTIVES = ("clm", "mlm(0.4)")


@dataclasses.dataclass(frozen=True)
class Size:
    """What is trained on: vocabulary, rows of a batch, row length, steps before and in the timing."""

    vocabulary: int
    rows: int
    length: int
    warmup: int
    steps: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="on CPU in under a minute, to see that it works")
    parser.add_argument("--rows", type=int, default=12)
    choice = parser.parse_args()
    if not choice.tiny and not torch.cuda.is_available():
        raise SystemExit("no CUDA device here; --tiny runs the same on CPU")
    device = torch.device("cpu" if choice.tiny else "cuda")
    size = Size(1000, 2, 128, 2, 2) if choice.tiny else Size(128_256, choice.rows, 2048, 4, 12)
    name = "CPU" if choice.tiny else torch.cuda.get_device_name()
    print(f"{name}; torch {torch.__version__}; {size}", flush=True)
    lines = ["| network | objective | tokens/s | MFU | peak memory | first steps | graphs, recompiled after |"]
    lines.append("|---|---|---|---|---|---|---|")
    for label, shape in (TINY if choice.tiny else STUDY).items():
        lines += speed(label, shape, size, device)
    exact = ["| check | outcome | |", "|---|---|---|"]
    exact += [f"| {what} | {'passed' if good else 'FAILED'} | {how} |" for what, good, how in checks(device)]
    print("\n" + "\n".join(lines) + "\n\n" + "\n".join(exact), flush=True)
    if any("FAILED" in line for line in exact):
        raise SystemExit(1)


def token_batch(size: Size, step: int) -> TokenBatch:
    """Rows filled with pieces of 12 to T tokens."""
    draws = generator(step, "gpu benchmark")
    tokens = draws.integers(4, size.vocabulary, (size.rows, size.length))
    documents = np.zeros((size.rows, size.length), dtype=np.int64)
    positions = np.zeros_like(documents)
    for row in range(size.rows):
        start = number = 0
        while start < size.length:
            stop = min(start + int(draws.integers(12, size.length + 1)), size.length)
            documents[row, start:stop] = number
            positions[row, start:stop] = np.arange(stop - start)
            start, number = stop, number + 1
    return TokenBatch(tokens, documents, positions)


def micro_batch(size: Size, objective: str, step: int) -> LMBatch:
    chosen = Schedule.parse(objective).phases[0].objective.at(0.0)
    (batch,) = chosen(token_batch(size, step), Vocabulary(size.vocabulary, 3, (0, 1, 2, 3)), 0, step)
    return batch


def visible(batch: LMBatch) -> float:
    """Mean number of keys a token may look at."""
    lengths = batch.positions[:, 1:] == 0
    total = 0
    for row in range(len(batch.inputs)):
        sizes = np.diff(np.concatenate([[0], np.flatnonzero(lengths[row]) + 1, [batch.inputs.shape[1]]]))
        total += int((sizes * (sizes + 1) // 2 if batch.attention == "causal" else sizes**2).sum())
    return total / batch.inputs.size


def arguments(micro: LMBatch, device: torch.device) -> list[Any]:
    parts = (micro.inputs, micro.labels, micro.documents, micro.positions)
    return [*(torch.from_numpy(part).to(device) for part in parts), Attention(micro.attention)]


def learner(shape: Model, size: Size, device: torch.device) -> Learner:
    made = Learner(build.build(shape, size.vocabulary, 0)).to(device)
    build.use_kernel(made.network, choose_kernel(device, torch.bfloat16, size.length))
    return made


def fit(
    made: Learner, optimizer: torch.optim.Optimizer, batches: Sequence[LMBatch], device: torch.device, tell: Any
) -> None:
    def loss(model: torch.nn.Module, micro: LMBatch) -> Loss:
        with autocast(device, torch.bfloat16):
            return Loss(model(*arguments(micro, device)), micro.count)

    train(
        made,
        optimizer,
        start=0,
        steps=len(batches),
        batches=lambda step: [batches[step]],
        count=lambda micro: micro.count,
        loss=loss,
        learning_rate=lambda step: 1e-4,
        clip=1.0,
        actions=[(1, tell)],
    )


def adam(made: Learner) -> torch.optim.Optimizer:
    return adamw(made, weight_decay=0.1, betas=(0.9, 0.95), epsilon=1e-5)


def synchronize(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def speed(label: str, shape: Model, size: Size, device: torch.device) -> list[str]:
    """One line of the table for each objective, on one network that alternates between them as a schedule would."""
    lines = []
    made = learner(shape, size, device)
    compile_learner(made)
    optimizer = adam(made)
    for objective in OBJECTIVES:
        torch._dynamo.utils.counters.clear()
        batches = [micro_batch(size, objective, step) for step in range(size.warmup + size.steps)]
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        began = synchronize(device)
        with autocast(device, torch.bfloat16):
            check_compiled(made, *arguments(batches[0], device))
        marks: list[tuple[float, int]] = []

        def tell(done: Any, marks: list[tuple[float, int]] = marks) -> None:
            if done.step in (size.warmup, size.warmup + size.steps):
                marks.append((synchronize(device), counters["stats"]["unique_graphs"]))

        fit(made, optimizer, batches, device, tell)
        (warm, graphs), (end, graphs_at_end) = marks
        timed = batches[size.warmup :]
        tokens = size.steps * size.rows * size.length
        asked = sum(batch.count for batch in timed)
        seen = float(np.mean([visible(batch) for batch in timed]))
        flops = training_flops(shape, size.vocabulary, tokens, asked, seen) / (end - warm)
        peak = peak_flops(device, torch.bfloat16)
        memory = f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if device.type == "cuda" else "-"
        lines.append(
            f"| {label} ({body_parameters(shape) / 1e6:.0f}M body) | {objective} | {tokens / (end - warm):,.0f} | "
            f"{f'{flops / peak:.1%}' if peak else '-'} | {memory} | {warm - began:.0f} s | "
            f"{graphs}, {graphs_at_end - graphs} |"
        )
        print(lines[-1], flush=True)
    del made, optimizer
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return lines


def checks(device: torch.device) -> list[tuple[str, bool, str]]:
    """(what, whether it holds, figures): packed rows equal documents alone, neighbours are not seen, resume goes on."""
    size = Size(1000, 4, 256, 0, 0)
    found = []
    for kv_heads in (0, 2):
        shape = Model(layers=2, width=256, heads=4, kv_heads=kv_heads, ffn=384)
        for attention in (Attention.CAUSAL, Attention.BIDIRECTIONAL, Attention.PREFIX):
            if attention is Attention.PREFIX and device.type == "cpu":
                continue
            found += packed(
                learner(shape, size, device), size, device, attention, f"{attention.value}, kv_heads {kv_heads}"
            )
    return [*found, resumed(size, device)]


def packed(
    made: Learner, size: Size, device: torch.device, attention: Attention, label: str
) -> list[tuple[str, bool, str]]:
    batch = token_batch(size, 0)
    batch.documents[-1, 100:] = PADDING
    tensors = [torch.from_numpy(part).to(device) for part in (batch.tokens, batch.documents, batch.positions)]
    opened = tensors[2] < 3 if attention is Attention.PREFIX else None
    network = made.network
    chosen = Kernel(network.config._attn_implementation)
    with torch.no_grad(), autocast(device, torch.bfloat16):
        states = build.encode(network, *tensors, attention, opened)
        other = tensors[0].clone()
        first = tensors[1] == 0
        other[first] = (other[first] + 7) % 900 + 4
        changed = build.encode(network, other, *tensors[1:], attention, opened)
    build.use_kernel(network, Kernel.SDPA)
    worst = 0.0
    with torch.no_grad():
        for row in range(size.rows):
            for number in np.unique(batch.documents[row][batch.documents[row] != PADDING]):
                places = torch.from_numpy(np.flatnonzero(batch.documents[row] == number)).to(device)
                piece = tensors[0][row, places][None]
                alone = build.encode(
                    network, piece, torch.zeros_like(piece), torch.arange(len(places), device=device)[None], attention,
                    None if opened is None else opened[row, places][None],
                )  # fmt: skip
                worst = max(worst, float((states[row, places].float() - alone[0]).abs().max() / alone.abs().max()))
    build.use_kernel(network, chosen)
    blind = torch.equal(states[~first], changed[~first])
    return [
        (f"packed equals alone, {label}, {chosen.name}", worst < 0.03, f"largest relative difference {worst:.4f}"),
        (f"neighbours are not seen, to the bit, {label}, {chosen.name}", blind, ""),
    ]


def resumed(size: Size, device: torch.device) -> tuple[str, bool, str]:
    """Six steps at once, against three, a state on disk, and three more in a new network."""
    shape = Model(layers=2, width=256, heads=4, ffn=384)
    batches = [micro_batch(size, OBJECTIVES[step % 2], step) for step in range(6)]

    def nothing(done: object) -> None:
        return None

    whole = learner(shape, size, device)
    fit(whole, adam(whole), batches, device, nothing)
    first = learner(shape, size, device)
    optimizer = adam(first)
    fit(first, optimizer, batches[:3], device, nothing)
    file = io.BytesIO()
    torch.save([first.state_dict(), copy.deepcopy(optimizer.state_dict())], file)
    file.seek(0)
    weights, state = torch.load(file, weights_only=True)
    second = learner(shape, size, device)
    second.load_state_dict(weights)
    later = adam(second)
    later.load_state_dict(state)
    fit(second, later, batches[3:], device, nothing)
    apart = max(
        float((one - other).abs().max())
        for one, other in zip(whole.state_dict().values(), second.state_dict().values(), strict=True)
    )
    # Flash attention's backward pass adds in no fixed order, so that two runs of one thing differ by a bit on CUDA.
    allowed = 0.0 if device.type == "cpu" else 1e-3
    return "stopped after 3 of 6 steps and resumed", apart <= allowed, f"largest difference of a weight {apart:.2g}"


if __name__ == "__main__":
    main()
