"""Tables 1 and 2 of the paper as values: what is simulated, with which rules, by which schemes.

The paper leaves open, and this settles: all of a time unit's messages travel within it; values lie between 0 and 100;
smoke is there where its value is above 50; rules of a node ask at the same times, first at time 0; SCR6's threshold
for GasA is 50 where SCR2's is 40, as printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nearcast.model.filter import And, Atom, Operator

CLASSES = ("Temperature", "Humidity", "GasA", "GasB", "Smoke")
HIGHEST, SMOKING = 100.0, 50.0

Part = Literal["A", "B"]
Values = Literal["walk", "noise", "inertia", "real"]
"""How a sensor's values follow each other: differences of N(0, 1), the paper's; each by itself; differences that go on;
as they were recorded.
"""

HOT = Atom("Temperature", Operator.GT, 80)
DRY = Atom("Humidity", Operator.LT, 20)
GAS_A, MORE_GAS_A = Atom("GasA", Operator.GT, 40), Atom("GasA", Operator.GT, 50)
GAS_B = Atom("GasB", Operator.GT, 50)
SMOKE = Atom("Smoke", Operator.EQ, True)
CONDITIONS = (HOT, DRY, GAS_A, MORE_GAS_A, GAS_B, SMOKE)

RULES: dict[str, And] = {
    "SCR1": And((HOT, DRY)),
    "SCR2": And((GAS_A, GAS_B)),
    "SCR3": And((DRY, SMOKE)),
    "SCR4": And((GAS_B, SMOKE)),
    "SCR5": And((HOT, SMOKE)),
    "SCR6": And((MORE_GAS_A, SMOKE)),
    "SCR7": And((HOT, DRY, SMOKE)),
    "SCR8": And((GAS_A, GAS_B, SMOKE)),
}
SHARED_OUT: dict[Part, tuple[tuple[str, str], ...]] = {
    "A": (("SCR1", "SCR2"), ("SCR3", "SCR4"), ("SCR5", "SCR6")),
    "B": (("SCR7", "SCR8"),),
}
"""The two rules of a requestor: the first third of them has the first pair, and so on."""

OWN_SENSORS: dict[Part, tuple[str, ...]] = {"A": (), "B": ("Humidity", "Smoke", "GasB")}
"""What requestors measure themselves."""

LAZY = 0.66


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way of asking: `valid` is the temporal validity of requests, for polling its period; `threshold` the trigger
    level from which on requests are sent, 0 for always.
    """

    name: str
    polled: bool
    valid: int
    threshold: float = 0.0

    def lazy(self, threshold: float = LAZY) -> Scheme:
        """The same, asking only when a rule is near firing."""
        return Scheme(f"{self.name} lazy", self.polled, self.valid, threshold)


CFOR1, CFOR2, CFOR5, CFOR10 = (Scheme(f"CFor{valid}", False, valid) for valid in (1, 2, 5, 10))
CPOL1, CPOL2 = (Scheme(f"CPol{valid}", True, valid) for valid in (1, 2))
SCHEMES = (CFOR1, CFOR2, CFOR5, CFOR10, CPOL1, CPOL2)
"""The paper's figures have two of each; of which validities CFor's were, its text does not say."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What one run simulates; the defaults are table 1's, the speed that of experiment A2. Space and time have units
    of their own. Of the nodes the first are requestors, the next providers, the rest only pass messages on; the last
    one may be `flooding`: that many requests of its own each time unit.
    """

    scheme: Scheme = CFOR5
    part: Part = "A"
    speed: float = 2.0
    within: float = 110.0
    nodes: int = 100
    requestors: int = 40
    providers: int = 40
    duration: int = 200
    side: float = 500.0
    reach: float = 50.0
    pause: float = 20.0
    values: Values = "walk"
    flooding: int = 0


SPEEDS = (0.0, 1.0, 2.0, 4.0, 10.0, 20.0)
REACHES = (30.0, 50.0, 70.0, 90.0, 110.0)

Experiment = Literal["A1", "A2", "B1", "B2"]
EXPERIMENTS: tuple[Experiment, ...] = ("A1", "A2", "B1", "B2")


def settings_of(experiment: Experiment) -> list[tuple[float, Setting]]:
    """The settings of an experiment with what varies in it: the greatest speed, or the spatial validity.

    Part B has each scheme twice, lazy and not, to compare.
    """
    part: Part = "A" if experiment[0] == "A" else "B"
    schemes = [*SCHEMES, *(scheme.lazy() for scheme in SCHEMES)] if part == "B" else list(SCHEMES)
    if experiment[1] == "1":
        return [(speed, Setting(scheme, part, speed=speed)) for scheme in schemes for speed in SPEEDS]
    return [(within, Setting(scheme, part, within=within)) for scheme in schemes for within in REACHES]


def rules_of(part: Part, requestor: int, requestors: int) -> tuple[str, str]:
    """The names of a requestor's two rules."""
    pairs = SHARED_OUT[part]
    return pairs[requestor * len(pairs) // requestors]
