"""Distributions of flow sizes that were measured in data centers, and how sizes are drawn from them."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import pairwise

from mininet_topos.errors import BadExperiment


@dataclass(frozen=True, slots=True)
class SizeDistribution:
    """A cumulative distribution of sizes, linear between its points.

    A point is (bytes, share of the flows up to that size); the shares rise from 0 to 1. Two points with the
    same size are a step: that share of the flows has exactly this size. Raises BadExperiment.
    """

    name: str
    source: str
    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        shares = [share for _, share in self.points]
        if len(shares) < 2 or shares[0] != 0 or shares[-1] != 1:
            raise BadExperiment(f"{self.name}: the shares must go from 0 to 1")
        if (
            list(self.points) != sorted(self.points)
            or len(set(shares)) < len(shares)
            or self.points[0][0] < 0
        ):
            raise BadExperiment(f"{self.name}: sizes must not fall, and shares must rise")

    @property
    def mean_bytes(self) -> float:
        """The mean."""
        return sum((p - q) * (x + y) / 2 for (y, q), (x, p) in pairwise(self.points))

    @property
    def deviation_bytes(self) -> float:
        """The standard deviation."""
        second = sum((p - q) * (x * x + x * y + y * y) / 3 for (y, q), (x, p) in pairwise(self.points))
        return math.sqrt(second - self.mean_bytes**2)

    def quantile(self, share: float) -> int:
        """Return the size in bytes, at least 1, that a `share` of the flows does not exceed."""
        at = max(bisect_left(self.points, share, key=lambda point: point[1]), 1)
        (y, q), (x, p) = self.points[at - 1], self.points[at]
        return max(math.ceil(y + (x - y) * (share - q) / (p - q)), 1)

    def sample(self, chance: random.Random) -> int:
        """Draw a size in bytes."""
        return self.quantile(chance.random())

    def capped(self, most_bytes: int) -> SizeDistribution:
        """Return the distribution with larger flows reduced to `most_bytes`, for slow links."""
        if not self.points[0][0] < most_bytes:
            raise BadExperiment(f"{self.name}: most_bytes is {most_bytes}; want more than the smallest size")
        if most_bytes >= self.points[-1][0]:
            return self
        at = next(i for i, (size, _) in enumerate(self.points) if size >= most_bytes)
        (y, q), (x, p) = self.points[at - 1], self.points[at]
        share = q + (p - q) * (most_bytes - y) / (x - y)
        points = (*self.points[:at], (float(most_bytes), share), (float(most_bytes), 1.0))
        return replace(self, name=f"{self.name}, at most {most_bytes} bytes", points=points)


def fixed(size_bytes: int) -> SizeDistribution:
    """Return the distribution in which every flow has the same size."""
    return SizeDistribution(f"{size_bytes} bytes", "", ((size_bytes, 0.0), (size_bytes, 1.0)))


WEB_SEARCH = SizeDistribution(
    "web search",
    "Alizadeh et al., Data Center TCP (DCTCP), SIGCOMM 2010, figure 4; points as in its authors' "
    "empirical-traffic-gen (DCTCP_CDF)",
    (
        (0, 0.0),
        (10_000, 0.15),
        (20_000, 0.2),
        (30_000, 0.3),
        (50_000, 0.4),
        (80_000, 0.53),
        (200_000, 0.6),
        (1_000_000, 0.7),
        (2_000_000, 0.8),
        (5_000_000, 0.9),
        (10_000_000, 0.97),
        (30_000_000, 1.0),
    ),
)

DATA_MINING = SizeDistribution(
    "data mining",
    "Greenberg et al., VL2, SIGCOMM 2009, figure 2; points as in empirical-traffic-gen (VL2_CDF)",
    (
        (0, 0.0),
        (180, 0.1),
        (216, 0.2),
        (560, 0.3),
        (900, 0.4),
        (1_100, 0.5),
        (1_870, 0.6),
        (3_160, 0.7),
        (10_000, 0.8),
        (400_000, 0.9),
        (3_160_000, 0.95),
        (100_000_000, 0.98),
        (1_000_000_000, 1.0),
    ),
)

HADOOP = SizeDistribution(
    "Hadoop",
    "Roy et al., Inside the Social Network's (Datacenter) Network, SIGCOMM 2015, figure 6; points as in the "
    "traffic generator of HPCC's authors (FbHdp_distribution)",
    (
        (0, 0.0),
        (100, 0.01),
        (200, 0.02),
        (300, 0.05),
        (350, 0.15),
        (400, 0.2),
        (500, 0.3),
        (600, 0.4),
        (700, 0.5),
        (1_000, 0.6),
        (2_000, 0.67),
        (7_000, 0.7),
        (30_000, 0.72),
        (50_000, 0.82),
        (80_000, 0.87),
        (120_000, 0.9),
        (300_000, 0.95),
        (1_000_000, 0.975),
        (2_000_000, 0.99),
        (10_000_000, 1.0),
    ),
)

DISTRIBUTIONS = {"web-search": WEB_SEARCH, "data-mining": DATA_MINING, "hadoop": HADOOP}
