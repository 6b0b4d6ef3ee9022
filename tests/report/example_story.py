"""A made-up study with plausible numbers, to try the report on."""

from __future__ import annotations

import math

from antiphon.draws import generator
from antiphon.report.story import Arm, Curve, Family, Phase, Point, Story
from antiphon.results.select import Observation
from antiphon.results.table import Score

TOKENS = 4_000_000
READINGS = {"20%": TOKENS // 5, "100%": TOKENS}
RATES = (1e-4, 3e-4, 1e-3)
FAMILIES = (
    Family("pocket-library", "classify", "Which library", "accuracy", "Which library does a passage document?", 0.2),
    Family("pocket-code", "tag", "Code words", "f1", "Which words of a sentence are code?"),
    Family("pocket-parameter", "extract", "Parameter default", "f1", "What is the default or type of a parameter?"),
    Family("pocket-summary", "retrieve", "Summary to text", "ndcg@10", "Which description belongs to a summary line?"),
)
# Final score and how much of it is there at 20%, for each arm and family.
LEVELS = {
    "clm": ((0.71, 0.9), (0.78, 0.95), (0.41, 0.8), (0.52, 0.85)),
    "mlm": ((0.74, 0.72), (0.77, 0.85), (0.55, 0.5), (0.55, 0.7)),
    "biphasic": ((0.75, 0.9), (0.79, 0.95), (0.56, 0.8), (0.56, 0.85)),
    "antlm": ((0.745, 0.8), (0.784, 0.9), (0.52, 0.6), (0.54, 0.75)),
}


def phases(*parts: tuple[float, str]) -> tuple[Phase, ...]:
    found, start = [], 0.0
    for share, objective in parts:
        found.append(Phase(round(start * TOKENS), round((start + share) * TOKENS), objective))
        start += share
    return tuple(found)


ARMS = (
    Arm("clm", "clm", phases((1, "clm"))),
    Arm("mlm", "mlm(0.4)", phases((1, "mlm(0.4)"))),
    Arm("biphasic", "25% clm > 75% mlm(0.4)", phases((0.25, "clm"), (0.75, "mlm(0.4)"))),
    Arm("antlm", "(1 clm > 4 mlm(0.15)) x 8", phases(*[(0.025, "clm"), (0.1, "mlm(0.15)")] * 8)),
)


def observations(
    arms: tuple[Arm, ...] = ARMS,
    families: tuple[Family, ...] = FAMILIES,
    seeds: int = 2,
    runs: int = 3,
    readings: tuple[str, ...] = tuple(READINGS),
) -> tuple[Observation, ...]:
    found = []
    for arm in arms:
        for seed in range(seeds):
            for reading in readings:
                # Before its switch the biphasic run is the causal run: they share the checkpoint and its scores.
                trunk = "clm" if (arm.name, reading) == ("biphasic", "20%") else arm.name
                for index, family in enumerate(families):
                    level, part = LEVELS[trunk][index]
                    luck = generator(seed, trunk + reading, index).normal() * 0.006
                    mean = level * (part if reading == "20%" else 1) + luck
                    found += _runs(arm.name, trunk, seed, reading, family, mean, runs)
    return tuple(found)


def _runs(arm: str, trunk: str, seed: int, reading: str, family: Family, mean: float, runs: int) -> list[Observation]:
    found = []
    for step, rate in enumerate(RATES):
        for run in range(runs):
            draws = generator(run, f"{trunk}{seed}{reading}{family.task}", step)
            failed = rate == 1e-3 and draws.random() < 0.06
            for split in ("validation", "test"):
                value = math.nan if failed else float(mean - (0.03, 0.0, 0.05)[step] + draws.normal() * 0.008)
                job = f"{trunk}-{seed}-{reading}-{family.task}-{rate:g}-{run}"
                state = f"{trunk}-{seed}-{reading}"
                score = Score(job, state, family.task, family.kind, rate, run, split, family.metric, value, 500, 3, 9.0)
                found.append(Observation(arm, seed, reading, READINGS[reading], score))
    return found


def curve(arm: Arm, seed: int, points: int = 120) -> Curve:
    found = []
    for step in range(1, points + 1):
        tokens = TOKENS * step // points
        objective = next(phase.objective for phase in arm.phases if tokens <= phase.stop_tokens)
        seen = {name: _seen(arm, name, tokens) for name in ("clm", "mlm")}
        noise = float(generator(seed, arm.name, step).normal()) * 0.06
        losses = {"clm": _loss(seen["clm"], seen["mlm"], 4.1), "mlm(0.4)": _loss(seen["mlm"], seen["clm"], 4.6)}
        now = losses["clm"] if objective == "clm" else losses["mlm(0.4)"] - (0.5 if objective == "mlm(0.15)" else 0)
        found.append(Point(tokens, objective, now + noise, losses if step % 12 == 0 else {}))
    return Curve(arm.name, seed, tuple(found))


def _seen(arm: Arm, name: str, tokens: int) -> float:
    return sum(
        max(0, min(tokens, phase.stop_tokens) - phase.start_tokens)
        for phase in arm.phases
        if phase.objective.startswith(name)
    )


def _loss(own: float, other: float, floor: float) -> float:
    return floor + 5.0 * math.exp(-(((own + 0.25 * other) / TOKENS * 9) ** 0.55))


PLAN = """\
run 0, 1: tokens 4.0M each, 2 pretraining seeds
├─ clm 0 .. 20%            shared by clm, biphasic        → reading 20%
│  ├─ clm 20% .. 100%                                     → clm
│  └─ clm 20% .. 25% > mlm(0.4) 25% .. 100%               → biphasic
├─ mlm(0.4) 0 .. 100%                                     → mlm
└─ (1 clm > 4 mlm(0.15)) x 8                              → antlm
14.4M tokens instead of 16.0M without sharing (10% saved)
"""
SETTINGS = """\
name: pocket
pretrain:
  corpus: docstrings
  model: {layers: 6, width: 192, heads: 3}
  batch_tokens: 8192
finetune:
  learning_rates: [1.0e-4, 3.0e-4, 1.0e-3]
  seeds: 3
"""


def example_story() -> Story:
    return Story(
        name="pocket",
        question="Does a causal phase before masked training make a better encoder of technical text, at equal tokens?",
        expectation="The biphasic schedule matches or beats mlm; clm learns faster at first and falls behind later.",
        baseline="mlm",
        arms=ARMS,
        curves=tuple(curve(arm, seed) for arm in ARMS for seed in range(2)),
        observations=observations(),
        families=FAMILIES,
        readings=tuple(READINGS),
        plan=PLAN,
        settings=SETTINGS,
        versions={"antiphon": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "transformers": "5.24.0"},
        cost={
            "pretraining": "3 min 40 s",
            "fine-tuning": "4 min 12 s",
            "processor": "2 cores",
            "operations": "0.12 PFLOP",
        },
        missing=0,
        command="antiphon run studies/pocket.yaml",
    )
