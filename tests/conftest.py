"""Fixtures that every room's tests share; each lives in a module of its own beside this one."""

pytest_plugins = ["tests.kube_servers", "tests.temporal_servers"]
