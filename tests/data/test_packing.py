"""Packing fills the blocks for any lengths of documents, cuts few of them, and leaves no crumbs."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from antiphon.config import UserError
from antiphon.data import packing
from antiphon.data.layout import Packed, Packing, Uniform, sources
from antiphon.data.shards import Shards
from antiphon.draws import generator
from tests.data.corpora import corpus


def _silent(note: str) -> None:
    return None


def _packed(shards: Shards, block: int) -> Packed:
    (source,) = sources([shards], [1], Packing.DOCUMENTS, block, _silent)
    assert isinstance(source.layout, Packed)
    return source.layout


def _draws() -> np.random.Generator:
    return generator(0, "sizes of documents")


NASTY: dict[str, Callable[[int], np.ndarray]] = {
    "0.6 of a block": lambda block: np.full(4000, round(0.6 * block)),
    "half a block and one": lambda block: np.full(4000, block // 2 + 1),
    "half a block and two": lambda block: np.full(4000, block // 2 + 2),
    "half a block and four": lambda block: np.full(4000, block // 2 + 4),
    "nearly a block": lambda block: np.full(4000, block - 3),
    "a block": lambda block: np.full(2000, block),
    "a little over a block": lambda block: np.full(2000, block + 3),
    "longer than a block": lambda block: _draws().integers(2 * block, 9 * block, 400),
    "4 tokens": lambda block: np.full(30000, 4),
    "tiny": lambda block: _draws().integers(3, 7, 30000),
    "a third, exactly": lambda block: np.full(6000, block // 3),
    "lognormal": lambda block: np.clip(_draws().lognormal(np.log(block * 0.7), 1.2, 6000), 3, None).astype(int),
    "growing": lambda block: np.linspace(3, 2 * block, 4000).astype(int),
}


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("block", [128, 512])
def test_over_99_percent_of_the_slots_are_filled(tmp_path: Path, name: str, block: int) -> None:
    sizes = NASTY[name](block)
    layout = _packed(corpus(tmp_path / "c", sizes), block)
    pieces = layout.pieces(np.arange(layout.blocks))
    filled = np.bincount(pieces.owners, pieces.sizes)
    assert filled.max() <= block
    # Each block by itself, but for the last one, for which the documents ran out.
    assert (filled[:-1] >= block - block // 128).all()
    assert filled.sum() / (block * layout.blocks) > 0.99


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("block", [128, 512])
def test_no_piece_is_a_crumb(tmp_path: Path, name: str, block: int) -> None:
    sizes = NASTY[name](block)
    layout = _packed(corpus(tmp_path / "c", sizes), block)
    pieces = layout.pieces(np.arange(layout.blocks))
    starts = np.cumsum([0, *sizes])
    document = np.searchsorted(starts, pieces.starts, side="right") - 1
    cut = (pieces.sizes < sizes[document]) & (pieces.owners < layout.blocks - 10)
    assert pieces.sizes[cut].min(initial=2) >= 2
    crumbs = (pieces.sizes[cut] < packing.CRUMB).sum()
    if (name, block) == ("half a block and two", 512) or name in (
        "0.6 of a block",
        "nearly a block",
        "longer than a block",
        "4 tokens",
        "lognormal",
    ):
        assert crumbs == 0
    elif name != "tiny":
        assert crumbs < 0.1 * layout.blocks


def test_few_documents_are_cut_that_need_not_be(tmp_path: Path) -> None:
    sizes = np.clip(_draws().lognormal(np.log(200), 0.8, 6000), 3, 512).astype(int)
    layout = _packed(corpus(tmp_path / "c", sizes), 512)
    pieces = layout.pieces(np.arange(layout.blocks))
    # Cut contiguously, nearly each of the borders between blocks would cut one.
    assert len(pieces.starts) - len(sizes) < 0.3 * layout.blocks


def test_no_document_waits_for_ever(tmp_path: Path) -> None:
    # Were the longest always taken first, the short ones would all come at the end.
    sizes = np.tile([5, 400], 20_000)
    layout = _packed(corpus(tmp_path / "c", sizes), 512)
    pieces = layout.pieces(np.arange(layout.blocks))
    place = pieces.starts / sizes.sum()
    assert np.abs(place - pieces.owners / layout.blocks).max() < 0.25


@pytest.mark.parametrize("block", [128, 512, 2048])
def test_pieces_have_every_length_equally_often_and_fill_their_blocks(tmp_path: Path, block: int) -> None:
    shards = corpus(tmp_path / "c", _draws().integers(3, 900, 4_000 * block // 128))
    (source,) = sources([shards], [1], Packing.PIECES, block, _silent)
    layout = source.layout
    pieces = layout.pieces(np.arange(layout.blocks))
    assert np.array_equal(pieces.starts, np.cumsum([0, *pieces.sizes])[:-1])
    assert pieces.starts[-1] + pieces.sizes[-1] == shards.tokens
    sizes = pieces.sizes[:-2]
    assert (sizes.min(), sizes.max()) == (12, block)
    assert stats.chisquare(np.bincount(sizes, minlength=block + 1)[12:]).pvalue > 0.001
    assert stats.kstest(sizes[:2000], stats.randint(12, block + 1).cdf).pvalue > 0.001
    filled = np.bincount(pieces.owners, pieces.sizes) / block
    assert filled.max() == 1
    assert filled[:-1].mean() > {128: 0.99, 512: 0.999, 2048: 0.9999}[block]


def test_the_length_of_a_piece_does_not_follow_from_its_place_in_the_cycle(tmp_path: Path) -> None:
    layout = Uniform(corpus(tmp_path / "c", [1000] * 300), 64)
    cycle = 65
    first = layout.pieces(np.arange(0, layout.blocks - cycle, cycle)).sizes[::2]
    assert len(np.unique(first)) > len(first) / 3


@settings(max_examples=200, deadline=None)
@given(tokens=st.integers(1, 3000), block=st.integers(8, 60))
def test_pieces_hold_the_stream_once_however_long_it_is(
    tmp_path_factory: pytest.TempPathFactory, tokens: int, block: int
) -> None:
    layout = Uniform(Shards(tmp_path_factory.getbasetemp(), {"tokens": tokens}), block)
    pieces = layout.pieces(np.arange(layout.blocks))
    assert np.array_equal(pieces.starts, np.cumsum([0, *pieces.sizes])[:-1])
    assert pieces.sizes.sum() == tokens
    assert pieces.sizes.min() > 0
    assert np.array_equal(np.unique(pieces.owners), np.arange(layout.blocks))
    ends = pieces.slots + pieces.sizes
    assert ends.max() <= block
    second = np.flatnonzero(pieces.slots)
    assert np.array_equal(pieces.slots[second], ends[second - 1])


def test_a_piece_of_random_length_goes_on_over_the_border_of_documents(tmp_path: Path) -> None:
    shards = corpus(tmp_path / "c", [5] * 1000)
    layout = Uniform(shards, 64)
    assert layout.pieces(np.arange(layout.blocks)).sizes.max() > 50


def test_the_index_does_not_depend_on_how_much_is_read_or_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = _draws().integers(3, 300, 9000)
    one = _packed(corpus(tmp_path / "one", sizes), 128)
    monkeypatch.setattr(packing, "READ_AT_ONCE", 7)
    monkeypatch.setattr(packing, "BLOCKS_AT_ONCE", 11)
    other = _packed(corpus(tmp_path / "other", sizes), 128)
    for name in ("pieces.bin", "ends.bin"):
        assert (one.index.folder / name).read_bytes() == (other.index.folder / name).read_bytes()


def test_an_index_is_small(tmp_path: Path) -> None:
    sizes = np.clip(_draws().lognormal(np.log(400), 1.0, 6000), 3, None).astype(int)
    layout = _packed(corpus(tmp_path / "c", sizes), 512)
    size = sum(path.stat().st_size for path in layout.index.folder.iterdir())
    assert size < 0.03 * 2 * sizes.sum()  # of tokens of 2 bytes


def test_an_index_is_made_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = corpus(tmp_path / "c", [50] * 300)
    with monkeypatch.context() as patch:
        patch.setattr(packing, "_write", _fail)
        with pytest.raises(KeyboardInterrupt):
            _packed(shards, 64)
    assert [path.name for path in (tmp_path / "c" / "packing").iterdir()] == ["documents-64-1.lock"]
    first = _packed(shards, 64)
    monkeypatch.setattr(packing, "_write", _fail)
    assert _packed(shards, 64) == first


def _fail(*arguments: object) -> None:
    raise KeyboardInterrupt


def _pack_and_count(folder: Path, barrier: object, made: object) -> None:
    def told(note: str) -> None:
        with made.get_lock():  # pyright: ignore[reportAttributeAccessIssue]
            made.value += 1  # pyright: ignore[reportAttributeAccessIssue]

    shards = Shards(folder, {"tokens": 50 * 3000})
    barrier.wait()  # pyright: ignore[reportAttributeAccessIssue]
    sources([shards], [1], Packing.DOCUMENTS, 64, told)


def test_two_processes_make_an_index_once(tmp_path: Path) -> None:
    corpus(tmp_path / "c", [50] * 3000)
    context = multiprocessing.get_context("fork")
    made, barrier = context.Value("i", 0), context.Barrier(2)
    both = [context.Process(target=_pack_and_count, args=(tmp_path / "c", barrier, made)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert made.value == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    shards = corpus(tmp_path / "c", [50] * 30)
    (tmp_path / "c").chmod(0o555)
    with pytest.raises(UserError, match="could not be written"):
        _packed(shards, 64)
