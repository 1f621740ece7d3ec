"""Who makes the nodes of a pool; apart, since scenarios are read where neither cloud nor cluster is installed."""

from enum import StrEnum


class PoolKind(StrEnum):
    """Who makes the nodes of a pool."""

    KARPENTER = "karpenter"
    AUTOSCALING = "autoscaling"
    NOBODY = "nobody"
