"""For tests of what uses nearcast, or is plugged into it.

A journal in memory whose faults are part of the test (`MemoryJournal` with `Abort`, `Pause`, `End`, `Full`, `Gap`), a
clock that the test moves (`ManualClock`), what a Python action is tried with (`run_actions`), and plain references, for
plug-ins and for what is faster here: strategies (`nearcast.testing.strategy_trials`), relations and situations.
"""

from nearcast.journal.memory import Abort, End, Full, Gap, MemoryJournal, Pause
from nearcast.testing.actions import ActionRun, run_actions
from nearcast.testing.manual_clock import ManualClock

__all__ = ["Abort", "ActionRun", "End", "Full", "Gap", "ManualClock", "MemoryJournal", "Pause", "run_actions"]
