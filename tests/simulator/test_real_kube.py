"""The starter of a real kube-apiserver, as far as it can be tested without one."""

from pathlib import Path

import pytest

from tests.real_kube import RealKube


def test_a_server_that_dies_at_its_start_is_told_with_the_place_of_its_logs(tmp_path: Path) -> None:
    for program in ("etcd", "kube-apiserver"):
        script = tmp_path / program
        script.write_text("#!/bin/sh\necho no\nexit 1\n")
        script.chmod(0o755)
    logs = tmp_path / "logs"
    logs.mkdir()
    with pytest.raises(RuntimeError, match=str(logs)), RealKube(tmp_path, logs):
        pass
