"""The environment of a tuning task: walkers over a design space whose agents are its knobs."""
