"""Fixtures that every room's tests share; each lives in a module of its own beside this one."""

from hypothesis import settings

pytest_plugins = ["tests.kube_servers", "tests.temporal_servers"]

# No unit test is timed: a property that is slow on a busy machine has not failed.
settings.register_profile("sickbay", deadline=None)
settings.load_profile("sickbay")
