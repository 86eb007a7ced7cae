"""The alarm on the mean target value: optimism while success falls."""

from __future__ import annotations

import pytest

from coda_trainer.learning.alarm import AlarmConfig, ValueAlarm


def alarm_after(*rounds, config=None):
    """An alarm that saw (mean value, success) of several rounds."""
    alarm = ValueAlarm(config or AlarmConfig(window=10))
    for value, rate in rounds:
        for _ in range(10):
            alarm.observe_value(value)
        alarm.observe_success(rate)
    return alarm


@pytest.mark.parametrize(
    ("rounds", "rings"),
    [
        ([(0.5, 0.5), (0.55, 0.6), (0.6, 0.7)], False),
        ([(0.5, 0.5), (0.8, 0.3)], True),  # value up, success down
        ([(0.5, 0.5), (0.55, 0.48), (0.6, 0.44), (0.7, 0.3)], True),  # slowly
        ([(0.5, 0.5), (0.95, 0.9)], False),  # both up: it got good
        ([(0.5, 0.5), (0.45, 0.2)], False),  # both down: harder scenes, no optimism
        ([(0.88, 0.9), (0.92, 0.7)], True),  # over the ceiling while success falls
        ([(0.5, 0.5), (0.8, 0.3), (0.8, 0.52)], False),  # recovered
    ],
)
def test_the_alarm_rings_where_value_rises_and_success_falls(rounds, rings):
    assert alarm_after(*rounds).ringing is rings


def test_the_alarm_stops_when_the_value_is_back():
    alarm = alarm_after((0.5, 0.5), (0.8, 0.3))
    for _ in range(10):
        alarm.observe_value(0.6)
    assert alarm.ringing
    for _ in range(10):
        alarm.observe_value(0.52)
    assert not alarm.ringing
