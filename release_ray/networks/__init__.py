"""Networks: from a name or a file to a Relax module with its weights, and its reference output."""

from release_ray.networks.base import InputSpec, Network, NetworkSource
from release_ray.networks.registry import find, known_networks, load

__all__ = ["InputSpec", "Network", "NetworkSource", "find", "known_networks", "load"]
