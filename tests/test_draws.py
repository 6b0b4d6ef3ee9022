"""A draw depends on names and numbers, never on what was drawn before."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from antiphon.draws import generator, seed_of


def test_equal_keys_give_equal_draws_whatever_was_drawn_before() -> None:
    first = generator(3, "mask", 5).random(4)
    generator(3, "mask", 4).random(1000)
    assert np.array_equal(generator(3, "mask", 5).random(4), first)


def test_the_stream_is_the_same_on_every_machine() -> None:
    assert generator(0, "mask", 1, 2).integers(0, 2**32, 3).tolist() == [3307135473, 763193077, 1840495031]
    assert seed_of(0, "head") == 3945626268140873909


def test_different_keys_give_different_draws() -> None:
    keys = [(seed, purpose, step) for seed in (0, 1, 10) for purpose in ("mask", "rows", "1|mask") for step in range(4)]
    streams = [tuple(generator(*key).integers(0, 2**63, 4)) for key in keys]
    numbers = [value for stream in streams for value in stream]
    assert len(set(numbers)) == len(numbers)
    assert len({seed_of(*key) for key in keys}) == len(keys)


def test_neighbouring_counters_do_not_overlap() -> None:
    # A generator whose counter were the low word would repeat its neighbour's stream, shifted.
    streams = [set(generator(0, "mask", step).integers(0, 2**63, 2000).tolist()) for step in range(4)]
    assert all(one.isdisjoint(other) for one, other in itertools.combinations(streams, 2))


def test_seeds_of_every_sign_and_size_are_seeds() -> None:
    values = {generator(seed, "mask").random() for seed in (-1, 0, 2**70)}
    assert len(values) == 3


def test_draws_are_uniform() -> None:
    # One draw from each of many streams: neighbouring keys must not be correlated.
    first = np.array([generator(0, "mask", step).random() for step in range(4000)])
    counts, _ = np.histogram(first, bins=20, range=(0, 1))
    chi_square = float(((counts - 200.0) ** 2 / 200.0).sum())
    assert chi_square < 43.8  # 0.1% point with 19 degrees of freedom
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.06


def test_a_fourth_counter_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 3"):
        generator(0, "mask", 1, 2, 3, 4)


@pytest.mark.parametrize("key", [(0, "a", 1), (5, "b", 2, 3)])
def test_a_seed_for_libraries_fits_them(key: tuple[int, str, int]) -> None:
    assert 0 <= seed_of(*key) < 2**63
