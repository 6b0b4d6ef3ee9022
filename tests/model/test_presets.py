"""The count of operations."""

from __future__ import annotations

import pytest

from antiphon.model.presets import Model, body_parameters, training_flops


def test_training_costs_six_operations_a_weight_and_token() -> None:
    # The well-known 6ND, when attention and the output matrix are left out.
    model = Model(layers=12, width=768, heads=12, ffn=2048)
    assert training_flops(model, 1, 1e6, 0.0, 0.0) == pytest.approx(6 * body_parameters(model) * 1e6)


def test_the_output_matrix_is_paid_where_a_label_asks() -> None:
    model = Model()
    all_asked = training_flops(model, 8192, 1000, 1000, 64)
    some_asked = training_flops(model, 8192, 1000, 400, 64)
    assert all_asked - some_asked == pytest.approx(6 * 8192 * model.width * 600)


def test_attention_is_paid_by_the_keys_a_query_sees() -> None:
    model = Model()
    long, short = (training_flops(model, 8192, 1000, 0, keys) for keys in (128, 64))
    assert long - short == pytest.approx(12 * model.width * model.layers * 1000 * 64)


def test_the_count_agrees_with_torch() -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from antiphon.model import build
    from antiphon.model.attention import Attention, Kernel

    model = Model(layers=2, width=64, heads=4, kv_heads=2, ffn=96, positions=64)
    network = build.build(model, 300, 0)
    build.use_kernel(network, Kernel.MATMUL)
    tokens = torch.randint(0, 300, (2, 32))
    documents, positions = torch.zeros_like(tokens), torch.arange(32).expand(2, 32)
    with FlopCounterMode(display=False) as counter:
        hidden = build.encode(network, tokens, documents, positions, Attention.BIDIRECTIONAL)
        build.logits(network, hidden.flatten(0, 1)).sum().backward()
    # The first layer's input, an embedding, needs no gradient of a product, but torch counts that it has one.
    assert training_flops(model, 300, 64, 64, 32) == pytest.approx(counter.get_total_flops(), rel=0.01)
