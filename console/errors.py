"""The one error that commands raise for what the person who typed can mend.

Raised by every command module; `console.main` turns it into one line on stderr and an exit code. Anything else that
escapes a command is a fault of ours, and shows its traceback.
"""

from pydantic import ValidationError


class UserError(Exception):
    """Something the caller can mend: the message names the input, the place and the cure in one line.

    `exit_code` is 2 unless a command documents another one.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def wrong_environment(error: ValidationError) -> UserError:
    """The error of settings that come from the environment: each variable that is wrong, and why."""
    wrong = (f"SICKBAY_{str(problem['loc'][0]).upper()}: {problem['msg'].lower()}" for problem in error.errors())
    return UserError(f"environment: {'; '.join(wrong)}")
