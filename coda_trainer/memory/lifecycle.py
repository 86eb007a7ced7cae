"""A mode's life as a pure state machine: candidate, validated, selected, retained, removed.

==========  =====================  =============================================================
from        event                  to
==========  =====================  =============================================================
candidate   confirmed              validated
candidate   untestable or          candidate (a later control evaluation may still settle it)
            inconclusive
validated   selected               selected: its scenes are trained on from this round on
selected    measured               retained: it was trained on, and nothing speaks for removal
any live    refuted                removed(refuted)
any live    infeasible             removed(infeasible): the expert fails in its scenes
validated,  measured as mastered   removed(mastered): the lower 90% bound of success is above 0.8
selected,   twice in a row
retained
selected,   measured as stalled    first its magnitude is halved, and the count starts anew; the
retained    three rounds running   second time removed(stalled). Stalled: P(|LP| > 0.05) < 0.5 at
                                   success below 0.2
removed     measured, success      validated after mastered or stalled, whose diagnosis still
            down by 0.2            stands; candidate after refuted or infeasible
==========  =====================  =============================================================

A removed mode leaves a tombstone with its success at the time; where it was not measured then,
the first measurement afterwards takes that place.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from coda_envs.errors import RunError, suggest
from coda_trainer.memory.modes import Event, Mode, Probe, Reason, State, Tombstone
from coda_trainer.memory.progress import Measurement

Verdict = Literal["confirmed", "refuted", "untestable", "inconclusive"]
VERDICTS: tuple[str, ...] = get_args(Verdict)

#: The bound of success, its credibility, and how many measurements in a row must pass it.
MASTERED_SUCCESS = 0.8
MASTERED_LEVEL = 0.9
MASTERED_TIMES = 2
#: Success below which a mode can stall, the least P(|LP| > 0.05) of one that does not, and the
#: rounds in a row.
STALLED_SUCCESS = 0.2
STALLED_P_MATERIAL = 0.5
STALLED_ROUNDS = 3
#: The automatic reduction of magnitude that a mode gets before it is removed as stalled.
REDUCTION = 0.5
MAX_REDUCTIONS = 1
#: The drop of success at which a removed mode comes back.
RETURN_DROP = 0.2

#: Where each state can go, besides staying as it is.
TRANSITIONS: dict[State, frozenset[State]] = {
    "candidate": frozenset({"validated", "removed"}),
    "validated": frozenset({"selected", "removed"}),
    "selected": frozenset({"retained", "removed"}),
    "retained": frozenset({"removed"}),
    "removed": frozenset({"candidate", "validated"}),
}


def judge(mode: Mode, round: int, verdict: str) -> Mode:
    """The mode after a control evaluation. Raises :class:`RunError` for a removed mode."""
    if verdict not in VERDICTS:
        raise RunError(f"verdict {verdict!r} is unknown.", allowed=suggest(verdict, VERDICTS))
    _must_be(mode, "judged", "candidate", "validated", "selected", "retained")
    if verdict == "refuted":
        return _remove(mode, round, "refuted")
    if verdict == "confirmed" and mode.state == "candidate":
        return _move(mode, round, "confirmed", "validated")
    return _move(mode, round, verdict, mode.state)


def select(
    mode: Mode,
    round: int,
    *,
    omega_hash: str,
    phi_hash: str = "",
    probes: tuple[Probe, ...] = (),
    controls: tuple[Probe, ...] = (),
) -> Mode:
    """A validated mode, from now on trained on, with its programs and its fixed probes."""
    _must_be(mode, "selected", "validated")
    return _move(
        mode,
        round,
        "selected",
        "selected",
        omega_hash=omega_hash,
        phi_hash=phi_hash,
        probes=probes or mode.probes,
        controls=controls or mode.controls,
    )


def infeasible(mode: Mode, round: int) -> Mode:
    """A mode whose scenes the expert cannot solve: removed."""
    _must_be(mode, "found infeasible", "candidate", "validated", "selected", "retained")
    return _remove(mode, round, "infeasible")


def measure(mode: Mode, round: int, measurement: Measurement) -> Mode:
    """The mode after its probes were run at the end of a round; see the table above.

    At most one measurement a round counts: the rules speak of rounds running. Raises
    :class:`RunError` where the round was measured already, or lies before that one.
    """
    if mode.round_measured is not None and round <= mode.round_measured:
        raise RunError(
            f"mode {mode.id} was measured in round {mode.round_measured} and now in round {round}.",
            allowed="one measurement a round, in order",
        )
    posterior = measurement.success
    progress = measurement.progress
    tried = mode.state in ("selected", "retained")
    mastered = posterior.lower_bound(MASTERED_LEVEL) > MASTERED_SUCCESS
    stalled = (
        tried
        and posterior.mean < STALLED_SUCCESS
        and progress is not None
        and progress.p_material < STALLED_P_MATERIAL
    )
    seen = mode.replaced(
        round_measured=round,
        success=posterior.mean,
        mastered_count=mode.mastered_count + 1 if mastered else 0,
        stalled_count=mode.stalled_count + 1 if stalled else 0,
    )
    note = f"{measurement.successes}/{measurement.trials}"
    if progress is not None:
        note += f", LP {progress.mean:+.3f}, P(|LP| > 0.05) = {progress.p_material:.2f}"
    if mode.tombstone is not None:
        return _measure_removed(seen, mode.tombstone, round, note)
    if mode.state == "candidate":
        return _move(seen, round, "measured", "candidate", note)
    if seen.mastered_count >= MASTERED_TIMES:
        return _remove(seen, round, "mastered", note)
    if seen.stalled_count >= STALLED_ROUNDS:
        if seen.reductions >= MAX_REDUCTIONS:
            return _remove(seen, round, "stalled", note)
        return _move(
            seen,
            round,
            "magnitude reduced",
            "retained",
            note,
            magnitude=seen.magnitude * REDUCTION,
            reductions=seen.reductions + 1,
            stalled_count=0,
        )
    return _move(seen, round, "measured", "retained" if tried else mode.state, note)


def _measure_removed(seen: Mode, tombstone: Tombstone, round: int, note: str) -> Mode:
    assert seen.success is not None
    if tombstone.success is None:
        since = tombstone.model_copy(update={"success": seen.success})
        return _move(seen, round, "measured", "removed", note, tombstone=since)
    # The tolerance keeps a drop of exactly 0.2 from hanging on the last bit of a float.
    if tombstone.success - seen.success < RETURN_DROP - 1e-9:
        return _move(seen, round, "measured", "removed", note)
    back: State = "validated" if tombstone.reason in ("mastered", "stalled") else "candidate"
    return _move(
        seen,
        round,
        "returned",
        back,
        f"{note}; success was {tombstone.success:.2f} when removed ({tombstone.reason})",
        tombstone=None,
        reductions=0,
        mastered_count=0,
        stalled_count=0,
    )


def _remove(mode: Mode, round: int, reason: Reason, note: str = "") -> Mode:
    tombstone = Tombstone(round=round, reason=reason, success=mode.success)
    return _move(mode, round, reason, "removed", note, tombstone=tombstone)


def _move(mode: Mode, round: int, event: str, state: State, note: str = "", **changes: Any) -> Mode:
    if mode.history and round < mode.history[-1].round:
        raise RunError(
            f"mode {mode.id}: {event} in round {round}, after an event of round "
            f"{mode.history[-1].round}.",
            allowed="events in the order of their rounds",
        )
    assert state == mode.state or state in TRANSITIONS[mode.state]
    entry = Event(round=round, event=event, state=state, note=note)
    return mode.replaced(state=state, history=(*mode.history, entry), **changes)


def _must_be(mode: Mode, event: str, *states: State) -> None:
    if mode.state not in states:
        why = f" ({mode.tombstone.reason})" if mode.tombstone else ""
        raise RunError(
            f"mode {mode.id} is {mode.state}{why} and cannot be {event}.",
            allowed=f"{event} where the mode is {' or '.join(states)}",
        )
