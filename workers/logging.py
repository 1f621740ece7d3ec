"""Structured logs of every long-running process: JSON for machines, colours for people.

Called once by each process before anything else; libraries (temporalio, kubernetes, botocore) log through the standard
module and come out in the same shape. Fields that all of ours use, by these names: `incident`, `node`, `fault`, `rung`.
"""

import logging
import sys
from enum import StrEnum
from typing import Final, TextIO

import structlog
from structlog.typing import Processor

_QUIET_LIBRARIES: Final = ("botocore", "urllib3", "aiohttp.access")
"""Libraries that tell at INFO of every call they make."""


class LogFormat(StrEnum):
    """How a log line looks."""

    JSON = "json"
    CONSOLE = "console"


def configure_logging(log_format: LogFormat, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send our own and the libraries' logs to standard error, one event a line.

    `level` is a name of the standard `logging` module. Raises ValueError if there is no such level.
    """
    output = stream or sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(log_format, output)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)


def _renderers(log_format: LogFormat, output: TextIO) -> list[Processor]:
    if log_format is LogFormat.JSON:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return [structlog.dev.ConsoleRenderer(colors=output.isatty())]
