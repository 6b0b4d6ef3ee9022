"""Random draws that depend on names and numbers, never on what was drawn before.

Counter-based generators (Philox 4x64, Salmon et al. 2011, as numpy has it) make a draw a pure function of
(seed, purpose, counters): the same on every device, process and resume.
"""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, purpose: str, *counters: int) -> np.random.Generator:
    """A generator of its own for one purpose.

    Args:
        seed: the run's seed, any integer.
        purpose: what the draws are for ("mask", "rows", ...); different purposes never share a stream.
        counters: up to three non-negative integers (step, row, ...).

    Returns:
        A numpy generator whose stream is disjoint from that of any other arguments.
    """
    if len(counters) > 3:
        raise ValueError(f"at most 3 counters key a generator, got {len(counters)}")
    digest = hashlib.blake2b(f"{seed}|{purpose}".encode(), digest_size=16).digest()
    key = np.frombuffer(digest, dtype=np.uint64)
    # The lowest counter word is left to the stream itself: 2**64 blocks before two streams could meet.
    counter = np.array([0, *counters, *[0] * (3 - len(counters))], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def seed_of(seed: int, purpose: str, *counters: int) -> int:
    """A 63-bit integer for libraries that want a seed rather than a generator (torch.manual_seed)."""
    text = "|".join([str(seed), purpose, *map(str, counters)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
