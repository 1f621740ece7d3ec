"""docker-compose.yml and the manifests beside it, read as the programs that use them would."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from console.main import COMMANDS, LazyCommand
from health.settings import NodeSettings
from workers.settings import ControllerSettings

ROOT = Path(__file__).parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_SHOT = ("temporal-schema", "temporal-namespace")
OUR_IMAGE = "sickbay:"
MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / name).read_text(encoding="utf-8")))


def settings_known(settings: type[ControllerSettings] | type[NodeSettings]) -> set[str]:
    return {f"SICKBAY_{name.upper()}" for name in settings.model_fields}


def test_it_has_temporal_its_database_its_ui_the_controller_and_prometheus() -> None:
    assert {"postgresql", "temporal", "temporal-ui", "controller", "prometheus", *ONE_SHOT} == set(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned_by_a_tag_that_says_a_version(name: str) -> None:
    assert re.search(r":v?\d+\.\d+", SERVICES[name]["image"])


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in ONE_SHOT])
def test_every_lasting_service_restarts_and_shows_its_health(name: str) -> None:
    assert SERVICES[name]["restart"] == "unless-stopped"
    assert SERVICES[name]["healthcheck"]["test"]


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_starts_before_what_it_needs_is_well(name: str) -> None:
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        ends = needed in ONE_SHOT
        assert how["condition"] == ("service_completed_successfully" if ends else "service_healthy")


def test_ports_are_distinct_and_open_to_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert {port.split(":")[1] for port in ports} == {"7233", "8080", "9090", "9464"}
    assert len(ports) == len(set(ports))


@pytest.mark.parametrize("name", SERVICES)
def test_every_file_that_is_mounted_is_in_the_repository(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source = volume.split(":")[0]
        if source.startswith("./"):
            assert (ROOT / source).is_file()


def test_the_controller_serves_where_its_healthcheck_its_port_and_prometheus_look() -> None:
    controller = SERVICES["controller"]
    port = ControllerSettings.model_fields["serve_port"].default
    assert f"127.0.0.1:{port}:{port}" in controller["ports"]
    assert f":{port}/healthz" in controller["healthcheck"]["test"][-1]
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    targets = {target for job in scraped for config in job["static_configs"] for target in config["targets"]}
    sdk_port = controller["environment"]["SICKBAY_TEMPORAL_METRICS_PORT"]
    assert targets == {f"controller:{port}", f"controller:{sdk_port}"}


def test_every_service_of_our_image_runs_a_command_that_exists() -> None:
    ours = [service for service in SERVICES.values() if service["image"].startswith(OUR_IMAGE)]
    commands = [service["command"] for service in ours]
    manifests = [document for file in ("controller.yaml", "node-daemonset.yaml") for document in documents(file)]
    containers = [each for made in manifests for each in made["spec"]["template"]["spec"]["containers"]]
    commands += [container["args"] for container in containers]
    for command, *rest in commands:
        module, summary = COMMANDS[command]
        assert isinstance(LazyCommand(command, module, summary).load(), typer.core.TyperCommand)
        assert not rest


def test_every_setting_that_is_given_is_one_that_is_read() -> None:
    given = {name for name in SERVICES["controller"]["environment"] if name.startswith("SICKBAY_")}
    assert given <= settings_known(ControllerSettings)
    for file, settings in (("controller.yaml", ControllerSettings), ("node-daemonset.yaml", NodeSettings)):
        (container,) = documents(file)[0]["spec"]["template"]["spec"]["containers"]
        names = {entry["name"] for entry in container["env"] if entry["name"].startswith("SICKBAY_")}
        assert names <= settings_known(settings)


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_every_manifest_is_whole(file: Path) -> None:
    for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
        assert {"apiVersion", "kind", "metadata"} <= document.keys()
        assert document["metadata"]["name"]


def test_no_right_is_given_by_wildcard_and_none_to_delete_nodes_or_pods() -> None:
    for document in documents("rbac.yaml"):
        for rule in document.get("rules", []):
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if {"nodes", "pods"} & set(rule["resources"]):
                assert "delete" not in rule["verbs"]


@pytest.mark.parametrize("file", ["controller.yaml", "node-daemonset.yaml"])
def test_a_pod_probes_the_port_that_its_process_serves(file: str) -> None:
    (container,) = documents(file)[0]["spec"]["template"]["spec"]["containers"]
    settings = ControllerSettings if file == "controller.yaml" else NodeSettings
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["http"] == settings.model_fields["serve_port"].default
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "http"
