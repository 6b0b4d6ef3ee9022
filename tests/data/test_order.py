"""Orders are bijections that take no memory, and each source of a mixture gets exactly its weight."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.data.order import Turns, permute


@pytest.mark.parametrize(("seed", "epoch", "source"), [(0, 0, 0), (0, 1, 0), (7, 0, 0), (0, 0, 1)])
def test_permute_is_a_bijection_of_every_small_size(seed: int, epoch: int, source: int) -> None:
    for size in range(1, 301):
        assert sorted(permute(np.arange(size), size, seed, epoch, source).tolist()) == list(range(size)), size


def test_each_seed_epoch_and_source_has_its_own_order() -> None:
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1)]
    assert len({tuple(permute(np.arange(100), 100, *key)) for key in keys}) == len(keys)


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


@settings(max_examples=50, deadline=None)
@given(weights=st.lists(st.integers(1, 12), min_size=1, max_size=4), first=st.integers(0, 10**12))
def test_of_any_run_of_turns_each_source_gets_its_weight(weights: list[int], first: int) -> None:
    total = sum(weights)
    turns = Turns(tuple(weights))
    owners, counts = turns.of(np.arange(first, first + 3 * total))
    for start in range(2 * total):
        assert np.bincount(owners[start : start + total], minlength=len(weights)).tolist() == weights
    for number in range(len(weights)):
        mine = counts[owners == number]
        assert (np.diff(mine) == 1).all()
    before = np.bincount(turns.of(np.arange(5 * total))[0], minlength=len(weights))
    assert before.tolist() == [5 * weight for weight in weights]
    assert turns.of(np.array([0]))[1][0] == 0


def test_turns_of_one_source_are_spread_out() -> None:
    owners, _ = Turns((10, 90)).of(np.arange(1000))
    gaps = np.diff(np.flatnonzero(owners == 0))
    assert gaps.min() >= 5
    assert gaps.max() <= 20
