"""The behaviours of a cluster: kubelets, scheduler, controllers, Karpenter."""

from simulator.cluster.cluster import Cluster
from simulator.cluster.manifests import JobOrder
from simulator.cluster.world import Timings
from simulator.pool_kind import PoolKind

__all__ = ["Cluster", "JobOrder", "PoolKind", "Timings"]
