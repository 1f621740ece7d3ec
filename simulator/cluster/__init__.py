"""The behaviours of a cluster: kubelets, scheduler, controllers, Karpenter."""

from simulator.cluster.cluster import Cluster, PoolKind
from simulator.cluster.manifests import JobOrder
from simulator.cluster.world import Timings

__all__ = ["Cluster", "JobOrder", "PoolKind", "Timings"]
