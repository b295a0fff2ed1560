"""Building and timing candidates on many devices at once, over Ray."""
