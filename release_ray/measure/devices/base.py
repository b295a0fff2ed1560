"""What a kind of device must be able to do, for the pool to build and measure on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from release_ray.core.settings import MeasureSettings
from release_ray.measure.hosts import Host
from release_ray.measure.jobs import Artifact, Canary, DeviceSpec, Job, Outcome


class CandidateBuilder(ABC):
    """Builds candidates, one at a time, in the process of a builder actor."""

    @abstractmethod
    def start(self) -> None:
        """Returns when it can build; a second time it changes nothing."""

    @abstractmethod
    def build(self, job: Job) -> Artifact | Outcome:
        """The artifact, or the outcome of a job that cannot be built. Never raises for a job."""

    def overhead_cpu_s(self) -> float:
        """CPU-seconds of child processes that no outcome accounts for, such as imports."""
        return 0.0

    @abstractmethod
    def close(self) -> None:
        """Ends its child processes."""


class DeviceWorker(ABC):
    """One device, in the process of a device actor. Nothing else runs on the device meanwhile."""

    @abstractmethod
    def start(self) -> None:
        """Takes the device and returns when it can measure; a second time it changes nothing.

        Raises:
            InputError: the device is somebody else's.
        """

    @abstractmethod
    def measure(self, job: Job, artifact: Artifact) -> Outcome:
        """Times an artifact. What goes wrong with it is in the outcome; never raises for a job."""

    @abstractmethod
    def build_and_measure(self, job: Job) -> Outcome:
        """Builds a job here and times it; asked for only where `DeviceKind.builds`."""

    @abstractmethod
    def check(self, job: Job) -> float:
        """max|a-b| / max|b| of the candidate's output against the unscheduled operator's.

        Raises:
            ChildFailure: there was none.
        """

    @abstractmethod
    def call(self, function: str, arguments: Sequence[Any], timeout_s: float) -> Any:
        """Runs `package.module:function` in the device's child process and returns its value.

        Raises:
            ChildFailure: it raised, died or took too long.
            InputError: the device runs no programs.
        """

    @abstractmethod
    def canary(self) -> Canary:
        """Times a fixed kernel. Raises `ChildFailure`."""

    def overhead_cpu_s(self) -> float:
        """CPU-seconds of child processes that no outcome accounts for, such as imports."""
        return 0.0

    @property
    def disturbed(self) -> bool:
        """Whether a canary was slow around the last measurement, which was kept all the same."""
        return False

    @property
    def unfit(self) -> str:
        """Why nothing can be measured here any more; empty while something can.

        The last outcome is then `device_lost`, unless its candidate has broken the device.
        """
        return ""

    @abstractmethod
    def close(self) -> None:
        """Ends its child processes and gives the device back."""


class DeviceKind(ABC):
    """A kind of device: how users ask for it, and what works for it in the actors."""

    name: ClassVar[str]
    """The word before the colon of a specification, and `DeviceSpec.kind`."""
    builds: ClassVar[bool]
    """Whether a device that waits for an artifact can build one itself."""
    simulated: ClassVar[bool] = False
    """Whether what it measures is made up, so that it never mixes with what is real."""

    runs_networks: ClassVar[bool] = True
    """Whether whole networks run on it, and not kernels alone."""

    @abstractmethod
    def expand(self, options: str, hosts: Sequence[Host]) -> list[DeviceSpec]:
        """The devices that a specification `name:options` asks for, at least one.

        Args:
            options: what follows the colon; empty where there is none.
            hosts: where they may be, at least one; the driver's own first.

        Raises:
            InputError: no such devices here; it names the specification and the remedy.
        """

    def grows(self, spec: DeviceSpec, options: str) -> str:
        """The specification by which devices like `spec` are found on nodes that join later.

        Empty where the specification said how many there are to be.
        """
        return ""

    @abstractmethod
    def builder(
        self, spec: DeviceSpec, cores: Sequence[int], settings: MeasureSettings, target_kind: str
    ) -> CandidateBuilder:
        """A builder for devices like `spec`. `cores`: those it may use."""

    @abstractmethod
    def worker(self, spec: DeviceSpec, settings: MeasureSettings, target_kind: str) -> DeviceWorker:
        """The worker for one device that `expand` gave."""
