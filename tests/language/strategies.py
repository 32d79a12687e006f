"""Any filter, subscription, settings and event that nearcast's languages can say."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from nearcast.language.trees import all_of, any_of
from nearcast.model.changes import (
    ClientChange,
    ClientRemoval,
    SettingsChange,
    SubscriptionChange,
    SubscriptionRemoval,
)
from nearcast.model.context import Awareness, ContextSpace, HeldClass, delay_matrix, restriction_matrix
from nearcast.model.event import Place
from nearcast.model.filter import Atom, Count, Distance, Entities, Not, Operator, PlainNot, This, User, atoms
from nearcast.model.subscription import Channel, ClientProfile, Roles, Settings, Subscription
from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM

characters = st.characters(exclude_categories=("Cs",))
texts = st.text(characters, max_size=8)
on_a_line = st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="\ufffd")
ids = st.text(on_a_line, min_size=1, max_size=8).filter(lambda text: not text.isspace())
names = st.text(characters, min_size=1, max_size=8) | st.sampled_from(["type", "a.b", "and", "this", "größe", "_x"])
escaped = st.sampled_from(["\\%", "\\_", "\\\\"])
patterns = st.lists(escaped | texts.map(lambda text: text.replace("\\", "")), max_size=4).map("".join)
integers = st.integers(INTEGER_MINIMUM, INTEGER_MAXIMUM)
floats = st.floats(allow_nan=False, allow_infinity=False)
times = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
values = integers | floats | texts | st.booleans() | times
metres = st.floats(0, 1e9) | st.integers(0, 10**9)

planar_places = st.builds(Place, st.just("planar"), floats, floats, st.none() | floats)
geographic_places = st.builds(
    Place, st.just("geographic"), st.floats(-180, 180), st.floats(-90, 90), st.none() | floats
)


def _atoms(subjects: st.SearchStrategy, literals: st.SearchStrategy) -> st.SearchStrategy[Atom]:
    six = st.sampled_from(list(Operator)[:6])
    return (
        st.builds(Atom, subjects, six, literals)
        | st.builds(Atom, subjects, st.just(Operator.IN), st.lists(literals, min_size=1, max_size=3).map(tuple))
        | st.builds(Atom, subjects, st.just(Operator.BETWEEN), st.tuples(literals, literals))
    )


attribute_atoms = (
    _atoms(names, values)
    | st.builds(Atom, names, st.just(Operator.LIKE), patterns)
    | st.builds(Atom, names, st.just(Operator.IS_NULL), st.none())
)


def trees(leaves: st.SearchStrategy, negations: tuple[type, ...]) -> st.SearchStrategy:
    """Filters of such atoms with AND, OR and such negations."""
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, min_size=2, max_size=3).map(all_of)
            | st.lists(inner, min_size=2, max_size=3).map(any_of)
            | st.one_of(*(st.builds(negation, inner) for negation in negations))
        ),
        max_leaves=6,
    )


located = (
    st.builds(User, names)
    | st.builds(Entities, st.none() | trees(attribute_atoms, (Not,)))
    | st.just(This())
    | geographic_places
)
measures = (
    st.builds(Distance, located, located) | st.builds(Count, located) | st.builds(Count, located, located, metres)
)
leaves = attribute_atoms | _atoms(measures, integers | floats)
cql2_filters = trees(leaves, (Not,))
filters = trees(leaves, (Not, PlainNot))

relevances = st.floats(0, 1)


@st.composite
def subscriptions(draw: st.DrawFn) -> Subscription:
    """A subscription whose relevance, if it has one, fits its filter."""
    node = draw(filters)
    size = sum(1 for _ in atoms(node))
    vector = st.lists(relevances, min_size=size, max_size=size).map(tuple)
    clients = st.lists(ids, unique=True, max_size=3).map(tuple)
    ttl = st.none() | st.floats(0.001, 1e9)
    return Subscription(draw(ids), draw(clients), node, draw(st.none() | vector), draw(ttl), draw(st.booleans()))


@st.composite
def settings(draw: st.DrawFn) -> Settings:
    """Settings of a few levels, modules, roles and channels."""
    levels = draw(st.integers(1, 4))
    bounds = st.lists(floats, min_size=levels - 1, max_size=levels - 1, unique=True).map(sorted).map(tuple)
    readings = draw(st.lists(names, unique=True, max_size=2))
    held = st.tuples(st.floats(0, 99, exclude_min=True), st.just(True), st.floats(0, 1e6)) | st.just((0.0, False, 2.5))
    valid = st.none() | st.floats(1e6, 1e9)
    modules = tuple(Awareness(reading, draw(bounds), *draw(held), draw(valid)) for reading in readings)
    cells = levels ** len(modules)
    table = st.lists(st.integers(0, levels - 1), min_size=cells, max_size=cells).map(tuple)
    space = ContextSpace(modules, draw(st.none() | table) if modules else None)
    vectors = draw(
        st.dictionaries(
            st.tuples(names, names),
            st.dictionaries(names, st.lists(relevances, max_size=3).map(tuple), max_size=2),
            max_size=3,
        )
    )
    default = draw(st.none() | st.sampled_from(sorted(vectors))) if vectors else None
    kinds = st.sampled_from(["planar", "geographic"])
    types = st.lists(texts.filter(bool).filter(lambda text: not text.startswith("nearcast.")), max_size=3).map(tuple)
    channels = tuple(Channel(name, draw(kinds), draw(types)) for name in draw(st.lists(names, unique=True, max_size=2)))
    matrix = draw(st.sampled_from([delay_matrix(levels), restriction_matrix(levels)]))
    return Settings(levels, space, matrix, Roles(vectors, default), channels)


_classes = st.dictionaries(
    names,
    st.builds(HeldClass, st.integers(0, 9), st.integers(0, 2**60))
    | st.builds(HeldClass, st.integers(0, 9), st.just(9), st.booleans(), st.just((3, 7))),
    max_size=2,
)
_moments = st.dictionaries(names, st.integers(0, 2**55), max_size=2)
_readings = st.dictionaries(names, st.floats(0, 1e12), max_size=3)
_matrices = st.none() | st.just(delay_matrix(3))
_places = st.none() | planar_places | geographic_places
_lists = st.dictionaries(names, st.lists(names, max_size=3, unique=True).map(tuple), max_size=2)
clients = st.builds(ClientProfile, ids, st.none() | names, st.none() | names, _readings, _places, _matrices, _lists)
client_changes = st.builds(
    ClientChange,
    ids,
    st.none() | names,
    st.none() | names,
    st.none() | _readings,
    _places,
    _matrices,
    st.none() | _lists,
    st.none() | _classes,
    moments=st.none() | _moments,
    lapsed=st.none() | _moments,
)
changes = (
    client_changes
    | st.builds(ClientRemoval, names)
    | st.builds(SubscriptionChange, subscriptions())
    | st.builds(SubscriptionRemoval, names)
    | st.builds(SettingsChange, settings())
)
