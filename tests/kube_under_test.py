"""One API server as a test sees it: simulated or real, with what tests need most often.

Made by the fixture `kube_server` of `tests.kube_servers`. Neither server has a kubelet or controllers, so that a test
says itself what those would write, through the conveniences here.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import client

from simulator.kube import KubeServer
from simulator.kube.requests import MERGE_PATCH, STRATEGIC_PATCH


class KubeRequestError(Exception):
    """An answer of 400 or more to a raw request."""

    def __init__(self, code: int, status: dict[str, Any], headers: Mapping[str, str]) -> None:
        super().__init__(f"{code}: {status}")
        self.code = code
        self.status = status
        self.headers = headers


@dataclass
class KubeUnderTest:
    """One API server, simulated or real, with what tests need most often."""

    url: str
    simulator: KubeServer | None
    """For tests of trouble that can only be ordered of the simulated server."""
    token: str = ""
    authority: Path | None = None
    """What a client must trust that checks certificates."""
    _clients: AsyncExitStack = field(default_factory=AsyncExitStack)
    _session: aiohttp.ClientSession | None = None

    @property
    def is_real(self) -> bool:
        """Whether it is a real kube-apiserver."""
        return self.simulator is None

    def configuration(self) -> client.Configuration:
        """Settings for a client of one's own."""
        keys = {"BearerToken": f"Bearer {self.token}"} if self.token else None
        return client.Configuration(host=self.url, api_key=keys, verify_ssl=False)

    def api_client(self) -> client.ApiClient:
        """A client, closed at the end of the test."""
        made = client.ApiClient(self.configuration())
        self._clients.push_async_callback(made.close)
        return made

    @cached_property
    def core(self) -> client.CoreV1Api:
        """The core API."""
        return client.CoreV1Api(self.api_client())

    async def create_node(
        self,
        name: str,
        *,
        ready: str = "True",
        boot_id: str = "boot-1",
        gpus: int = 8,
        provider_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        unschedulable: bool = False,
        conditions: Sequence[Mapping[str, str]] = (),
        finalizers: Sequence[str] = (),
    ) -> dict[str, Any]:
        """A node with its status as a kubelet would have written it; `conditions` come beside Ready."""
        metadata = {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": dict(annotations or {}),
            "finalizers": list(finalizers),
        }
        spec: dict[str, Any] = {"unschedulable": unschedulable, "taints": [dict(taint) for taint in taints]}
        if provider_id:
            spec["providerID"] = provider_id
        await self.request("POST", "/api/v1/nodes?fieldManager=kubelet", {"metadata": metadata, "spec": spec})
        written = [_condition("Ready", ready), *({**_condition("", ""), **entry} for entry in conditions)]
        status = {
            "conditions": written,
            "nodeInfo": _node_info(boot_id),
            "capacity": {"cpu": "96", "nvidia.com/gpu": str(gpus)},
            "allocatable": {"cpu": "96", "nvidia.com/gpu": str(gpus)},
        }
        return await self.set_node_status(name, status)

    async def set_node_status(self, name: str, status: Mapping[str, Any]) -> dict[str, Any]:
        """Merge something into a node's status, conditions by type, as the kubelet does."""
        place = f"/api/v1/nodes/{name}/status?fieldManager=kubelet"
        return await self.request("PATCH", place, {"status": dict(status)}, STRATEGIC_PATCH)

    async def create_pod(
        self,
        name: str,
        *,
        node: str = "",
        namespace: str = "default",
        phase: str = "Running",
        ready: bool = True,
        gpus: int = 0,
        grace: int = 30,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        owner: Mapping[str, Any] | None = None,
        finalizers: Sequence[str] = (),
        tolerations: Sequence[Mapping[str, str]] = (),
        node_selector: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """A pod, on a node if one is named, in the phase given. `owner` needs kind and name, and is its controller."""
        container: dict[str, Any] = {"name": "main", "image": "trainer:1"}
        if gpus:
            container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
        metadata: dict[str, Any] = {
            "name": name,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
            "finalizers": list(finalizers),
            "ownerReferences": [_owner_reference(owner)] if owner else [],
        }
        spec: dict[str, Any] = {
            "containers": [container],
            "terminationGracePeriodSeconds": grace,
            "tolerations": [dict(toleration) for toleration in tolerations],
            "nodeSelector": dict(node_selector or {}),
        }
        if node:
            spec["nodeName"] = node
        await self.request("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": spec})
        return await self.set_pod_status(name, namespace=namespace, phase=phase, ready=ready)

    async def set_pod_status(
        self, name: str, *, namespace: str = "default", phase: str = "Running", ready: bool = True
    ) -> dict[str, Any]:
        """What a kubelet says of a pod."""
        state = "True" if ready and phase == "Running" else "False"
        status = {"phase": phase, "conditions": [_condition("Ready", state)]}
        place = f"/api/v1/namespaces/{namespace}/pods/{name}/status?fieldManager=kubelet"
        return await self.request("PATCH", place, {"status": status}, STRATEGIC_PATCH)

    async def finish_pod(self, name: str, *, namespace: str = "default") -> None:
        """Let a terminating pod go, as its kubelet does once the containers have stopped."""
        await self.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0})

    async def create_budget(
        self,
        name: str,
        *,
        labels: Mapping[str, str],
        allowed: int,
        healthy: int = 3,
        desired: int = 2,
        namespace: str = "default",
        observed: bool = True,
        unhealthy_pods: str | None = None,
    ) -> dict[str, Any]:
        """A PodDisruptionBudget over these labels, with the status that the disruption controller would have set."""
        spec: dict[str, Any] = {"minAvailable": desired, "selector": {"matchLabels": dict(labels)}}
        if unhealthy_pods:
            spec["unhealthyPodEvictionPolicy"] = unhealthy_pods
        collection = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        made = await self.request("POST", collection, {"metadata": {"name": name}, "spec": spec})
        status = {
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": healthy,
            "observedGeneration": made["metadata"]["generation"] if observed else 0,
        }
        return await self.request("PATCH", f"{collection}/{name}/status", {"status": status}, MERGE_PATCH)

    async def create_karpenter(self, plural: str, name: str, **parts: Any) -> dict[str, Any]:
        """A NodePool or NodeClaim; `parts` are `spec`, `metadata` and `status`."""
        status = parts.pop("status", None)
        kind = {"nodepools": "NodePool", "nodeclaims": "NodeClaim"}[plural]
        metadata = {**parts.pop("metadata", {}), "name": name}
        body = {"apiVersion": "karpenter.sh/v1", "kind": kind, "spec": {}, **parts, "metadata": metadata}
        collection = f"/apis/karpenter.sh/v1/{plural}"
        made = await self.request("POST", collection, body)
        if status is not None:
            made = await self.request("PATCH", f"{collection}/{name}/status", {"status": status}, MERGE_PATCH)
        return made

    def plain(self, model: object) -> dict[str, Any]:
        """What the typed client returned, as JSON has it."""
        made: dict[str, Any] = self.core.api_client.sanitize_for_serialization(model)
        return made

    async def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """One request as it is on the wire, for what the typed client hides. Raises KubeRequestError."""
        session = await self._raw_session()
        headers = {"Content-Type": content_type, "User-Agent": "raw/1"}
        data = None if body is None else json.dumps(body)
        async with session.request(method, self.url + path, data=data, headers=headers, ssl=False) as response:
            answer: dict[str, Any] = await response.json(content_type=None)
            if response.status >= 400:
                raise KubeRequestError(response.status, answer, dict(response.headers))
            return answer

    async def close(self) -> None:
        """Close all clients, and leave a real server as it was found."""
        if self.is_real:
            await self._clean()
        await self._clients.aclose()

    async def _raw_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            authorization = {"Authorization": f"Bearer {self.token}"} if self.token else {}
            session = aiohttp.ClientSession(headers=authorization, timeout=aiohttp.ClientTimeout(total=10))
            self._session = await self._clients.enter_async_context(session)
        return self._session

    async def _clean(self) -> None:
        """Remove whatever tests make, finalizers and grace notwithstanding."""
        for path in _CLEANED:
            for item in (await self.request("GET", path))["items"]:
                metadata = item["metadata"]
                namespace = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
                prefix, plural = path.rsplit("/", 1)
                place = f"{prefix}{namespace}/{plural}/{metadata['name']}"
                if metadata.get("finalizers"):
                    await self._try("PATCH", place, {"metadata": {"finalizers": None}}, MERGE_PATCH)
                await self._try("DELETE", place, {"gracePeriodSeconds": 0})

    async def _try(self, method: str, path: str, body: Any, content_type: str = "application/json") -> None:
        """A request about an object that may be gone by now, which is as good."""
        try:
            await self.request(method, path, body, content_type)
        except KubeRequestError as refusal:
            if refusal.code != 404:
                raise


_CLEANED = (
    "/api/v1/pods",
    "/api/v1/events",
    "/api/v1/nodes",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/batch/v1/jobs",
    "/apis/apps/v1/daemonsets",
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/apis/karpenter.sh/v1/nodeclaims",
    "/apis/karpenter.sh/v1/nodepools",
)


def _condition(kind: str, status: str) -> dict[str, str]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    beat = {"lastTransitionTime": now, "reason": "Test", "message": ""}
    return {"type": kind, "status": status, **beat}


def _node_info(boot_id: str) -> dict[str, str]:
    fields = ("machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion")
    rest = {"kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"}
    return {**dict.fromkeys(fields, "test"), **rest, "bootID": boot_id}


def _owner_reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "uid": f"uid-of-{owner['name']}", "controller": True, **owner}
