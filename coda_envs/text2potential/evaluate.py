"""Potential: a potential program compiled against a family's state features."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np

from coda_envs import predicates
from coda_envs.errors import ProgramError, suggest
from coda_envs.features import FeatureSchema
from coda_envs.programs.potential import (
    AllOf,
    Combine,
    Gate,
    PotentialProgram,
    Predicate,
    Progress,
)
from coda_envs.text2potential import terms
from coda_envs.view import View

Evaluator = Callable[[View], np.ndarray]
_JOINS: dict[str, Callable[..., np.ndarray]] = {
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "product": np.prod,
}


class Potential:
    """Φ: state features ``[..., F]`` → ``[...]`` in [0, 1]. Made by :func:`compile_potential`.

    Stages are read from the goal backwards: with j the latest stage whose gate holds, the current
    stage is k = j + 1 (0 where no gate holds) and Φ = (Σ_{i<k} w_i + w_k·p_k) / Σ w. Where the last
    gate holds, k is the number of stages and Φ = 1.
    """

    def __init__(
        self,
        program: PotentialProgram,
        schema: FeatureSchema,
        gates: list[Evaluator],
        progress: list[Evaluator],
    ) -> None:
        self.program = program
        self.schema = schema
        self._gates = gates
        self._progress = progress
        weights = np.array([s.weight for s in program.stages])
        self._weights = weights / weights.sum()
        self._before = np.concatenate([[0.0], np.cumsum(self._weights)])

    @property
    def version(self) -> str:
        """The program's content hash."""
        return self.program.hash

    @property
    def stage_names(self) -> tuple[str, ...]:
        """Names of the K stages in order."""
        return self.program.stage_names

    def gates(self, features: np.ndarray) -> np.ndarray:
        """Whether each stage's gate holds: bool ``[..., K]``."""
        view = self._view(features)
        return np.stack([gate(view) for gate in self._gates], axis=-1)

    def stage(self, features: np.ndarray) -> np.ndarray:
        """Index ``[...]`` of the current stage; K where the goal holds."""
        return _current(self.gates(features))

    def progress(self, features: np.ndarray) -> np.ndarray:
        """Every stage's progress, whichever is the current one: ``[..., K]`` in [0, 1]."""
        view = self._view(features)
        return np.stack([progress(view) for progress in self._progress], axis=-1)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Φ ``[...]`` in [0, 1], float64."""
        features = np.asarray(features)
        flat = features.reshape(-1, features.shape[-1])
        return self.of_stage(flat, self.stage(flat)).reshape(features.shape[:-1])

    def of_stage(self, features: np.ndarray, stage: np.ndarray) -> np.ndarray:
        """Φ ``[B]`` of ``features [B, F]`` whose current stages ``[B]`` are known already."""
        last = len(self._progress)
        # Where the goal holds the sum of all weights is 1 but for rounding.
        phi = np.where(stage == last, 1.0, self._before[stage])
        for k, progress in enumerate(self._progress):
            rows = np.flatnonzero(stage == k)
            if rows.size:
                phi[rows] += self._weights[k] * progress(self._view(features[rows]))
        return np.minimum(phi, 1.0)

    def _view(self, features: np.ndarray) -> View:
        features = np.asarray(features)
        if features.ndim == 0 or features.shape[-1] != self.schema.size:
            raise ProgramError(
                f"the potential of {self.program.family!r} got features of shape {features.shape}.",
                allowed=f"[..., {self.schema.size}]",
            )
        return View(self.schema, features)


def _current(gates: np.ndarray) -> np.ndarray:
    """Current stage ``[...]`` from gates ``[..., K]``: one past the latest that holds."""
    last = gates.shape[-1]
    latest = last - np.argmax(gates[..., ::-1], axis=-1)
    return np.where(gates.any(axis=-1), latest, 0)


def compile_potential(program: PotentialProgram, schema: FeatureSchema) -> Potential:
    """Resolve every term, predicate and role of the program against the schema.

    Raises :class:`ProgramError` naming the stage, the entry and what is allowed.
    """
    gates: list[Evaluator] = []
    progress: list[Evaluator] = []
    for stage in program.stages:
        try:
            gates.append(_gate(stage.gate, schema))
            progress.append(_progress(stage.progress, schema))
        except ProgramError as error:
            raise ProgramError(
                f"stage {stage.name!r}: {error.problem}",
                allowed=error.allowed,
                remedy=error.remedy,
            ) from error
    return Potential(program, schema, gates, progress)


def _gate(gate: Gate, schema: FeatureSchema) -> Evaluator:
    if isinstance(gate, Predicate):
        return _predicate(gate, schema)
    if isinstance(gate, AllOf):
        every = [_gate(part, schema) for part in gate.all]
        return lambda view: np.all([part(view) for part in every], axis=0)
    some = [_gate(part, schema) for part in gate.any]
    return lambda view: np.any([part(view) for part in some], axis=0)


def _predicate(gate: Predicate, schema: FeatureSchema) -> Evaluator:
    registered = predicates.REGISTRY.get(gate.predicate)
    if registered is None:
        raise ProgramError(
            f"unknown predicate {gate.predicate!r}.",
            allowed=suggest(gate.predicate, predicates.REGISTRY),
        )
    if len(gate.roles) != registered.arity:
        raise ProgramError(
            f"predicate {gate.predicate!r} got {len(gate.roles)} roles: {gate.roles!r}.",
            allowed=f"{registered.arity} role(s), as in {_usage(registered)}",
        )
    for role in gate.roles:
        schema.role_offset(role)
    function, roles = registered.function, gate.roles
    return lambda view: np.asarray(function(view, *roles))


def _usage(predicate: predicates.Predicate) -> str:
    """How a predicate is written: ``over(role, receptacle)``."""
    _, *roles = inspect.signature(predicate.function).parameters
    return f"{predicate.name}({', '.join(roles)})"


def _progress(node: Progress, schema: FeatureSchema) -> Evaluator:
    if not isinstance(node, Combine):
        return terms.resolve(node, schema)
    parts = [_progress(part, schema) for part in node.of]
    if node.op == "not":
        return lambda view: 1.0 - parts[0](view)
    join = _JOINS[node.op]
    return lambda view: np.asarray(join([part(view) for part in parts], axis=0))
