"""A batch is a function of its step, and an epoch shows every token exactly once."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.data import shards as shard_files
from antiphon.data.batches import PADDING, Batches, permute
from antiphon.data.prepare import Prepared
from antiphon.data.shards import Shards
from tests import tiny


def _shown(batches: Batches, first: int, rows: int) -> list[int]:
    """The tokens of some rows of the run, row by row, without padding."""
    batch = batches.take(batches.order(np.arange(first, first + rows)))
    return batch.tokens[batch.documents != PADDING].tolist()


DOCUMENTS = st.lists(
    st.one_of(
        st.just(""),
        st.just("a"),  # one token
        st.text(alphabet="ab c\n", max_size=12),
        st.integers(20, 90).map(lambda size: "ab" * size),  # longer than a row
    ),
    min_size=1,
    max_size=12,
).filter(lambda documents: any(text.strip() for text in documents))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    documents=DOCUMENTS,
    rows=st.integers(1, 5),
    length=st.integers(8, 40),
    shard=st.sampled_from([1, 13, 64, 10**6]),
    seed=st.integers(0, 3),
)
def test_every_token_comes_back_exactly_once_an_epoch(
    tmp_path_factory: pytest.TempPathFactory,
    prepared: Prepared,
    documents: list[str],
    rows: int,
    length: int,
    shard: int,
    seed: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_files, "TOKENS_A_SHARD", shard)
        shards = tiny.shards(tmp_path_factory.mktemp("s") / "s", prepared.encoder, documents)
    stream = np.concatenate([prepared.encoder.encode([text])[0] for text in documents if text.strip()])
    batches = Batches(shards, rows, length, prepared.encoder.pad, seed)
    pieces = [stream[start : start + length].tolist() for start in range(0, len(stream), length)]
    assert batches.rows_an_epoch == len(pieces)
    for epoch in range(3):
        shown = [_shown(batches, epoch * len(pieces) + row, 1) for row in range(len(pieces))]
        assert Counter(map(tuple, shown)) == Counter(map(tuple, pieces))
        assert len(shown[-1]) == len(pieces[-1])  # a shorter one comes last
    # The same through the front door: steps, which straddle the epochs.
    steps = -(-3 * len(pieces) // rows)
    through = [batches(step) for step in range(steps)]
    tokens = np.concatenate([batch.tokens[batch.documents != PADDING] for batch in through])
    assert tokens[: 3 * len(stream)].tolist() == _shown(batches, 0, 3 * len(pieces))
    for step in range(steps + 1):
        counted = sum(int((batch.documents != PADDING).sum()) for batch in through[:step])
        assert batches.tokens_seen(step) == counted


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=DOCUMENTS, length=st.integers(8, 40))
def test_documents_and_positions_are_those_of_the_stream(
    tmp_path_factory: pytest.TempPathFactory, prepared: Prepared, documents: list[str], length: int
) -> None:
    encoder = prepared.encoder
    shards = tiny.shards(tmp_path_factory.mktemp("s") / "s", encoder, documents)
    batches = Batches(shards, 1, length, encoder.pad, 0)
    batch = batches.take(np.arange(batches.rows_an_epoch))
    for tokens, numbers, positions in zip(batch.tokens, batch.documents, batch.positions, strict=True):
        real = numbers != PADDING
        # By walking the row: a document ends with [EOS], and the next one begins at position 0 with a new number.
        number, position = 0, 0
        for token, found_number, found_position in zip(tokens[real], numbers[real], positions[real], strict=True):
            assert (found_number, found_position) == (number, position)
            number, position = (number + 1, 0) if token == encoder.eos else (number, position + 1)
        assert (tokens[~real] == encoder.pad).all()
        assert not real[np.argmin(real) :].any() or real.all()


def test_a_batch_does_not_depend_on_what_came_before(prepared: Prepared) -> None:
    forward = [tiny.batches(prepared)(step) for step in range(30)]
    fresh = tiny.batches(prepared)
    for step in reversed(range(30)):
        for one, other in zip(dataclasses.astuple(fresh(step)), dataclasses.astuple(forward[step]), strict=True):
            assert np.array_equal(one, other)


def test_the_size_of_a_batch_does_not_change_the_order_of_rows(prepared: Prepared) -> None:
    whole = tiny.batches(prepared, rows=12)(2).tokens
    parts = [tiny.batches(prepared, rows=3)(step).tokens for step in range(8, 12)]
    assert np.array_equal(whole, np.concatenate(parts))


def test_epochs_and_seeds_have_orders_of_their_own(prepared: Prepared) -> None:
    batches = tiny.batches(prepared)
    size = batches.rows_an_epoch
    orders = [tuple(batches.order(np.arange(epoch * size, (epoch + 1) * size))) for epoch in range(3)]
    orders.append(tuple(tiny.batches(prepared, seed=1).order(np.arange(size))))
    orders.append(tuple(range(size)))
    assert len(set(orders)) == len(orders)
    assert all(sorted(order) == list(range(size)) for order in orders)


@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (0, 1), (7, 0)])
def test_permute_is_a_bijection_of_every_small_size(seed: int, epoch: int) -> None:
    for size in range(1, 301):
        assert sorted(permute(np.arange(size), size, seed, epoch).tolist()) == list(range(size)), size


@pytest.mark.parametrize("size", [10**6, 2**20, 2**20 + 1])
def test_permute_is_a_bijection_of_large_sizes(size: int) -> None:
    assert len(np.unique(permute(np.arange(size), size, 0, 0))) == size


def test_permute_of_a_trillion_takes_no_memory() -> None:
    size = 10**12
    places = np.concatenate([np.arange(1000), np.arange(size - 1000, size), np.arange(0, size, 10**9)])
    tracemalloc.start()
    found = permute(places, size, 0, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
    assert found.min() >= 0
    assert found.max() < size
    assert len(np.unique(found)) == len(np.unique(places))


def test_permute_is_a_function_of_each_place_alone() -> None:
    whole = permute(np.arange(1000), 1000, 3, 5)
    assert [int(permute(np.array([place]), 1000, 3, 5)[0]) for place in range(1000)] == whole.tolist()


def test_permute_scatters() -> None:
    # Were neighbours kept together, a document's rows would follow each other.
    size = 5000
    found = permute(np.arange(size), size, 0, 0)
    assert abs(np.corrcoef(np.arange(size), found)[0, 1]) < 0.05
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.05
    assert np.mean(np.abs(np.diff(found)) <= 10) < 0.02


def test_taking_a_row_does_not_copy_the_index_of_documents(tmp_path: Path) -> None:
    # 8 bytes a document: an index of millions of documents must stay on disk.
    documents = 2_000_000
    folder = tmp_path / "s"
    folder.mkdir()
    np.arange(10, 10 * documents + 1, 10, dtype=np.uint64).tofile(folder / "ends.bin")
    np.zeros(10 * documents, np.uint16).tofile(folder / "tokens-00000.bin")
    facts = {"tokens": 10 * documents, "dtype": "uint16", "shards": [["tokens-00000.bin", 10 * documents]]}
    batches = Batches(Shards(folder, facts), 4, 64, 0, 0)
    batches(0)
    tracemalloc.start()
    batch = batches(1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert batch.positions.max() == 9
