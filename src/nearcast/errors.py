"""Every error nearcast raises on purpose, in one tree.

NearcastError
├── Fault                what is wrong at one place of an input: expected, came, where, what to do
├── DefinitionError      one or more faults in definitions or a filter; nothing of them was taken
├── EventError           one fault in one event; the event goes to the dead letters, the rest goes on
├── JournalError         the journal cannot be opened, read or written
├── SetupError           the surroundings lack something: Java, a port, a file
├── SessionError         a client's session cannot be had, or another connection took it over
└── AccessError          a request without, or with a wrong, token
    └── RightError       a token that is known, but does not allow this

An error keeps its values, so that a caller can act on them; its text says what was expected, what came, where, and
what to do.
"""

from __future__ import annotations

from dataclasses import dataclass


class NearcastError(Exception):
    """The root of the tree: catch it to catch everything nearcast raises on purpose."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in an input: file (or event id, or request), line and column, both counted from 1."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)


# Not frozen: Python itself sets the traceback of an exception that passes through a context manager.
@dataclass(unsafe_hash=True)
class Fault(NearcastError):
    """One thing that is wrong: what was expected, what came instead, where, and what to do about it."""

    expected: str
    came: str
    where: Mark | None = None
    advice: str = ""

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f"; {self.advice}" if self.advice else ""
        return f"{place}expected {self.expected}, got {self.came}{advice}"


class DefinitionError(NearcastError):
    """Definitions or a filter that cannot be taken; `faults` holds every fault, in the order of the input.

    `warnings` are about what can be taken of them, as far as that was looked into.
    """

    def __init__(self, faults: list[Fault] | Fault, warnings: tuple[Fault, ...] = ()) -> None:
        self.faults = faults if isinstance(faults, list) else [faults]
        self.warnings = warnings
        super().__init__("\n".join(str(fault) for fault in self.faults))


class EventError(NearcastError):
    """An event that cannot be taken; `fault` says why. It belongs into the dead letters."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(str(fault))


class JournalError(NearcastError):
    """The journal cannot be opened, read or written."""


class SetupError(NearcastError):
    """Something outside nearcast is missing or taken; the text says what to do."""


class AccessError(NearcastError):
    """A request without, or with a wrong, token."""


class SessionError(NearcastError):
    """A client's session cannot be had, or another connection took it over."""


class RightError(AccessError):
    """A token that is known, but lacks the right for what was asked."""


def first_error(error: BaseException) -> BaseException:
    """The first error in groups of them, as tasks that run together raise: the one that a person is to read."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
