"""What became of a candidate. An outcome is a value; a failure is never a number."""

from enum import StrEnum


class Status(StrEnum):
    """The outcome of a candidate, as the records spell it."""

    OK = "ok"
    SLOW = "slow"
    INVALID = "invalid"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"
    RUN_TIMEOUT = "run_timeout"
    CRASH = "crash"
    WRONG_RESULT = "wrong_result"
    DEVICE_LOST = "device_lost"

    @property
    def measured(self) -> bool:
        """Whether the hardware said how fast the candidate is, exactly or as a bound."""
        return self in (Status.OK, Status.SLOW)

    @property
    def blames_candidate(self) -> bool:
        """Whether the candidate itself is at fault, so that a model may learn from it."""
        return self not in (Status.OK, Status.SLOW, Status.DEVICE_LOST)


class Purpose(StrEnum):
    """Why something was measured, as the records spell it."""

    TRIAL = "trial"
    REMEASURE = "remeasure"
    RETRY = "retry"
    CANARY = "canary"
    REUSED = "reused"
    DEFAULT = "default"
    """The operator as TVM compiles it untuned."""

    @property
    def counts(self) -> bool:
        """Whether it counts against the budget of trials."""
        return self in (Purpose.TRIAL, Purpose.REUSED)
