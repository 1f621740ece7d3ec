"""Pods whose containers are real local processes: how one is started, what it sees, and how it ends.

Used by the kubelets for pods that bear `RUN_PROCESS`. There are no containers and no network of their own, so three
things stand in: each pod has an address in 127.20.0.0/16, a folder of the host is reached by rewriting the variables
that name its mount, and names of pods (`job-0.service`) are in a hosts file that every process is told of.
"""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from simulator.cluster.objects import Container, EnvironmentVariable, Pod

RUN_PROCESS = "simulator.sickbay.dev/run-process"
"""Pod annotation `true`: its first container's command is run on this machine."""
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation of an Indexed Job's pods, which Kubernetes also gives them as JOB_COMPLETION_INDEX."""
LOG_KEPT = 4 << 20
"""Bytes of a log that are served, its end."""


@dataclass
class Running:
    """One pod's process."""

    process: asyncio.subprocess.Process
    folder: Path
    boot_id: str

    @property
    def exit_code(self) -> int | None:
        """As a container tells it: 128 + n for signal n. None while it runs."""
        code = self.process.returncode
        return code if code is None or code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        """To the whole group, as a container's end does."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class PodProcesses:
    """All of them, by pod UID."""

    def __init__(self, folder: Path) -> None:
        """`folder` gets a folder for each pod, and the hosts file."""
        self._folder = folder
        self._hosts = folder / "hosts"
        self._running: dict[str, Running] = {}
        self._logs: dict[tuple[str, str], Path] = {}
        self._addresses: dict[str, str] = {}

    def address_of(self, pod: Pod) -> str:
        """The pod's own address."""
        number = len(self._addresses)
        return self._addresses.setdefault(pod.metadata.uid, f"127.20.{number // 250}.{number % 250 + 1}")

    def find(self, pod: Pod) -> Running | None:
        """The pod's process, running or ended."""
        return self._running.get(pod.metadata.uid)

    async def start(self, pod: Pod, host: Path, boot_id: str) -> None:
        """Run the pod's command. Raises OSError if it cannot be run."""
        folder = self._folder / f"{pod.name}-{pod.metadata.uid[:8]}"
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "log"
        self._logs[(pod.metadata.namespace, pod.name)] = log
        address = self.address_of(pod)
        self._name(pod, address)
        container = pod.spec.containers[0]
        environment = {**os.environ, **self._environment(pod, container, host, address)}
        words = [_expanded(word, environment) for word in (*container.command, *container.args)]
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *words, stdout=output, stderr=output, cwd=folder, env=environment, start_new_session=True
            )
        (folder / "pid").write_text(str(process.pid), encoding="ascii")
        self._running[pod.metadata.uid] = Running(process, folder, boot_id)

    async def end(self, pod: Pod, grace: float) -> None:
        """Ask it to end, and make it after `grace` real seconds."""
        running = self._running.pop(pod.metadata.uid, None)
        if running is None:
            return
        running.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await running.process.wait()
        except TimeoutError:
            running.signal(signal.SIGKILL)
            await running.process.wait()

    async def lose(self, uid: str) -> None:
        """Its machine is gone: the process is gone at once."""
        running = self._running.get(uid)
        if running is not None:
            running.signal(signal.SIGKILL)
            await running.process.wait()

    def boots(self) -> Mapping[str, str]:
        """The boot in which each process was started, by pod UID."""
        return {uid: running.boot_id for uid, running in self._running.items() if running.exit_code is None}

    def forget(self, known: set[str]) -> None:
        """Logs and processes of pods that are gone."""
        for uid in set(self._running) - known:
            self._running[uid].signal(signal.SIGKILL)
            del self._running[uid]

    def log_of(self, namespace: str, name: str) -> bytes | None:
        """What a pod printed, its end; None for a pod without a process."""
        path = self._logs.get((namespace, name))
        if path is None or not path.exists():
            return None
        return path.read_bytes()[-LOG_KEPT:]

    async def close(self) -> None:
        """End everything."""
        for running in self._running.values():
            running.signal(signal.SIGKILL)
        await asyncio.gather(*(running.process.wait() for running in self._running.values()))

    def _name(self, pod: Pod, address: str) -> None:
        """Write the pod's names into the hosts file, in one piece; the newest line of a name holds."""
        names = [pod.name, pod.spec.hostname] if pod.spec.hostname else [pod.name]
        if pod.spec.hostname and pod.spec.subdomain:
            names.append(f"{pod.spec.hostname}.{pod.spec.subdomain}")
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._hosts.open("a", encoding="ascii") as file:
            file.write(f"{address} {' '.join(names)}\n")

    def _environment(self, pod: Pod, container: Container, host: Path, address: str) -> dict[str, str]:
        mounts = _mounts(pod, container, host)
        values = {"SIMULATOR_HOSTS": str(self._hosts), "SIMULATOR_HOST": str(host), "POD_IP": address}
        if (index := pod.metadata.annotations.get(COMPLETION_INDEX)) is not None:
            values["JOB_COMPLETION_INDEX"] = index
        for variable in container.env:
            text = variable.value if variable.value_from is None else self._referred(pod, variable, address)
            values[variable.name] = _mounted(_expanded(text, values), mounts)
        return values

    def _referred(self, pod: Pod, variable: EnvironmentVariable, address: str) -> str:
        reference = variable.value_from.field_ref.field_path if variable.value_from else ""
        known = {
            "metadata.name": pod.name,
            "metadata.namespace": pod.metadata.namespace,
            "metadata.uid": pod.metadata.uid,
            "spec.nodeName": pod.spec.node_name,
            "status.podIP": address,
            "status.hostIP": "127.0.0.1",
        }
        if reference in known:
            return known[reference]
        kind, _, key = reference.partition("['")
        words = pod.metadata.annotations if kind == "metadata.annotations" else pod.metadata.labels
        return words.get(key.rstrip("']"), "")


def _mounts(pod: Pod, container: Container, host: Path) -> dict[str, str]:
    """Paths in the container, and the folders of the machine that stand for them."""
    sources = {volume.name: volume.host_path.path for volume in pod.spec.volumes if volume.host_path is not None}
    mounts = {}
    for mount in container.volume_mounts:
        if mount.name in sources:
            folder = host / sources[mount.name].lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
            mounts[mount.mount_path] = str(folder)
    return mounts


def _mounted(text: str, mounts: Mapping[str, str]) -> str:
    for path, folder in mounts.items():
        if text == path or text.startswith(path + "/"):
            return folder + text[len(path) :]
    return text


def _expanded(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)`, as Kubernetes expands it."""
    for name, value in values.items():
        text = text.replace(f"$({name})", value)
    return text
