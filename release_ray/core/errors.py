"""Errors that are the user's to mend, and those that ended the work."""

from typing import Any


class ReleaseRayError(Exception):
    """Base of the errors that the command line shows as one line."""


class InputError(ReleaseRayError):
    """Bad usage or input: the message names the input and the remedy. Exit status 2."""


class WorkFailed(ReleaseRayError):
    """The work could not be done: the message gives the reasons. Exit status 1.

    `result` is what a tuning run has achieved all the same (`release_ray.result.Result`), if any.
    """

    result: Any = None


class Interrupted(KeyboardInterrupt):
    """A tuning run was interrupted; `result` is what it has achieved. Exit status 130."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result
