"""MetaSchedule's own search, driven by release_ray."""
