"""Pods whose containers are real local processes: how one is started, what it sees, and how it ends.

Used by the kubelets for pods that bear `RUN_PROCESS`. There are no containers and no network of their own, so three
things stand in: each pod has an address in this cluster's own part of 127.0.0.0/8, a folder of the host is reached by
rewriting the variables that name its mount, and names of pods (`job-0.service`) are in a hosts file that every process
is told of. As a container does, a pod ends with its first process: what that one leaves behind is killed.
"""

import asyncio
import errno
import itertools
import os
import re
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simulator.cluster.objects import Container, EnvironmentVariable, Pod

RUN_PROCESS: Final = "simulator.sickbay.dev/run-process"
"""Pod annotation `true`: its first container's command is run on this machine."""
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Annotation of an Indexed Job's pods, which Kubernetes also gives them as JOB_COMPLETION_INDEX."""
LOG_KEPT: Final = 4 << 20
"""Bytes of a log that are served, its end."""
CANNOT_RUN: Final = 128
"""Exit code of a container whose command cannot be run."""
NETWORKS: Final = range(20, 250)
"""Second numbers of the networks that clusters of this machine share."""
HOLDER: Final = ("255.254", 29_500)
"""Address and port inside its network that a cluster keeps for as long as it lives."""
_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^()]+)\))")


@dataclass
class Running:
    """One pod's process."""

    boot_id: str
    process: asyncio.subprocess.Process | None = None
    """None if the command could not be run."""
    cleaner: asyncio.Task[None] | None = None
    """Ends when no process of the pod is left."""

    @property
    def exit_code(self) -> int | None:
        """As a container tells it: 128 + n for signal n. None while it runs."""
        if self.process is None or self.cleaner is None:
            return CANNOT_RUN
        code = self.process.returncode if self.cleaner.done() else None
        return code if code is None or code >= 0 else 128 - code

    async def end(self, grace: float) -> None:
        """Ask the first process to end, and kill them all after `grace` real seconds."""
        if self.process is None or self.cleaner is None:
            return
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        await asyncio.wait({self.cleaner}, timeout=grace)
        await self.kill()

    async def kill(self) -> None:
        """End all its processes at once, and wait until they have."""
        self.kill_soon()
        if self.cleaner is not None:
            await asyncio.wait({self.cleaner})

    def kill_soon(self) -> None:
        """End all its processes, without a wait. Nothing happens once it has ended: its number may be another's."""
        if self.process is not None and self.process.returncode is None:
            _kill_group(self.process.pid)


class PodProcesses:
    """All of them, by pod UID."""

    def __init__(self, folder: Path) -> None:
        """`folder` gets a folder for each pod, and the hosts file."""
        self._folder = folder
        self._hosts = folder / "hosts"
        self._running: dict[str, Running] = {}
        self._logs: dict[tuple[str, str], tuple[str, Path]] = {}
        """The UID of the pod of this name, and where its log is."""
        self._addresses: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._network: tuple[str, socket.socket] | None = None
        self._cleaners: set[asyncio.Task[None]] = set()

    def address_of(self, pod: Pod) -> str:
        """The pod's own address, which no pod of any cluster on this machine shares."""
        if pod.metadata.uid not in self._addresses:
            self._network = self._network or _own_network()
            third, fourth = divmod(next(self._numbers), 250)
            self._addresses[pod.metadata.uid] = f"{self._network[0]}.{third}.{fourth + 1}"
        return self._addresses[pod.metadata.uid]

    def find(self, pod: Pod) -> Running | None:
        """The pod's process, running or ended."""
        return self._running.get(pod.metadata.uid)

    async def start(self, pod: Pod, host: Path, boot_id: str) -> None:
        """Run the pod's command, once a boot. One that cannot be run has ended with `CANNOT_RUN`; its log says why."""
        known = self.find(pod)
        if known is not None and known.boot_id == boot_id:
            return
        await self.lose(pod.metadata.uid)
        folder = self._folder / f"{pod.name}-{pod.metadata.uid[:8]}"
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "log"
        self._logs[(pod.metadata.namespace, pod.name)] = (pod.metadata.uid, log)
        address = self.address_of(pod)
        self._name(pod, address)
        container = pod.spec.containers[0]
        variables = self._environment(pod, container, host, address)
        words = [_expanded(word, variables) for word in (*container.command, *container.args)]
        process = None
        with log.open("ab") as output:
            try:
                process = await _spawned(words, folder, {**os.environ, **variables}, output.fileno())
            except OSError as error:
                output.write(f"exec: {error}\n".encode())
        if process is None:
            self._running[pod.metadata.uid] = Running(boot_id)
            return
        cleaner = asyncio.create_task(_clean_up(process), name=f"processes of {pod.name}")
        self._cleaners.add(cleaner)
        cleaner.add_done_callback(self._cleaners.discard)
        self._running[pod.metadata.uid] = Running(boot_id, process, cleaner)
        (folder / "pid").write_text(str(process.pid), encoding="ascii")

    async def end(self, pod: Pod, grace: float) -> None:
        """Ask it to end, and make it after `grace` real seconds."""
        # It stays known meanwhile: its machine may go down, and so may we.
        if (running := self.find(pod)) is not None:
            await running.end(grace)

    async def lose(self, uid: str) -> None:
        """Its machine is gone: the process is gone at once."""
        if (running := self._running.get(uid)) is not None:
            await running.kill()

    def forget(self, known: set[str]) -> None:
        """Logs, addresses and processes of pods that are gone."""
        for uid in set(self._running) - known:
            self._running.pop(uid).kill_soon()
        for uid in set(self._addresses) - known:
            del self._addresses[uid]
        self._logs = {name: log for name, log in self._logs.items() if log[0] in known}

    def log_of(self, namespace: str, name: str) -> bytes | None:
        """What a pod printed, its end; None for a pod without a process."""
        _, path = self._logs.get((namespace, name), ("", None))
        if path is None or not path.exists():
            return None
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_KEPT))
            return file.read()

    async def close(self) -> None:
        """End everything."""
        for running in self._running.values():
            running.kill_soon()
        await asyncio.gather(*self._cleaners)
        if self._network is not None:
            self._network[1].close()

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
            mounts[mount.mount_path.rstrip("/")] = str(folder)
    return mounts


def _mounted(text: str, mounts: Mapping[str, str]) -> str:
    """A path below a mount, or a `file://` URL of one, where it really is; the innermost mount counts."""
    scheme = "file://" if text.startswith("file://") else ""
    for path in sorted(mounts, key=len, reverse=True):
        rest = text.removeprefix(scheme + path)
        if rest != text and rest[:1] in ("", "/"):
            return scheme + mounts[path] + rest
    return text


def _expanded(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` and `$$`, as Kubernetes expands them: once, and nothing that it does not know."""
    return _REFERENCE.sub(lambda match: values.get(match[1], match[0]) if match[1] else "$", text)


async def _spawned(
    words: list[str], folder: Path, environment: Mapping[str, str], output: int
) -> asyncio.subprocess.Process:
    """A process that leads a group of its own. Raises OSError."""
    if not words:
        raise FileNotFoundError(errno.ENOENT, "the container has no command, and no image has one here")
    return await asyncio.create_subprocess_exec(
        *words, stdout=output, stderr=output, cwd=folder, env=environment, start_new_session=True
    )


async def _clean_up(process: asyncio.subprocess.Process) -> None:
    """Kill what a pod's first process has left behind; while any is left, no other group gets its number."""
    await process.wait()
    _kill_group(process.pid)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _own_network() -> tuple[str, socket.socket]:
    """The first free network, and what keeps it ours. Raises OSError if all are taken."""
    host, port = HOLDER
    for number in NETWORKS:
        holder = socket.socket()
        try:
            holder.bind((f"127.{number}.{host}", port))
        except OSError:
            holder.close()
            continue
        return f"127.{number}", holder
    raise OSError(errno.EADDRNOTAVAIL, f"{len(NETWORKS)} simulated clusters run on this machine already")
