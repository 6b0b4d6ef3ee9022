"""Compiled code computes the same, is compiled in the first steps and never again, and is checked before it is used."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from antiphon.config import UserError
from antiphon.model import build, cross_entropy
from antiphon.model.attention import Attention, Kernel
from antiphon.model.compiled import check_compiled, compile_learner
from antiphon.model.loss import Learner
from antiphon.model.presets import Model
from antiphon.pretrain.objective import Vocabulary
from antiphon.pretrain.schedule import Schedule
from antiphon.train.parallel import autocast
from tests import tiny

CPU = torch.device("cpu")
VOCABULARY = Vocabulary(100, 3, (0, 1, 2, 3))
LAYOUTS = ([[24], [10, 14], [3, 2, 5], [20]], [[9, 9], [24], [24], [1, 2, 3]], [[5], [6, 6, 6], [24], [12, 12]])


# torch's compiler warns of parts of itself, and of its own look at the layers' inputs.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]
BACKEND = "eager"
"""What is compiled, and how often, is decided before machine code is made, which would take a minute."""


@pytest.fixture(autouse=True)
def _nothing_compiled_yet() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def learner(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Learner:
    # Several pieces, so that the softmax is compiled too.
    monkeypatch.setattr(cross_entropy, "CPU_SCORES", 16 * 100)
    made = Learner(build.build(Model.read({**tiny.MODEL, "layers": 3}), 100, 0), z_loss=1e-3)
    build.use_kernel(made.network, kernel)
    return made


def micro_batch(step: int, notation: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Attention]:
    objective = Schedule.parse(notation).phases[0].objective
    (batch,) = objective(tiny.token_batch(LAYOUTS[step % 3], 24), VOCABULARY, 0, step)
    parts = (batch.inputs, batch.labels, batch.documents, batch.positions)
    first, second, third, fourth = (torch.from_numpy(part) for part in parts)
    return first, second, third, fourth, Attention(batch.attention)


@pytest.mark.parametrize(
    ("kernel", "precision"),
    [(Kernel.SDPA, torch.float32), (Kernel.MATMUL, torch.bfloat16), (Kernel.DOCUMENTS, torch.float32)],
)
def test_nothing_is_compiled_again_after_the_first_steps(
    kernel: Kernel, precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A16; alternating objectives, other documents and another number of places asked in every step.
    plain, made = learner(kernel, monkeypatch), learner(kernel, monkeypatch)
    compile_learner(made, BACKEND)
    seen, graphs = set(), []
    for step in range(10):
        arguments = micro_batch(step, ("clm", "mlm(0.4)")[step % 2])
        seen.add(int((arguments[1] != -100).sum()))
        totals = []
        for one in (plain, made):
            with autocast(CPU, precision):
                totals.append(one(*arguments))
            totals[-1].backward()
        assert float(totals[1].detach()) == pytest.approx(
            float(totals[0].detach()), rel=1e-5 if precision is torch.float32 else 1e-2
        )
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[3] == graphs[-1] > 0
    assert len(seen) > 5
    for one, other in zip(plain.parameters(), made.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        tolerance = 1e-4 if precision is torch.float32 else 0.1
        assert float((one.grad - other.grad).norm()) < tolerance * max(1.0, float(one.grad.norm()))


def test_flash_attention_is_not_compiled_again_for_another_number_of_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(
        query: Tensor, key: Tensor, value: Tensor, borders: Tensor, longest: int, causal: bool, scale: float
    ) -> Tensor:
        return (query + key) * value * scale * borders[1] * longest

    monkeypatch.setattr(build, "flash_kernel", lambda: stand_in)
    made = learner(Kernel.FLASH, monkeypatch)
    compile_learner(made, BACKEND)
    graphs = []
    for step in range(8):
        made(*micro_batch(step, ("clm", "mlm(0.4)")[step % 2])).backward()
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[1] == graphs[-1] > 0


def test_layers_share_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    made = learner(Kernel.MATMUL, monkeypatch)
    compile_learner(made, BACKEND)
    made(*micro_batch(0, "mlm(0.4)")).backward()
    # Two layers alike, the last one, the softmax.
    assert counters["stats"]["unique_graphs"] == 3


def test_parameters_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    made = learner(Kernel.SDPA, monkeypatch)
    before = list(made.state_dict())
    compile_learner(made, BACKEND)
    assert list(made.state_dict()) == before


def test_code_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = learner(Kernel.SDPA, monkeypatch)
    compile_learner(made, BACKEND)
    check_compiled(made, *micro_batch(0, "mlm(0.4)"))
    assert all(parameter.grad is None for parameter in made.parameters())

    def wrong(*arguments: Tensor, **settings: object) -> Tensor:
        right = right_norm(*arguments, **settings)
        return right * 1.3 if torch.compiler.is_compiling() else right

    norm = made.network.get_submodule("model.layers.1.input_layernorm")
    right_norm = norm.forward
    monkeypatch.setattr(norm, "forward", wrong)
    torch._dynamo.reset()
    with pytest.raises(UserError, match=r"compiled code differs .* machine\.compile=off"):
        check_compiled(made, *micro_batch(0, "mlm(0.4)"))


@pytest.mark.skipif(shutil.which("g++") is None, reason="the machine code needs a C++ compiler")
def test_the_softmax_as_machine_code_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    scores, answers = torch.randn(40, 100, generator=generator), torch.randint(0, 100, (40,), generator=generator)
    made = learner(Kernel.SDPA, monkeypatch)
    compile_learner(made)
    expected = cross_entropy.softmax_of(scores.clone(), answers, 0.1)
    found = made.softmax(scores.clone(), answers, 0.1)
    assert torch.allclose(found[0], expected[0], rtol=1e-5)
    assert torch.allclose(found[1], expected[1], atol=1e-6)
