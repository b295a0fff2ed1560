"""Every measurement ever made, in one SQLite file on local disk (`records.db`).

The driver alone writes. A write is committed when the call returns: whatever happens to the
process afterwards, the row is there (write-ahead log; a power cut may cost the last rows, never
the file). Other processes may read at any time.

A run is one call of the program, and every record belongs to one. A run decides who sees its
records again: a *fresh* run hides all earlier ones, which stay in the file, and *simulated* runs
and real ones never see each other. A `History` is what one such line of runs has measured.
"""

from release_ray.records.history import FINALISTS, NEAR, UNTUNED, History
from release_ray.records.record import COLUMNS, Record, Run, now, write_csv
from release_ray.records.store import Records

__all__ = [
    "COLUMNS",
    "FINALISTS",
    "NEAR",
    "UNTUNED",
    "History",
    "Record",
    "Records",
    "Run",
    "now",
    "write_csv",
]
