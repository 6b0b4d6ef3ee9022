"""Model shapes as values. No torch here: a study is planned without it."""

from __future__ import annotations

from pydantic import Field, model_validator

from antiphon.config import Config


class Model(Config):
    """A Llama-shaped network: pre-norm RMSNorm, rotary positions, SwiGLU, no biases.

    Source: the MLM-vs-CLM study (arXiv 2507.00994), Table 1, which uses one such network for every objective.

    Attributes:
        layers, width, heads, kv_heads, ffn: the shape; `kv_heads` 0 means as many as `heads`.
        positions: longest row the rotary table is made for.
        tied: whether the output matrix is the embedding matrix.
        norm_epsilon, rope_theta: as in the study.
        initial_std: standard deviation of the normal initialisation.
    """

    layers: int = Field(default=4, ge=1)
    width: int = Field(default=128, ge=8)
    heads: int = Field(default=4, ge=1)
    kv_heads: int = Field(default=0, ge=0)
    ffn: int = Field(default=384, ge=8)
    positions: int = Field(default=2048, ge=1)
    tied: bool = True
    norm_epsilon: float = Field(default=1e-5, gt=0)
    rope_theta: float = Field(default=10_000.0, gt=0)
    initial_std: float = Field(default=0.02, gt=0)

    @model_validator(mode="after")
    def _shape(self) -> Model:
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(
                f"width {self.width} does not divide into {self.heads} heads of an even size; "
                f"choose heads such that width / heads is even (rotary positions turn pairs)"
            )
        if self.kv_heads and self.heads % self.kv_heads:
            raise ValueError(f"kv_heads {self.kv_heads} must divide heads {self.heads}")
        return self


def body_parameters(model: Model) -> int:
    """Weights of the layers and norms, without embedding and output matrix."""
    head = model.width // model.heads
    kv = (model.kv_heads or model.heads) * head
    attention = 2 * model.width * model.width + 2 * model.width * kv
    return model.layers * (attention + 3 * model.width * model.ffn + 2 * model.width) + model.width


def training_flops(model: Model, vocabulary: int, tokens: float, asked: float, visible: float) -> float:
    """Floating-point operations of training on `tokens` tokens: three times the forward pass.

    Args:
        model: the shape.
        vocabulary: V.
        tokens: tokens shown.
        asked: tokens that get logits (all for CLM, the masked ones for MLM).
        visible: mean number of keys a query sees.

    Source: the count of Hoffmann et al. 2022 (arXiv 2203.15556), appendix F, less the embedding look-up.
    """
    body = 2.0 * body_parameters(model) * tokens
    attention = 4.0 * model.width * visible * model.layers * tokens
    head = 2.0 * vocabulary * model.width * asked
    return 3.0 * (body + attention + head)
