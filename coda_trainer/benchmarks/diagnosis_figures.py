"""Figures, tables and picture of the diagnosis benchmark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from coda_trainer.benchmarks import plots
from coda_trainer.benchmarks.tables import NOT_MEASURED, Table
from coda_trainer.statistics import wilson

Trial = Mapping[str, Any]
#: Bounds of the bins of confidence.
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
#: Resamples of trials for an interval. Failures of one trial share their cause, so that trials, not
#: failures, are what there are many of.
RESAMPLES = 2000
#: Most confusions that are listed.
CONFUSIONS = 8
#: Of the paper's Table 3, with people in the place of known causes: refuted and agreement [%].
PAPER = {"GPT-5.5": (18.2, 82.4), "Claude Opus 5": (20.3, 81.5), "Qwen3-VL-235B": (27.5, 73.8)}


def combine(trials: Sequence[Trial], baseline: str) -> dict[str, Any]:
    """The figures of the trials that are done; None where nothing was measured."""
    used = [t for t in trials if not t["left_out"]]
    names = list(dict.fromkeys(name for t in used for name in t["said"]))
    return {
        "trials": len(used),
        "failures": sum(t["caused"] for t in used),
        "left_out": {_name(t): t["left_out"] for t in trials if t["left_out"]},
        "baseline": baseline,
        "majority_class": _majority(used),
        "diagnosticians": {name: _one(used, name) for name in names},
    }


def _one(trials: Sequence[Trial], name: str) -> dict[str, Any]:
    said = [t["said"][name] for t in trials]
    groups = {
        kind: {
            value: _rate([t["said"][name] for t in trials if t[kind] == value], _factor)
            for value in sorted({t[kind] for t in trials})
        }
        for kind in ("fault", "family")
    }
    controls = [
        {**c, "cause": (c["factor"], c["direction"]) == _cause(t)}
        for t in trials
        for c in t["said"][name]["controls"]
        if c["episodes"]
    ]
    decided = [c for c in controls if c["verdict"] in ("confirmed", "refuted")]
    refuted = [c["verdict"] == "refuted" for c in decided]
    agreed = {
        kind: _share([(c["verdict"] == "confirmed") == c[kind] for c in decided])
        for kind in ("true", "cause")
    }
    usage = [s["usage"] for s in said if s["usage"]]
    return {
        "stage": _rate(said, lambda s: (s["stage_right"], s["diagnosed"])),
        "factor": _rate(said, _factor),
        "factor_or_second": _rate(
            said, lambda s: (s["factor_or_second"], s["diagnosed"] - s["abstained"])
        ),
        "direction": _rate(said, lambda s: (s["direction_right"], s["factor_right"])),
        "abstention": _rate(said, lambda s: (s["abstained"], s["diagnosed"])),
        "claims_about_others": _rate(said, lambda s: (s["other_claims"], s["other_failures"])),
        "tested": len(controls),
        "refuted_percent": _share(refuted),
        "refuted_percent_of_tested": _share([c["verdict"] == "refuted" for c in controls]),
        "agreement": agreed["true"],
        "agreement_on_cause": agreed["cause"],
        "calibration": _calibration([tuple(pair) for s in said for pair in s["confidence"]]),
        "by": groups,
        "stage_confusion": _confusion(trials, name, "stages", lambda t: t["stage"]),
        "factor_confusion": _confusion(trials, name, "factors", lambda t: t["cause"]["factor"]),
        "usage": {k: _total([u[k] for u in usage]) for k in usage[0]} if usage else None,
    }


def _cause(trial: Trial) -> tuple[str, str]:
    return trial["cause"]["factor"], trial["cause"]["direction"]


def _factor(said: Mapping[str, Any]) -> tuple[int, int]:
    return said["factor_right"], said["diagnosed"] - said["abstained"]


def _rate(
    said: Sequence[Mapping[str, Any]], count: Callable[[Mapping[str, Any]], tuple[int, int]]
) -> dict[str, Any] | None:
    """A share over all failures, with a bootstrap interval over trials; None: nothing to count."""
    pairs = np.array([count(s) for s in said if count(s)[1]], dtype=np.float64).reshape(-1, 2)
    if not len(pairs):
        return None
    # The same resamples for every figure: differences are not those of the drawing.
    rows = np.random.default_rng(0).integers(len(pairs), size=(RESAMPLES, len(pairs)))
    resampled = pairs[rows].sum(1)
    interval = np.quantile(resampled[:, 0] / resampled[:, 1], (0.025, 0.975)).tolist()
    right, of = pairs.sum(0)
    return {
        "rate": right / of,
        "n": int(of),
        "trials": len(pairs),
        "interval95": interval if len(pairs) > 1 else None,
    }


def _share(flags: Sequence[bool]) -> dict[str, Any] | None:
    if not flags:
        return None
    share = sum(flags) / len(flags)
    return {"rate": share, "n": len(flags), "interval95": wilson(sum(flags), len(flags))}


def _majority(trials: Sequence[Trial]) -> dict[str, Any] | None:
    """Always the factor that was the cause most often in the family's other trials."""
    pairs = []
    for trial in trials:
        others = Counter(
            t["cause"]["factor"]
            for t in trials
            if t is not trial and t["family"] == trial["family"]
        )
        if others:
            guess = min(others, key=lambda factor: (-others[factor], factor))
            right = trial["caused"] if guess == trial["cause"]["factor"] else 0
            pairs.append({"right": right, "of": trial["caused"]})
    return _rate(pairs, lambda p: (p["right"], p["of"]))


def _calibration(pairs: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Mean confidence and share of right factors, by bin of confidence."""
    found = []
    for low, high in pairwise(BINS):
        inside = [p for p in pairs if low <= p[0] < high or p[0] == high == BINS[-1]]
        if inside:
            found.append(
                {
                    "from": low,
                    "to": high,
                    "n": len(inside),
                    "confidence": float(np.mean([c for c, _ in inside])),
                    "right": float(np.mean([r for _, r in inside])),
                }
            )
    return found


def _confusion(
    trials: Sequence[Trial], name: str, what: str, truth: Callable[[Trial], str]
) -> dict[str, dict[str, int]]:
    """By true value: how often each was said."""
    counts: dict[str, Counter[str]] = {}
    for trial in trials:
        counts.setdefault(truth(trial), Counter()).update(trial["said"][name][what])
    return {true: dict(counts[true].most_common()) for true in sorted(counts)}


def _total(values: Sequence[Any]) -> Any:
    return None if any(v is None for v in values) else sum(values)


def _name(trial: Trial) -> str:
    return f"{trial['family']} {trial['fault']} seed {trial['seed']}"


# Tables and picture ------------------------------------------------------------------------------


def tables(figures: Mapping[str, Any]) -> list[Table]:
    """The figures, the paper's beside them."""
    found = figures["diagnosticians"]
    rows = [
        (
            name,
            *(
                _percent(one[key])
                for key in ("stage", "factor", "direction", "abstention", "claims_about_others")
            ),
            _percent(one["refuted_percent"]),
            _percent(one["agreement"]),
            _percent(one["agreement_on_cause"]),
        )
        for name, one in found.items()
    ]
    rows.append(("majority class", NOT_MEASURED, _percent(figures["majority_class"]), *["–"] * 6))
    rows += [
        (f"paper: {m}", *["–"] * 5, f"{r:.1f}", f"{a:.1f}", "–") for m, (r, a) in PAPER.items()
    ]
    columns = (
        "diagnostician",
        "stage right [%]",
        "factor right, where named [%]",
        "side right [%]",
        "abstained [%]",
        "claims about other failures [%]",
        "refuted [%]",
        "verdicts that agree [%]",
        "the same, whatever the stage [%]",
    )
    notes = [
        f"{figures['trials']} trials, {figures['failures']} failures with a known cause. "
        "[95% interval: bootstrap over trials; of verdicts Wilson's], (n). Abstained and stage are "
        "of all such failures. Other failures have no cause that a factor could give: a claim "
        "about one is a false alarm. Refuted: of the claims that control evaluations decided. "
        "Agree: verdicts that confirm a true claim or refute a wrong one; a claim is true where "
        "factor, side and stage are, or in the last column factor and side: a cause shows at more "
        "stages than one. The paper's figures are of other failures, judged by people.",
        *(f"Left out: {name}: {why}." for name, why in figures["left_out"].items()),
    ]
    shown = [Table("Diagnoses of known causes", columns, rows, notes)]
    for kind in ("fault", "family"):
        values = sorted({v for one in found.values() for v in one["by"][kind]})
        by = [
            (value, *(_percent(one["by"][kind].get(value)) for one in found.values()))
            for value in values
        ]
        shown.append(Table(f"Factor right, by {kind} [%]", (kind, *found), by))
    for name, one in found.items():
        if name != figures["baseline"]:
            shown.append(_confusions(name, one))
    return shown


def _confusions(name: str, one: Mapping[str, Any]) -> Table:
    wrong = sorted(
        (
            (count, true, said)
            for what in ("stage_confusion", "factor_confusion")
            for true, counts in one[what].items()
            for said, count in counts.items()
            if said != true
        ),
        key=lambda row: (-row[0], row[1], row[2]),
    )
    rows = [(true, said, str(count)) for count, true, said in wrong[:CONFUSIONS]]
    return Table(
        f"Most frequent confusions of {name}",
        ("true", "said", "failures"),
        rows or [("none", "–", "0")],
    )


def draw(figures: Mapping[str, Any], path: Path) -> None:
    """Calibration, and the factor's accuracy by fault."""
    figure, (left, right) = plots.canvas(2)
    left.plot((0, 1), (0, 1), color="#999999", ls=":", label="calibrated")
    for number, (name, one) in enumerate(figures["diagnosticians"].items()):
        bins = one["calibration"]
        colour = plots.COLOURS[number % len(plots.COLOURS)]
        marker = plots.MARKERS[number % len(plots.MARKERS)]
        across = [b["confidence"] for b in bins]
        left.plot(across, [b["right"] for b in bins], marker=marker, color=colour, label=name)
        rates = one["by"]["fault"]
        places = np.arange(len(rates)) + 0.2 * number
        heights = [100 * r["rate"] if r else np.nan for r in rates.values()]
        right.bar(places, heights, width=0.18, color=colour, label=name)
        right.set_xticks(np.arange(len(rates)), list(rates), rotation=30, ha="right")
    left.set_xlabel("confidence")
    left.set_ylabel("share of right factors")
    left.set_title("Calibration", loc="left", fontsize=10)
    right.set_ylabel("factor right, where named [%]")
    right.set_title("By fault", loc="left", fontsize=10)
    for axis in (left, right):
        plots.finish(axis)
    plots.save(figure, path)


def _percent(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return NOT_MEASURED
    interval = found["interval95"]
    spread = f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]" if interval else ""
    return f"{100 * found['rate']:.1f}{spread} ({found['n']})"
