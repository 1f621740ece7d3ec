"""The two XML dialects of EC2 and Auto Scaling: reading calls, writing answers and errors.

Only what the front answers itself goes through here; everything else is moto's own wire format.
"""

import re
import uuid
from collections.abc import Mapping
from enum import StrEnum
from urllib.parse import parse_qsl
from xml.etree.ElementTree import Element, tostring

from simulator.cloud.errors import AwsError

CREDENTIAL_SCOPE = re.compile(r"Credential=[^/]+/\d+/[^/]+/(?P<service>[a-z0-9-]+)/aws4_request")


class Service(StrEnum):
    """The services whose calls the front looks into, by their name in a signature."""

    EC2 = "ec2"
    AUTOSCALING = "autoscaling"


NAMESPACES = {
    Service.EC2: "http://ec2.amazonaws.com/doc/2016-11-15/",
    Service.AUTOSCALING: "http://autoscaling.amazonaws.com/doc/2011-01-01/",
}


class Call:
    """One call of the query protocol."""

    def __init__(self, service: Service, parameters: Mapping[str, str]) -> None:
        self.service = service
        self.action = parameters.get("Action", "")
        self._parameters = parameters

    def text(self, name: str, default: str = "") -> str:
        """One parameter."""
        return self._parameters.get(name, default)

    def flag(self, name: str, default: bool = False) -> bool:
        """One boolean parameter."""
        return self._parameters.get(name, str(default)).lower() == "true"

    def listed(self, name: str) -> list[str]:
        """A numbered list, e.g. `InstanceId.1`, `InstanceId.2`, in its order."""
        numbered = {
            int(key.removeprefix(f"{name}.")): value
            for key, value in self._parameters.items()
            if key.startswith(f"{name}.") and key.removeprefix(f"{name}.").isdigit()
        }
        return [numbered[index] for index in sorted(numbered)]

    def without(self, name: str) -> frozenset[tuple[str, str]]:
        """All parameters but one, to tell a repeated call from another one."""
        return frozenset((key, value) for key, value in self._parameters.items() if key != name)


def service_of(authorization: str) -> Service | None:
    """The service that a request is signed for, if it is one of those looked into."""
    scope = CREDENTIAL_SCOPE.search(authorization)
    return Service(scope["service"]) if scope and scope["service"] in list(Service) else None


def read_call(service: Service, body: bytes) -> Call:
    """A call out of a form body."""
    return Call(service, dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True)))


def element(tag: str, *content: "Element | str") -> Element:
    """An XML element of children or of text."""
    made = Element(tag)
    for part in content:
        if isinstance(part, str):
            made.text = part
        else:
            made.append(part)
    return made


def answer(call: Call, *content: Element) -> bytes:
    """The body of a success."""
    if call.service is Service.EC2:
        root = element(f"{call.action}Response", element("requestId", str(uuid.uuid4())), *content)
    else:
        root = element(
            f"{call.action}Response",
            element(f"{call.action}Result", *content),
            element("ResponseMetadata", element("RequestId", str(uuid.uuid4()))),
        )
    root.set("xmlns", NAMESPACES[call.service])
    return _document(root)


def refusal(service: Service, error: AwsError) -> bytes:
    """The body of an error."""
    told = element("Error", element("Code", error.code), element("Message", error.message))
    if service is Service.EC2:
        root = element("Response", element("Errors", told), element("RequestID", str(uuid.uuid4())))
    else:
        told.insert(0, element("Type", "Sender"))
        root = element("ErrorResponse", told, element("RequestId", str(uuid.uuid4())))
    return _document(root)


def _document(root: Element) -> bytes:
    return tostring(root, encoding="unicode", xml_declaration=False).encode()
