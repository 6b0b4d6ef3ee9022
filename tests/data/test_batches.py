"""A batch is a function of its place in the run, and an epoch shows every token exactly once, in rows of any length."""

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
from antiphon.data.batches import PADDING, Batches, TokenBatch
from antiphon.data.layout import Contiguous, Packing, Pieces, Source, sources
from antiphon.data.prepare import Prepared
from antiphon.data.shards import Shards
from tests import tiny
from tests.data.corpora import corpus

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
SIZES = st.lists(st.one_of(st.integers(2, 9), st.integers(2, 120)), min_size=1, max_size=30)
ALL = list(Packing)


def _batches(corpora: list[Shards], weights: list[int], way: Packing, block: int, seed: int = 0) -> Batches:
    return Batches(sources(corpora, weights, way, block, lambda note: None), block, 0, seed)


def _equal(one: TokenBatch, other: TokenBatch) -> bool:
    return all(np.array_equal(*pair) for pair in zip(dataclasses.astuple(one), dataclasses.astuple(other), strict=True))


def _oracle(shards: Shards, order: list[int], length: int, pad: int) -> list[tuple[list[int], list[int], list[int]]]:
    """Rows of the stream cut at every `length` tokens, by walking it token by token."""
    stream, ends = shards.read(0, shards.tokens).tolist(), set(shards.ends.tolist())
    rows = []
    for index in order:
        tokens, documents, positions = [], [], []
        number = position = 0
        for place in range(index * length, min((index + 1) * length, len(stream))):
            if place in ends and tokens:
                number, position = number + 1, 0
            tokens.append(stream[place])
            documents.append(number)
            positions.append(position)
            position += 1
        empty = length - len(tokens)
        rows.append((tokens + [pad] * empty, documents + [PADDING] * empty, positions + [0] * empty))
    return rows


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    documents=DOCUMENTS,
    length=st.integers(8, 40),
    shard=st.sampled_from([1, 13, 64, 10**6]),
    seed=st.integers(0, 3),
)
def test_rows_of_one_corpus_are_the_stream_in_equal_parts(
    tmp_path_factory: pytest.TempPathFactory,
    prepared: Prepared,
    documents: list[str],
    length: int,
    shard: int,
    seed: int,
) -> None:
    encoder = prepared.encoder
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_files, "TOKENS_A_SHARD", shard)
        shards = tiny.shards(tmp_path_factory.mktemp("s") / "s", encoder, documents)
    stream = np.concatenate([encoder.encode([text])[0] for text in documents if text.strip()])
    assert np.array_equal(shards.read(0, shards.tokens), stream)
    batches = Batches(sources([shards], [1], Packing.CONTIGUOUS, length, lambda note: None), length, encoder.pad, seed)
    size = -(-len(stream) // length)
    for epoch in range(3):
        order = batches.order(np.arange(epoch * size, (epoch + 1) * size))[1].tolist()
        assert sorted(order) == list(range(size))
        assert len(stream) % length == 0 or order[-1] == size - 1  # a shorter one comes last
        batch = batches.take(epoch * size * length, size, length)
        rows = zip(batch.tokens.tolist(), batch.documents.tolist(), batch.positions.tolist(), strict=True)
        assert list(rows) == _oracle(shards, order, length, encoder.pad)
        assert (batch.count, batch.words) == (len(stream), shards.words)


@pytest.mark.parametrize("way", ALL)
@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(SIZES, min_size=1, max_size=3),
    weights=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    block=st.integers(8, 70),
    lengths=st.lists(st.tuples(st.integers(1, 4), st.integers(8, 70)), min_size=1, max_size=40),
    seed=st.integers(0, 2),
)
def test_every_token_comes_back_exactly_once_an_epoch_whatever_the_rows(
    tmp_path_factory: pytest.TempPathFactory,
    way: Packing,
    sizes: list[list[int]],
    weights: list[int],
    block: int,
    lengths: list[tuple[int, int]],
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("corpora")
    corpora = [corpus(folder / str(number), each) for number, each in enumerate(sizes)]
    batches = _batches(corpora, weights[: len(corpora)], way, block, seed)
    first, shown = 0, []
    for rows, length in lengths:
        batch = batches.take(first, rows, length)
        assert batch.tokens.shape == (rows, length)
        shown += _blocks_of(batch, first, block)
        first += rows * length
    seen: dict[tuple[int, int], Counter[int]] = {}
    held: dict[tuple[int, int], int] = {}
    numbers = np.arange(first // block)  # the blocks that were shown to their end
    owners, _ = batches.order(numbers)
    places = np.zeros(len(corpora), dtype=int)
    for number, owner in zip(numbers.tolist(), owners.tolist(), strict=True):
        epoch = int(places[owner]) // batches.sources[owner].layout.blocks
        places[owner] += 1
        key = (owner, epoch)
        seen.setdefault(key, Counter()).update(token for at, token in shown if at == number)
        held[key] = held.get(key, 0) + 1
    for (owner, epoch), tokens in seen.items():
        assert max(tokens.values(), default=1) == 1, "shown twice in an epoch"
        if held[owner, epoch] == batches.sources[owner].layout.blocks:
            assert sorted(tokens) == list(range(corpora[owner].tokens))


def _blocks_of(batch: TokenBatch, first: int, block: int) -> list[tuple[int, int]]:
    """(number of the block, token) of every token that is shown."""
    slots = first + np.flatnonzero(batch.documents.ravel() != PADDING)
    tokens = batch.tokens.ravel()[slots - first]
    return list(zip((slots // block).tolist(), tokens.tolist(), strict=True))


@pytest.mark.parametrize("way", ALL)
@settings(max_examples=40, deadline=None)
@given(sizes=SIZES, block=st.integers(8, 70), length=st.integers(8, 70))
def test_a_piece_is_a_stretch_of_the_stream_with_positions_from_zero(
    tmp_path_factory: pytest.TempPathFactory, way: Packing, sizes: list[int], block: int, length: int
) -> None:
    shards = corpus(tmp_path_factory.mktemp("c") / "c", sizes)
    batches = _batches([shards], [1], way, block)
    batch = batches.take(3, 12, length)
    starts = set(np.cumsum([0, *sizes]).tolist())
    for tokens, documents, positions in zip(batch.tokens, batch.documents, batch.positions, strict=True):
        real = documents != PADDING
        numbers = documents[real]
        # In the order of the row: 0, 1, 2 ... with nothing left out.
        assert (np.diff(numbers) >= 0).all()
        assert np.unique(numbers).tolist() == list(range(len(np.unique(numbers))))
        assert (tokens[~real] == 0).all()
        assert (positions[~real] == 0).all()
        for number in np.unique(numbers):
            stretch = tokens[documents == number]
            assert (np.diff(stretch) == 1).all()
            assert positions[documents == number].tolist() == list(range(len(stretch)))
            if way is not Packing.PIECES:
                assert not starts & set(stretch[1:].tolist()), "two documents in one"


@pytest.mark.parametrize("way", ALL)
def test_rows_are_the_same_however_they_are_asked_for(tmp_path: Path, way: Packing) -> None:
    # Ranks, micro-batches and resumes ask for the rows of a step in parts, and in any order.
    corpora = [corpus(tmp_path / "a", [40, 3, 200, 17] * 9), corpus(tmp_path / "b", [5, 90] * 11)]
    whole = _batches(corpora, [2, 3], way, 64).take(100, 60, 32)
    for rows in (1, 7, 20):
        fresh = _batches(corpora, [2, 3], way, 64)
        firsts = list(range(0, 60, rows))
        parts = {at: fresh.take(100 + at * 32, min(rows, 60 - at), 32) for at in reversed(firsts)}
        for name in ("tokens", "documents", "positions"):
            assert np.array_equal(getattr(whole, name), np.concatenate([getattr(parts[at], name) for at in firsts]))
        assert whole.count == sum(part.count for part in parts.values())
        assert whole.words == sum(part.words for part in parts.values())


def test_a_batch_does_not_depend_on_what_came_before(prepared: Prepared) -> None:
    forward = [tiny.batches(prepared)(step) for step in range(30)]
    fresh = tiny.batches(prepared)
    assert all(_equal(fresh(step), forward[step]) for step in reversed(range(30)))


@pytest.mark.parametrize("way", ALL)
def test_epochs_seeds_and_sources_have_orders_of_their_own(tmp_path: Path, way: Packing) -> None:
    corpora = [corpus(tmp_path / str(number), [40] * 100) for number in range(2)]
    batches = _batches(corpora, [1, 1], way, 40)
    size = batches.sources[0].layout.blocks
    orders = []
    for each in (batches, dataclasses.replace(batches, seed=1)):
        owners, indices = each.order(np.arange(6 * size))
        orders += [tuple(part) for number in (0, 1) for part in np.split(indices[owners == number], 3)]
    assert all(sorted(order) == list(range(size)) for order in orders)
    assert len({*orders, tuple(range(size))}) == len(orders) + 1


def test_a_corpus_in_a_mixture_keeps_the_order_it_has_alone(tmp_path: Path) -> None:
    corpora = [corpus(tmp_path / str(number), [40] * 50) for number in range(2)]
    mixed = _batches(corpora, [1, 3], Packing.CONTIGUOUS, 16)
    owners, indices = mixed.order(np.arange(4000))
    alone = _batches(corpora[:1], [1], Packing.CONTIGUOUS, 16).order(np.arange(1000))[1]
    assert np.array_equal(indices[owners == 0], alone)


@pytest.mark.parametrize("way", ALL)
def test_words_are_presented_once_an_epoch_and_by_the_rule(tmp_path: Path, way: Packing) -> None:
    sizes, words = [10, 300, 2, 7, 90] * 20, [4, 260, 0, 9, 17] * 20
    shards = corpus(tmp_path / "c", sizes, words)
    before = [0]  # by the rule, token by token
    for size, count in zip(sizes, words, strict=True):
        before += [before[-1] + count * part // size for part in range(1, size + 1)]
    assert shards.words_before(np.arange(shards.tokens + 1)).tolist() == before
    batches = _batches([shards], [1], way, 64)
    slots = batches.sources[0].layout.blocks * 64
    rows = [batches.take(slots + at, 1, 16) for at in range(0, slots, 16)]
    for row in rows:
        kept = row.documents[0] != PADDING
        expected = sum(before[token + 1] - before[token] for token in row.tokens[0, kept].tolist())
        assert row.words == expected
    assert sum(row.words for row in rows) == sum(words)
    assert sum(row.count for row in rows) == shards.tokens


def test_words_of_many_documents_are_summed_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_files, "GROUPS_AT_ONCE", 2)
    sizes = np.random.default_rng(0).integers(2, 9, 1000)
    shards = corpus(tmp_path / "c", sizes)
    ends = np.cumsum(sizes)
    assert np.array_equal(shards.words_before(ends), np.cumsum(sizes // 2))


@dataclasses.dataclass(frozen=True)
class _Endless:
    """A layout of a hundred billion tokens, none of them stored."""

    shards: Shards
    blocks: int
    full: int

    def pieces(self, blocks: np.ndarray) -> Pieces:
        number = np.arange(len(blocks))
        return Pieces(number, np.zeros_like(number), blocks % 10, np.full_like(number, 100))


def test_a_batch_of_a_hundred_billion_tokens_takes_no_memory(tmp_path: Path) -> None:
    blocks = 50_000_000
    layout = _Endless(corpus(tmp_path / "c", [200]), blocks, blocks - 1)
    batches = Batches((Source(layout, 1), Source(layout, 2)), 2048, 0, 0)
    batches.take(0, 4, 64)
    tracemalloc.start()
    for first in (10**11, 10**12, 10**14):
        batch = batches.take(first, 4, 2048)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert batch.count == 400
    assert peak < 2_000_000


def test_taking_a_row_does_not_copy_the_index_of_documents(tmp_path: Path) -> None:
    # 8 bytes a document: an index of millions of documents must stay on disk.
    documents = 2_000_000
    folder = tmp_path / "s"
    folder.mkdir()
    np.arange(10, 10 * documents + 1, 10, dtype=np.uint64).tofile(folder / "ends.bin")
    np.ones(documents, np.uint32).tofile(folder / "words.bin")
    np.zeros(10 * documents, np.uint16).tofile(folder / "tokens-00000.bin")
    facts = {"tokens": 10 * documents, "dtype": "uint16", "shards": [["tokens-00000.bin", 10 * documents]]}
    batches = Batches((Source(Contiguous(Shards(folder, facts), 64)),), 64, 0, 0)
    batches.take(0, 4, 64)
    tracemalloc.start()
    batch = batches.take(256, 4, 64)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert batch.positions.max() == 9


def test_an_error_in_reading_reaches_the_caller(tmp_path: Path) -> None:
    shards = corpus(tmp_path / "c", [50] * 10)
    batches = _batches([shards], [1], Packing.CONTIGUOUS, 32)
    (tmp_path / "c" / "tokens-00000.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"tokens-00000\.bin"):
        batches.take(0, 2, 32)
