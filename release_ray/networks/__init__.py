"""Networks: from a name or a file to a Relax module with its weights, and its reference output."""

from release_ray.networks.base import InputSpec, Network, NetworkSource
from release_ray.networks.registry import BUILT_IN_NAMES, check, load

__all__ = ["BUILT_IN_NAMES", "InputSpec", "Network", "NetworkSource", "check", "load"]
