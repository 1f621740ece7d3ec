"""The API servers that Kubernetes tests run against: the simulated one always, a real one where it is at hand.

A test that asks for `kube_server` runs twice. Set KUBEBUILDER_ASSETS to a folder with `etcd` and `kube-apiserver` for
the real variant; without it that variant is skipped and says so.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from simulator.kube import KubeServer
from tests.kube_under_test import KubeUnderTest
from tests.real_kube import ASSETS, TOKEN, RealKube

SIMULATOR, REAL = "simulator", "real"
FAST_BOOKMARKS = 0.2
"""Seconds between the simulated server's bookmarks, so that no test waits a minute for one."""


@pytest.fixture(scope="session")
def real_kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKube]:
    """A real kube-apiserver for the whole session, if KUBEBUILDER_ASSETS names one."""
    assets = os.environ.get(ASSETS)
    if not assets:
        pytest.skip(f"NOT RUN AGAINST A REAL kube-apiserver: set {ASSETS} to a folder with etcd and kube-apiserver")
    with RealKube(Path(assets), tmp_path_factory.mktemp("kube")) as server:
        yield server


@pytest.fixture(params=[pytest.param(SIMULATOR, marks=pytest.mark.kube), pytest.param(REAL, marks=pytest.mark.kube)])
def kube_endpoint(request: pytest.FixtureRequest) -> RealKube | None:
    """Which server this run of the test is against; None is the simulated one."""
    if request.param == SIMULATOR:
        return None
    server: RealKube = request.getfixturevalue("real_kube")
    return server


@pytest.fixture
async def kube_server(kube_endpoint: RealKube | None) -> AsyncIterator[KubeUnderTest]:
    """An API server without nodes, pods or anything else that tests make."""
    if kube_endpoint is not None:
        under_test = KubeUnderTest(kube_endpoint.url, simulator=None, token=TOKEN, authority=kube_endpoint.authority)
        try:
            yield under_test
        finally:
            await under_test.close()
        return
    async with KubeServer(bookmark_every=FAST_BOOKMARKS) as server:
        under_test = KubeUnderTest(server.url, simulator=server)
        try:
            yield under_test
        finally:
            await under_test.close()
