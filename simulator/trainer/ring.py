"""How the ranks of one attempt meet and add their gradients: sockets to rank 0, lines of JSON and raw arrays.

The sum is made on rank 0 in the order of the shards, whatever ranks computed them: so it is the same to the last bit
for any number of ranks. A peer that is lost ends every rank, as a collective does.
"""

import json
import os
import socket
import struct
import time
from pathlib import Path
from typing import Any, Final

PORT: Final = 29_500
MEET_SECONDS: Final = 60.0


class PeerLostError(Exception):
    """A peer closed its connection, or never came."""


class Ring:
    """The connections of one rank."""

    def __init__(self, rank: int, world: int, master: str) -> None:
        self.rank, self.world = rank, world
        self._peers: dict[int, socket.socket] = {}
        if world > 1:
            self._meet(master)

    def gather(self, own: dict[int, Any]) -> dict[int, Any]:
        """On rank 0 what every rank gives; elsewhere nothing."""
        if self.rank:
            self._send(self._peers[0], own)
            return {}
        whole = dict(own)
        for peer in sorted(self._peers):
            whole.update({int(key): value for key, value in self._receive(self._peers[peer]).items()})
        return whole

    def spread(self, value: Any) -> Any:
        """What rank 0 gives, on every rank."""
        if self.rank:
            return self._receive(self._peers[0])
        for peer in sorted(self._peers):
            self._send(self._peers[peer], value)
        return value

    def _meet(self, master: str) -> None:
        if self.rank == 0:
            self._await_peers()
            return
        until = time.monotonic() + MEET_SECONDS
        while (first := _connected(master)) is None:
            if time.monotonic() > until:
                raise PeerLostError(f"{master} did not answer")
            time.sleep(0.1)
        self._send(first, {"rank": self.rank})
        self._peers[0] = first

    def _await_peers(self) -> None:
        with socket.create_server((os.environ.get("POD_IP", "127.0.0.1"), PORT)) as listener:
            listener.settimeout(MEET_SECONDS)
            while len(self._peers) < self.world - 1:
                try:
                    peer, _ = listener.accept()
                except TimeoutError as error:
                    raise PeerLostError(f"{len(self._peers) + 1} of {self.world} ranks came") from error
                self._peers[int(self._receive(peer)["rank"])] = peer

    def _send(self, peer: socket.socket, value: Any) -> None:
        data = json.dumps(value).encode()
        try:
            peer.sendall(struct.pack("!I", len(data)) + data)
        except OSError as error:
            raise PeerLostError(str(error)) from error

    def _receive(self, peer: socket.socket) -> Any:
        (length,) = struct.unpack("!I", self._exactly(peer, 4))
        return json.loads(self._exactly(peer, length))

    def _exactly(self, peer: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                piece = peer.recv(count - len(data))
            except OSError as error:
                raise PeerLostError(str(error)) from error
            if not piece:
                raise PeerLostError("Connection closed by remote peer")
            data += piece
        return data


def _connected(master: str) -> socket.socket | None:
    address = resolved(master)
    try:
        peer = socket.create_connection((address, PORT), timeout=MEET_SECONDS) if address else None
    except OSError:
        return None
    if peer is not None:
        peer.settimeout(None)
    return peer


def resolved(name: str) -> str:
    """The newest address of a name in the simulator's hosts file, empty while it has none; without such a file the name
    itself. A name server would be asked in vain, and may take long to say so."""
    hosts = os.environ.get("SIMULATOR_HOSTS", "")
    if not hosts:
        return name
    found = ""
    # A last line without its end is still being written.
    for line in Path(hosts).read_text(encoding="ascii").split("\n")[:-1]:
        address, *names = line.split()
        if name in names:
            found = address
    return found
