"""The kubeconfig by which real Kubernetes clients reach the simulated API server."""

import json
from pathlib import Path
from typing import Any

NAME = "sickbay-simulator"


def kubeconfig(url: str) -> dict[str, Any]:
    """A kubeconfig for a server at `url`; there is no user to be, since the server asks for none."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": url}}],
        "users": [{"name": NAME, "user": {}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "current-context": NAME,
    }


def write_kubeconfig(path: Path, url: str) -> None:
    """Write it to a file. JSON is YAML, so that every client reads it."""
    path.write_text(json.dumps(kubeconfig(url), indent=2) + "\n", encoding="utf-8")
