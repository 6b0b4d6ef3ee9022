"""Tokens per second of this package's training against the Hugging Face Trainer: same model, tokens and threads.

    python benchmarks/trainer.py [--vocabulary 16384 131072] [--objective "mlm(0.3)" clm] [--factors] [--tiny]

Every contestant is a process of its own, which trains a few steps when it is its turn and sleeps otherwise. In each
round all take a turn; what is printed is the median over rounds of the ratio within a round. The Trainer gets
DataCollatorForLanguageModeling, fused AdamW and no logging, saving or evaluation. Ours is `antiphon.train.loop.train`
on a `Learner`, with rows read from shards and masks drawn by the objective in every step; documents in a row do not
see each other, which the Trainer does not offer. `lean` is the same arithmetic in a bare loop over tensors made before.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONTESTANTS = {
    "trainer fp32": "Trainer, its default: float32, eager",
    "trainer bf16": "Trainer, bf16=True",
    "trainer bf16 compile": "Trainer, bf16=True, torch_compile=True",
    "ours fp32": "ours, float32, eager",
    "ours bf16": "ours, bfloat16, eager",
    "ours": "ours, bfloat16, compiled, keeping freed memory",
    "lean": "bare loop, the same arithmetic",
}
FACTORS = {
    "without memory": "ours, without keeping freed memory",
    "without compile": "ours, not compiled",
    "without kernel": "ours, attention by SDPA with a mask",
    "without last layer": "ours, with all places in the last layer",
    "without masked logits": "ours, with logits for all places (and all of the last layer)",
    "without bf16": "ours, in float32",
}
"""Ours, less one thing each."""


@dataclasses.dataclass(frozen=True)
class Case:
    """What is trained: V, rows, row length, shape, objective in notation."""

    vocabulary: int
    rows: int
    length: int
    objective: str
    threads: int
    cpu_time: bool
    tiny: bool

    @property
    def shape(self) -> dict[str, int]:
        if self.tiny:
            return {"layers": 2, "width": 32, "heads": 4, "ffn": 48}
        return {"layers": 6, "width": 256, "heads": 4, "ffn": 688}

    @property
    def steps(self) -> int:
        """Steps in one turn."""
        return 1 if self.tiny else 2


class Turns:
    """Called after every step: warms up, then reports the seconds of a turn and waits for the next."""

    def __init__(self, warmup: int, steps: int, cpu_time: bool) -> None:
        self.left, self.steps = warmup, steps
        self.clock = time.process_time if cpu_time else time.perf_counter
        self.began = self.clock()

    def __call__(self, *unused: object) -> None:
        self.left -= 1
        if self.left:
            return
        print(f"TURN {self.clock() - self.began}", flush=True)
        if not sys.stdin.readline().strip():
            # At once: nothing here is worth closing.
            os._exit(0)
        self.left, self.began = self.steps, self.clock()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[16384, 131072])
    parser.add_argument("--objective", nargs="+", default=["mlm(0.3)", "clm"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--factors", action="store_true", help="ours against ours less one thing each")
    parser.add_argument("--cpu-time", action="store_true", help="of a machine with other work; with one thread only")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes, to see that it works")
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    choice = parser.parse_args()
    if choice.tiny:
        choice.vocabulary, choice.rounds, choice.rows, choice.length = [512], 2, 2, 32
        choice.only = [
            name for name in choice.only if "trainer bf16 compile" not in name and name not in ("ours", "lean")
        ]
    cases = [
        Case(vocabulary, choice.rows, choice.length, objective, choice.threads, choice.cpu_time, choice.tiny)
        for vocabulary in choice.vocabulary
        for objective in choice.objective
    ]
    if choice.contestant:
        work(choice.contestant, cases[0])
        return
    for case in cases:
        compare(case, ["ours", *FACTORS] if choice.factors else choice.only, choice.rounds)


def compare(case: Case, names: list[str], rounds: int) -> None:
    import torch
    import transformers

    print(
        f"\n{case.objective}, vocabulary {case.vocabulary}, batch {case.rows} x {case.length}, {case.shape}, tied, "
        f"{case.threads} threads; torch {torch.__version__}, transformers {transformers.__version__}, "
        f"Python {platform.python_version()}",
        flush=True,
    )
    with contextlib.ExitStack() as stack:
        workers = {}
        for name in names:
            # One after the other: compiling and warming up are not to disturb each other.
            workers[name] = stack.enter_context(started(name, case))
            print(f"  {name}: first {warmup(name)} steps {turn(workers[name]):.1f} s", flush=True)
        times: dict[str, list[float]] = {name: [] for name in names}
        for number in range(rounds):
            # Every other round backwards: a host that slows down is not to favour the first.
            for name in names if number % 2 == 0 else names[::-1]:
                print("go", file=workers[name].stdin, flush=True)
                times[name].append(turn(workers[name]))
    tokens = case.rows * case.length * case.steps
    references = [name for name in names if name.startswith("trainer")] or ["ours"]
    print("| | tokens/s |" + "".join(f" x {name} |" for name in references))
    print("|---|---|" + "---|" * len(references))
    for name in names:
        ratios = [
            statistics.median(one / other for one, other in zip(times[reference], times[name], strict=True))
            for reference in references
        ]
        cells = "".join(f" {ratio:.2f} |" for ratio in ratios)
        print(
            f"| {(CONTESTANTS | FACTORS)[name]} | {tokens / statistics.median(times[name]):,.0f} |{cells}", flush=True
        )
    if "ours" in times and "lean" in times:
        house = statistics.median(lean / ours for lean, ours in zip(times["lean"], times["ours"], strict=True))
        print(f"ours is {house:.3f} x the bare loop")


def warmup(name: str) -> int:
    return 2 if name in ("trainer fp32", "trainer bf16", "ours fp32", "ours bf16", "without compile") else 3


@contextlib.contextmanager
def started(name: str, case: Case):
    command = [
        sys.executable, __file__, "--contestant", name, "--vocabulary", str(case.vocabulary), "--objective",
        case.objective, "--threads", str(case.threads), "--rows", str(case.rows), "--length", str(case.length),
    ]  # fmt: skip
    process = subprocess.Popen(
        command + ["--tiny"] * case.tiny + ["--cpu-time"] * case.cpu_time,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def turn(process: subprocess.Popen[str]) -> float:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("TURN "):
            return float(line.split()[1])
    raise SystemExit("a contestant ended early; its error is above")


def work(name: str, case: Case) -> None:
    import torch

    torch.set_num_threads(case.threads)
    turns = Turns(warmup(name), case.steps, case.cpu_time)
    with tempfile.TemporaryDirectory() as folder:
        if name.startswith("trainer"):
            theirs(name, case, turns, Path(folder))
        else:
            ours(name, case, turns, Path(folder))


def documents(case: Case):
    """Documents of 20 to 600 tokens, with frequent and rare ones; id 0 is padding, 3 the mask."""
    import numpy as np

    from antiphon.draws import generator

    draws = generator(0, "benchmark")
    ranks = np.arange(1, case.vocabulary - 3)
    chances = np.cumsum(1 / ranks) / np.sum(1 / ranks)
    for _ in range(200 if case.tiny else 3000):
        length = int(draws.integers(20, 600))
        yield np.searchsorted(chances, draws.random(length)) + 4


def theirs(name: str, case: Case, turns: Turns, folder: Path) -> None:
    import numpy as np
    import transformers
    from tokenizers import Tokenizer, models

    values = {
        "vocab_size": case.vocabulary, "hidden_size": case.shape["width"], "intermediate_size": case.shape["ffn"],
        "num_hidden_layers": case.shape["layers"], "num_attention_heads": case.shape["heads"],
        "num_key_value_heads": case.shape["heads"], "max_position_embeddings": 2048, "tie_word_embeddings": True,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    masked = case.objective != "clm"
    if masked:
        model = transformers.EuroBertForMaskedLM(transformers.EuroBertConfig(**values, mask_token_id=3))
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**values, use_cache=False))
    words = {f"w{number}": number for number in range(case.vocabulary)}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w1")), pad_token="w0", mask_token="w3"
    )
    stream = np.concatenate(list(documents(case)))
    rows = stream[: len(stream) // case.length * case.length].reshape(-1, case.length)

    class Told(transformers.TrainerCallback):
        def on_step_end(self, *unused: object, **also_unused: object) -> None:
            turns()

    settings = transformers.TrainingArguments(
        output_dir=str(folder), use_cpu=True, max_steps=10_000, per_device_train_batch_size=case.rows,
        optim="adamw_torch_fused", bf16="bf16" in name, torch_compile="compile" in name, logging_strategy="no",
        save_strategy="no", report_to="none", disable_tqdm=True, learning_rate=1e-3,
    )  # fmt: skip
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=masked, mlm_probability=0.3)
    data = [{"input_ids": row.tolist()} for row in rows]
    transformers.Trainer(model, settings, collator, train_dataset=data, callbacks=[Told()]).train()


def ours(name: str, case: Case, turns: Turns, folder: Path) -> None:
    import torch
    from made import stored

    from antiphon.data.batches import Batches
    from antiphon.data.layout import Contiguous, Source
    from antiphon.model import build
    from antiphon.model.attention import Attention, Kernel, choose_kernel
    from antiphon.model.compiled import compile_learner
    from antiphon.model.cross_entropy import linear_cross_entropy
    from antiphon.model.loss import Learner, Loss
    from antiphon.model.presets import Model
    from antiphon.pretrain.objective import LMBatch, Vocabulary
    from antiphon.pretrain.schedule import Schedule
    from antiphon.train.loop import train
    from antiphon.train.memory import keep_freed_memory
    from antiphon.train.optimizer import adamw
    from antiphon.train.parallel import autocast

    shards = stored([list(documents(case))], case.vocabulary, folder / "shards")
    batches = Batches((Source(Contiguous(shards, case.length)),), case.length, 0, 0)
    objective = Schedule.parse(case.objective).phases[0].objective.at(0.0)
    vocabulary = Vocabulary(case.vocabulary, 3, (0, 1, 2, 3))
    device, precision = torch.device("cpu"), torch.float32 if name in ("ours fp32", "without bf16") else torch.bfloat16
    learner = Learner(build.build(Model(**case.shape), case.vocabulary, 0))
    kernel = Kernel.SDPA if name == "without kernel" else choose_kernel(device, precision, case.length)
    build.use_kernel(learner.network, kernel)
    if name not in ("ours fp32", "ours bf16", "without memory"):
        keep_freed_memory()
    if name not in ("ours fp32", "ours bf16", "without compile"):
        compile_learner(learner)
    optimizer = adamw(learner, weight_decay=0.01, betas=(0.9, 0.999), epsilon=1e-8)

    def micro_batches(step: int) -> list[LMBatch]:
        return objective(batches.take(step * case.rows * case.length, case.rows, case.length), vocabulary, 0, step)

    def tensors(micro: LMBatch) -> list[torch.Tensor]:
        return [torch.from_numpy(part) for part in (micro.inputs, micro.labels, micro.documents, micro.positions)]

    def loss(model: torch.nn.Module, micro: LMBatch) -> Loss:
        with autocast(device, precision):
            if name in ("without last layer", "without masked logits"):
                return Loss(whole(*tensors(micro), Attention(micro.attention)), micro.count)
            return Loss(model(*tensors(micro), Attention(micro.attention)), micro.count)

    def whole(
        inputs: torch.Tensor, labels: torch.Tensor, numbers: torch.Tensor, places: torch.Tensor, attention: Attention
    ) -> torch.Tensor:
        hidden = build.encode(learner.network, inputs, numbers, places, attention).flatten(0, 1)
        answers = labels.flatten()
        if name == "without masked logits":
            answers = torch.where(answers < 0, inputs.flatten(), answers)
        asked = (answers >= 0).nonzero().squeeze(1)
        return linear_cross_entropy(
            hidden[asked], build.output_matrix(learner.network), answers[asked], 0.0, learner.softmax
        )

    if name == "lean":
        ready = [
            (tensors(micro), Attention(micro.attention), micro.count)
            for step in range(20)
            for micro in micro_batches(step)
        ]
        for group in optimizer.param_groups:
            group["lr"] = 1e-3
        parameters = list(learner.parameters())
        while True:
            for made, attention, count in ready:
                with autocast(device, precision):
                    total = learner(*made, attention)
                (total / count).backward()
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                turns()
    train(
        learner,
        optimizer,
        start=0,
        steps=10_000,
        batches=micro_batches,
        count=lambda micro: micro.count,
        loss=loss,
        learning_rate=lambda step: 1e-3,
        clip=1.0,
        actions=[(1, turns)],
    )


if __name__ == "__main__":
    main()
