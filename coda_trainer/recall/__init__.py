"""What a round takes from the memory: CoDA's programs, and the alternatives to them, one file each.

Imported where one is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from coda_envs.errors import ConfigError
from coda_trainer.config import RunConfig

if TYPE_CHECKING:
    from coda_trainer.recall.base import Recall

#: By the value of the setting ``coda.memory``: its module and class.
RECALLS: Mapping[str, str] = {
    "programs": "coda_trainer.recall.programs:Programs",
    "none": "coda_trainer.recall.nothing:Nothing",
    "trajectories": "coda_trainer.recall.trajectories:Trajectories",
    "insights": "coda_trainer.recall.insights:Insights",
    "skills": "coda_trainer.recall.skills:Skills",
}
#: For a run that was given another one's memory.
ADOPTED = "coda_trainer.recall.adopted:Adopted"


def make_recall(config: RunConfig, *, adopted: bool = False) -> Recall:
    """What the configuration names; ``adopted``: the run was given another run's memory.

    Raises :class:`ConfigError` for a kind of memory that the configuration leaves no use for.
    """
    distils = config.learner.update != "weighted" and config.signal != "frozen"
    distils = distils and config.distil.updates > 0 and config.distil.episodes > 0
    if config.coda.memory == "skills" and not distils:
        raise ConfigError(
            "coda.memory is 'skills', but nothing is distilled, so that none can be rehearsed.",
            allowed="learner.update: residual or ppo; distil.updates and distil.episodes above 0; "
            "no frozen signal",
        )
    module, _, kind = (ADOPTED if adopted else RECALLS[config.coda.memory]).partition(":")
    made: Recall = getattr(import_module(module), kind)()
    return made


__all__ = ["ADOPTED", "RECALLS", "make_recall"]
