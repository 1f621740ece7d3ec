"""Whether it pays to leave a slow node now, or to bear it.

Called by `sickbay.training.slow_nodes`. It knows no prices: all is time of the whole job (facts: training, 5, cost
test).
"""

from datetime import timedelta


def worth_removing(
    slowdown: float,
    remaining: timedelta,
    restart_cost: timedelta,
    lost_work: timedelta,
    spare_wait: timedelta,
) -> bool:
    """Whether the time that the rest of the job would save is more than leaving takes.

    `slowdown` is the step's time over that without the slow rank; `remaining` the job's rest at the present pace;
    `restart_cost` from the end of one attempt to the first step of the next; `lost_work` since the last checkpoint;
    `spare_wait` until another node is there.
    """
    if not slowdown > 1:
        return False
    saved = remaining * ((slowdown - 1) / slowdown)
    return saved > restart_cost + lost_work + spare_wait
