"""A simulated Kubernetes API server that real clients talk to over HTTP.

`KubeServer` serves it; `write_kubeconfig` tells clients where. It holds objects and the rules of the API alone: what
kubelets, schedulers and controllers do is the affair of the simulated cluster, a client like all others. The contract
suite `tests/simulator/test_kube_contract.py` runs against it and against a real kube-apiserver.
"""

from simulator.kube.faults import FaultOrder, RequestFault, Trouble
from simulator.kube.kubeconfig import kubeconfig, write_kubeconfig
from simulator.kube.server import KubeServer

__all__ = ["FaultOrder", "KubeServer", "RequestFault", "Trouble", "kubeconfig", "write_kubeconfig"]
