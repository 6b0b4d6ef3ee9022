"""Orders that need no memory: of the blocks of an epoch, and of the corpora of a mixture."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from antiphon.draws import generator


def permute(places: np.ndarray, size: int, seed: int, epoch: int, source: int = 0) -> np.ndarray:
    """A keyed bijection of 0 .. size-1, computed point by point: no array of the permutation is ever made.

    A generalised Feistel network on pairs (left below a, right below b) with a * b just above `size`; the few values
    that fall outside are walked on until they fall inside (cycle walking).

    Args:
        places: (N,) integers below `size`.
        size: how many there are.
        seed, epoch, source: the key.

    Source: Black and Rogaway 2002, "Ciphers with arbitrary finite domains", sections 3 to 5.
    """
    if size <= 1:
        return places.copy()
    lefts = math.isqrt(size - 1) + 1
    a, b = np.uint64(lefts), np.uint64(-(-size // lefts))
    values = places.astype(np.uint64)
    pending = np.arange(len(values))
    while len(pending):
        left, right = np.divmod(values[pending], b)
        for even, odd in _keys(seed, epoch, source):
            left = (left + hashed(right ^ even) % a) % a
            right = (right + hashed(left ^ odd) % b) % b
        values[pending] = left * b + right
        pending = pending[values[pending] >= np.uint64(size)]
    return values.astype(places.dtype)


@dataclasses.dataclass(frozen=True)
class Turns:
    """Whose turn it is: of any W consecutive turns, W the sum of the weights, each source gets exactly its weight.

    Attributes:
        weights: of the sources.
    """

    weights: tuple[int, ...]

    @functools.cached_property
    def _cycle(self) -> tuple[np.ndarray, np.ndarray]:
        """(W,) int64 each: the owner of each turn of a cycle, and how many turns it had before in the cycle."""
        total = sum(self.weights)
        # Turn n has the place n * stride modulo W on a ring that the weights divide: a walk over all places, as the
        # stride is coprime to W, that spreads the turns of one source out.
        places = np.arange(total) * stride(total) % total
        owners = np.searchsorted(np.cumsum(self.weights), places, side="right")
        before = np.zeros(total, dtype=np.int64)
        for number, weight in enumerate(self.weights):
            before[owners == number] = np.arange(weight)
        return owners, before

    def of(self, turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whose turns these are, and the how-manieth of that source each is.

        Args:
            turns: (N,) non-negative integers.

        Returns:
            owners: (N,) int64, number of the source.
            counts: (N,) int64, turns that this source had before.
        """
        owners, before = self._cycle
        cycles, places = np.divmod(turns, len(owners))
        mine = owners[places]
        return mine, cycles * np.array(self.weights)[mine] + before[places]


def stride(total: int) -> int:
    """A number coprime to `total` near total / 1.618: its multiples are spread evenly over a ring of that size."""
    found = max(1, round(total * 0.618))
    while math.gcd(found, total) != 1:
        found += 1
    return found


@functools.lru_cache(maxsize=64)
def _keys(seed: int, epoch: int, source: int) -> np.ndarray:
    """(3, 2) uint64: the keys of the rounds, kept because every step asks for them."""
    return generator(seed, "rows", epoch, source).integers(0, 2**64, size=(3, 2), dtype=np.uint64)


def hashed(values: np.ndarray) -> np.ndarray:
    """(N,) uint64: numbers that look drawn, each a function of the (N,) uint64 number it stands for.

    Source: the finaliser of splitmix64 (Steele et al. 2014): every input bit reaches every output bit.
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
