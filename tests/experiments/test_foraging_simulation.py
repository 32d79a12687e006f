"""The compiled simulation does what the nodes do, and what must hold of any run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.foraging.kernel import observe, simulate
from experiments.foraging.plain import neighbours, simulate_plainly
from experiments.foraging.setting import (
    CFOR5,
    CFOR10,
    CLASSES,
    CPOL1,
    CPOL2,
    RULES,
    SMOKING,
    Scheme,
    Setting,
    rules_of,
    settings_of,
)
from experiments.foraging.world import places, readings, sensors
from nearcast.filters.evaluate import satisfies

SHORT = Setting(duration=25)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scheme", [CFOR5, CPOL1, CPOL2, CFOR5.lazy(), CPOL2.lazy(1.0)], ids=lambda one: one.name)
def test_both_simulations_agree(scheme: Scheme, seed: int) -> None:
    """Every message and everything that fires, whatever the part, the speed and the reach."""
    for part, speed, within in (("A", 0.0, 110.0), ("A", 10.0, 70.0), ("B", 4.0, 110.0)):
        setting = replace(SHORT, scheme=scheme, part=part, speed=speed, within=within)  # type: ignore[arg-type]
        world = places(setting, seed), readings(setting, seed)
        compiled, plain = simulate(setting, *world), simulate_plainly(setting, *world)
        assert (plain.requests, plain.responses) == (compiled.requests, compiled.responses)
        assert np.array_equal(plain.fired, compiled.fired)
        assert compiled.requests > 0


def test_an_observer_sees_what_nobody_can_miss_seeing() -> None:
    """Held against a plain count over all pairs; whatever fires was there to be seen."""
    setting = replace(SHORT, part="B", duration=8)
    world = places(setting, 1), readings(setting, 1)
    every, by_itself = observe(setting, *world)
    for now in range(setting.duration):
        near = neighbours(world[0][now], setting.within)
        for one in range(setting.requestors):
            for rule, name in enumerate(rules_of("B", one, setting.requestors)):
                seen = [
                    any(_satisfies(atom, world[1][now, other]) for other in [one, *near[one]])
                    for atom in RULES[name].children
                ]
                assert all(seen) == every[now, one, rule]
    assert not (by_itself & ~every).any()
    assert not (simulate(setting, *world).fired & ~by_itself).any()


def _satisfies(atom: object, values: np.ndarray) -> bool:
    value = values[CLASSES.index(atom.name)]  # type: ignore[attr-defined]
    if np.isnan(value):
        return False
    return satisfies(atom, bool(value > SMOKING) if atom.name == "Smoke" else float(value)) is True  # type: ignore


def test_foraging_every_time_unit_detects_what_polling_does() -> None:
    """The paper's first observation, with fewer messages."""
    forage, poll = (replace(SHORT, scheme=Scheme(name, name == "p", 1)) for name in ("f", "p"))
    world = places(forage, 4), readings(forage, 4)
    foraged, polled = simulate(forage, *world), simulate(poll, *world)
    assert np.array_equal(polled.fired, foraged.fired)
    assert polled.requests == foraged.requests
    assert polled.responses > foraged.responses


def test_nodes_that_stand_still_miss_nothing_by_asking_seldom() -> None:
    """Filters that are renewed in time are always there."""
    often, seldom = (replace(SHORT, scheme=scheme, speed=0.0) for scheme in (CFOR5, CFOR10))
    world = places(often, 5), readings(often, 5)
    assert np.array_equal(simulate(often, *world).fired, simulate(seldom, *world).fired)


def test_the_tables() -> None:
    """Tables 1 and 2 of the paper."""
    setting = Setting()
    assert (100, 200, 500, 50, 20, 110) == (
        setting.nodes,
        setting.duration,
        setting.side,
        setting.reach,
        setting.pause,
        setting.within,
    )
    assert [0, 1, 2, 4, 10, 20] == sorted({setting.speed for _, setting in settings_of("A1")})
    assert [30, 50, 70, 90, 110] == sorted({setting.within for _, setting in settings_of("B2")})
    assert {2.0} == {setting.speed for _, setting in settings_of("A2")}
    assert {("SCR7", "SCR8")} == {rules_of("B", one, 40) for one in range(40)}
    assert [14, 13, 13] == [
        sum(rules_of("A", one, 40)[0] == name for one in range(40)) for name in ("SCR1", "SCR3", "SCR5")
    ]


def test_about_three_nodes_are_within_reach() -> None:
    """As table 1 says; at rest, where nodes are spread evenly."""
    setting = Setting(speed=0.0, duration=1)
    counts = [len(near) for seed in range(20) for near in neighbours(places(setting, seed)[0], setting.reach)]
    assert 3.0 == pytest.approx(np.mean(counts), abs=0.3)


def test_each_class_has_as_many_providers() -> None:
    """Requestors have sensors in part B only."""
    in_a, in_b = (sensors(Setting(part=part)) for part in ("A", "B"))  # type: ignore[arg-type]
    assert dict.fromkeys(CLASSES, 8) == {name: in_a.count((name,)) for name in CLASSES}
    assert ((), ("Humidity", "Smoke", "GasB"), ()) == (in_a[0], in_b[0], in_b[99])


def test_nodes_keep_to_their_field_and_their_speed() -> None:
    """Random waypoint: never faster than the greatest speed, never outside."""
    walked = places(Setting(speed=10.0), 6)
    steps = np.hypot(*np.moveaxis(np.diff(walked, axis=0), 2, 0))
    assert 0 <= walked.min() and walked.max() <= 500
    assert steps.max() <= 10 + 1e-9 and steps.max() > 9
    assert (places(Setting(speed=0.0), 6) == places(Setting(speed=0.0), 6)[0]).all()


@pytest.mark.parametrize("values, spread", [("walk", 1.0), ("inertia", 1.0)])
def test_values_differ_by_the_paper_s_normal_distribution(values: str, spread: float) -> None:
    """Also where they keep going the way they went."""
    steps = np.diff(readings(Setting(values=values), 7)[:, 40:80], axis=0)  # type: ignore[arg-type]
    steps = steps[~np.isnan(steps)]
    assert (0.0, spread) == (pytest.approx(steps.mean(), abs=0.05), pytest.approx(steps.std(), rel=0.05))


def test_values_depend_on_the_seed_alone() -> None:
    """All runs of an experiment see the same."""
    assert np.array_equal(readings(Setting(speed=0.0), 8), readings(Setting(CPOL2, speed=9.0), 8), equal_nan=True)
    assert not np.array_equal(readings(Setting(), 8), readings(Setting(), 9), equal_nan=True)
