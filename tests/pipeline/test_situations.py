"""What the pipeline tells of situation rules that wait in vain, and of readings that are none."""

from __future__ import annotations

import logging

import pytest

from nearcast.pipeline.monitoring import PipelineMetrics, SituationMonitor
from nearcast.situations.stage import SituationStage
from tests.situations.scenes import FIRE, inferred, told


def test_rules_that_wait_in_vain_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A rule over a class that nobody provides is counted and logged, until somebody does."""
    stage, metrics = SituationStage(), PipelineMetrics()
    watch = SituationMonitor(metrics)
    inferred([FIRE], [told(0, "a", Temperature=90, Humidity=-1)], stage)
    with caplog.at_level(logging.INFO, "nearcast.pipeline"):
        watch.report([stage])
        watch.report([stage])
    assert ["situation rule waits rule=fire for=Humidity: no reading so far"] == caplog.messages
    assert 1 == metrics.registry.get_sample_value("nearcast_pipeline_unprovided")
    labels = {"name": "Humidity", "reason": "out of range"}
    assert 1 == metrics.registry.get_sample_value("nearcast_pipeline_unusable_total", labels)
    inferred([], [told(0, "a", Humidity=5)], stage)
    watch.report([stage])
    assert 0 == metrics.registry.get_sample_value("nearcast_pipeline_unprovided")
