import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from workers.logging import LogFormat, configure_logging


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_our_own_and_the_libraries_lines_are_json_of_one_shape() -> None:
    output = io.StringIO()
    configure_logging(LogFormat.JSON, stream=output)
    structlog.get_logger("sickbay").info("fault opened", node="gpu-1", fault="xid-79")
    logging.getLogger("temporalio.worker").warning("poll failed %d times", 3, extra={"incident": "incident-a-b"})
    ours, theirs = (json.loads(line) for line in output.getvalue().splitlines())
    assert (ours["event"], ours["node"], ours["fault"], ours["level"]) == ("fault opened", "gpu-1", "xid-79", "info")
    assert (theirs["event"], theirs["incident"], theirs["level"]) == ("poll failed 3 times", "incident-a-b", "warning")


def test_fields_bound_to_the_context_are_on_every_line() -> None:
    output = io.StringIO()
    configure_logging(LogFormat.JSON, stream=output)
    with structlog.contextvars.bound_contextvars(incident="incident-a-b"):
        structlog.get_logger("sickbay").info("draining")
    assert json.loads(output.getvalue())["incident"] == "incident-a-b"


def test_an_exception_stays_on_one_line_of_json() -> None:
    output = io.StringIO()
    configure_logging(LogFormat.JSON, stream=output)
    try:
        int("broken")
    except ValueError:
        structlog.get_logger("sickbay").exception("probe failed")
    (line,) = output.getvalue().splitlines()
    assert "ValueError: invalid literal" in json.loads(line)["exception"]


def test_people_get_plain_text_where_the_output_is_no_terminal() -> None:
    output = io.StringIO()
    configure_logging(LogFormat.CONSOLE, stream=output)
    structlog.get_logger("sickbay").info("node is healthy", node="gpu-1")
    assert "node is healthy" in output.getvalue()
    assert "\x1b" not in output.getvalue()


def test_the_level_holds_for_every_logger() -> None:
    output = io.StringIO()
    configure_logging(LogFormat.JSON, level="WARNING", stream=output)
    structlog.get_logger("sickbay").info("not this")
    assert output.getvalue() == ""
