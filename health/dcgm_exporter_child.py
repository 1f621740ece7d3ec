"""Fetches one page of dcgm-exporter and prints what of it is judged; run as a program by `health.dcgm_exporter`.

A server that drips its answer cannot be bounded by socket timeouts, and a page may be of any size; so this is a child
that is killed at its deadline. Comments and the labels of pods are left out, so that the pages of large hosts stay
below what is kept of a child's output.
"""

import re
import sys
import urllib.request

SOCKET_SECONDS = 10.0
MAX_BYTES = 16 << 20
LEFT_OUT = re.compile(
    rb'(?:^|(?<=[,{]))\s*(?:container|namespace|pod|pod_uid|Hostname|device)\s*=\s*"(?:[^"\\]|\\.)*"\s*,?'
)


def main() -> int:
    """Fetch the page of the only argument."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(sys.argv[1], timeout=SOCKET_SECONDS) as answer:
            page = answer.read(MAX_BYTES)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for line in page.splitlines(keepends=True):
        if not line.startswith(b"#"):
            sys.stdout.buffer.write(LEFT_OUT.sub(b"", line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
