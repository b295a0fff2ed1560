"""`python -m release_ray` is `release-ray`."""

from release_ray.cli import main

main()
