"""What a ceiling in absolute numbers and per cent comes to for a pool of a given size.

Shared by the disruption budget and by containment, which must round alike.
"""

from fractions import Fraction
from math import ceil

from sickbay.policy.model import Limit


def ceiling(limit: Limit, size: int) -> int:
    """How many nodes of a pool of `size` the limit allows; the smaller of its two halves, the per cent rounded up.

    Rounded up, so that a small pool is not blocked for ever (Karpenter issues 2134, 2321). Exact: 10 per cent of 30
    nodes is 3 and never 4, whatever a float makes of it.
    """
    return min(limit.count, ceil(Fraction(str(limit.percent)) * size / 100))
