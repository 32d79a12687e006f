"""For those who write a strategy for relations: what one is, what it is given, and what it gives.

`Strategy` says what a plug-in must do. `nearcast.testing.strategy_trials` tries it on traces of reports.
"""

from nearcast.errors import Fault
from nearcast.model.event import Place
from nearcast.suppression.strategies.choice import chosen
from nearcast.suppression.strategies.dimensions import DIMENSIONS, Dimension
from nearcast.suppression.strategies.guards import Anywhere, Guard, Line, Nowhere, Ring, Same, TakenReport
from nearcast.suppression.strategies.seam import PairKnowledge, Strategy, ThresholdPredicate

__all__ = [
    "DIMENSIONS",
    "Anywhere",
    "Dimension",
    "Fault",
    "Guard",
    "Line",
    "Nowhere",
    "PairKnowledge",
    "Place",
    "Ring",
    "Same",
    "Strategy",
    "TakenReport",
    "ThresholdPredicate",
    "chosen",
]
