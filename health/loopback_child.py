"""Runs the two sides of `fi_pingpong` on one EFA device, so that it talks to itself.

Started by `health.loopback` in a process group of its own, which is killed as a whole at its deadline; so nothing here
needs to clean up after a hang. The arguments are the program, the device and the port on which the two sides meet.
"""

import os
import subprocess
import sys
import time
from typing import Final

CONNECT_SECONDS: Final = 30.0
"""For the server to be ready: opening a device takes seconds where many queues are in use."""

_AGAIN_SECONDS: Final = 0.5


def main() -> int:
    """Both sides' worse exit code; their output is passed on."""
    program, device, port = sys.argv[1:4]
    common = [program, "-p", "efa", "-e", "rdm", "-d", f"{device}-rdm"]
    # Without this the two sides would talk through memory, and not through the device at all.
    environment = {**os.environ, "FI_EFA_ENABLE_SHM_TRANSFER": "0"}
    server = subprocess.Popen([*common, "-B", port], env=environment)
    end = time.monotonic() + CONNECT_SECONDS
    while True:
        client = subprocess.run([*common, "-P", port, "127.0.0.1"], env=environment, check=False)
        if client.returncode == 0 or server.poll() is not None or time.monotonic() > end:
            break
        time.sleep(_AGAIN_SECONDS)
    if client.returncode:
        server.kill()
    return client.returncode or server.wait()


if __name__ == "__main__":
    sys.exit(main())
