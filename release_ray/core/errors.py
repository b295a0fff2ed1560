"""Errors that are the user's to mend, and those that ended the work."""


class ReleaseRayError(Exception):
    """Base of the errors that the command line shows as one line."""


class InputError(ReleaseRayError):
    """Bad usage or input: the message names the input and the remedy. Exit status 2."""


class WorkFailed(ReleaseRayError):
    """The work could not be done: the message gives the reasons. Exit status 1."""
