"""``insights``: distilled insights: what most diagnoses say, without asking whether it is so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from coda_envs.errors import ProgramError
from coda_envs.factor import DIGITS, ContinuousFactor
from coda_envs.factors import FactorSpace
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.generation import GenerationProgram, SampleEdit
from coda_envs.scene import Scene
from coda_trainer.compile.generation import guards_of
from coda_trainer.recall.base import Wide
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.diagnosing import DiagnosisPhase
from coda_trainer.rounds.modes import mode_base
from coda_trainer.rounds.refining import potential_in_force
from coda_trainer.strategies.base import RoundPlan, mode_scenes

#: The end of a factor's generator range that "high" or "low" means to an insight.
END = 1 / 3


@dataclass(frozen=True)
class Insight:
    """One sentence, and the diagnoses behind it. ``choice``: of a factor without more and less."""

    factor: str
    direction: str
    choice: int | str | None
    diagnoses: tuple[Diagnosis, ...]

    @property
    def source(self) -> str:
        """What its scenes are called: ``insight:attributes.target.size:high``."""
        return f"insight:{self.factor}:{self.direction if self.choice is None else self.choice}"

    @property
    def sentence(self) -> str:
        """What it says: ``episodes fail where attributes.target.size is high (57 diagnoses)``."""
        value = self.direction if self.choice is None else self.choice
        return f"episodes fail where {self.factor} is {value} ({len(self.diagnoses)} diagnoses)"


class Insights:
    """Sentences that many diagnoses of all rounds agree in. No claim is tested, and none has an
    interval: a sentence says high or low, and the engine goes to that end of the range."""

    diagnoses = True
    tests = False

    def plan(self, context: RoundContext, phase: DiagnosisPhase, wide: Wide) -> RoundPlan:
        """The wide part, scenes for each insight alike, and a potential for their stages."""
        found = self._insights(context)
        aimed: dict[str, Sequence[Scene]] = {}
        for insight in found:
            program = insight_program(insight, context.family.space)
            made = mode_scenes(
                context,
                insight.source,
                program,
                context.config.collect.scenes_per_mode,
                context.rng(f"scenes {insight.source}"),
                lambda rng: mode_base(context, rng),
            )
            if made:
                aimed[insight.source] = made
        context.log("insights", sentences=[i.sentence for i in found])
        behind = [d for i in found if i.source in aimed for d in i.diagnoses]
        return wide.beside(context, aimed, potential_in_force(context, behind))

    def measure(self, context: RoundContext) -> None:
        """Nothing to measure: no modes."""

    @staticmethod
    def _insights(context: RoundContext) -> list[Insight]:
        """As many as the programs would test claims in a round, those of most diagnoses first."""
        rows = context.memory.records("diagnoses")
        kept = [Diagnosis.parse(row["data"], "diagnosis") for row in rows]
        claims = [d for d in kept if not d.abstain and d.family == context.family.name]
        by: dict[tuple[str, str, int | str | None], list[Diagnosis]] = {}
        for claim in claims:
            choice = None
            if isinstance(context.family.space[claim.factor], ContinuousFactor):
                if claim.direction == "other":
                    # A model may say so of a number: no end of the range to go to.
                    continue
            else:
                value = context.memory.scene(claim.scene_id).values[claim.factor]
                assert isinstance(value, (int, str))
                choice = value
            # A choice has no side, whatever a model says of it.
            direction = claim.direction if choice is None else "other"
            by.setdefault((claim.factor, direction, choice), []).append(claim)
        counts = Counter({key: len(found) for key, found in by.items()})
        most = counts.most_common(context.config.diagnosis.max_tested)
        return [Insight(*key, tuple(by[key])) for key, _ in most]


def insight_program(insight: Insight, space: FactorSpace) -> GenerationProgram:
    """The edit that an insight amounts to: the choice, or that end of the generator range.

    Raises :class:`ProgramError` for a number without a direction.
    """
    factor = space[insight.factor]
    if isinstance(factor, ContinuousFactor):
        if insight.direction not in ("high", "low"):
            raise ProgramError(
                f"the insight says {factor.path} is {insight.direction!r}.", allowed="high or low"
            )
        bottom, top = factor.generator
        part = END * (top - bottom)
        low = top - part if insight.direction == "high" else bottom
        edit = SampleEdit(
            edit="sample",
            factor=factor.path,
            low=round(low, DIGITS),
            high=round(low + part, DIGITS),
        )
    else:
        assert insight.choice is not None
        edit = SampleEdit(edit="sample", factor=factor.path, choices=(insight.choice,))
    return GenerationProgram(
        family=space.family,
        roles=(factor.role,) if factor.role else (),
        guards=guards_of(space, factor),
        edits=(edit,),
        provenance=("insight",),
    )
