"""The EFA network interfaces of instances, which moto does not know: put into its answers to DescribeInstances."""

from collections.abc import Mapping
from xml.etree.ElementTree import Element, fromstring, tostring

from simulator.cloud.instances import Instance
from simulator.cloud.wire import element


def with_efa_interfaces(answer: bytes, instances: Mapping[str, Instance]) -> bytes:
    """moto's answer with each instance's EFA interfaces beside the one that moto gave it."""
    if not any(instance.efa_interfaces for instance in instances.values()):
        return answer
    root = fromstring(answer)
    for described in root.iterfind(".//{*}instancesSet/{*}item"):
        instance = instances.get(described.findtext("{*}instanceId", ""))
        interfaces = described.find("{*}networkInterfaceSet")
        if instance is not None and interfaces is not None:
            namespace = described.tag.removesuffix("item")
            interfaces.extend(_efa(namespace, number) for number in range(instance.efa_interfaces))
    return tostring(root, encoding="unicode").encode()


def _efa(namespace: str, number: int) -> Element:
    return element(
        f"{namespace}item",
        element(f"{namespace}networkInterfaceId", f"eni-efa{number:014x}"),
        element(f"{namespace}interfaceType", "efa"),
    )
