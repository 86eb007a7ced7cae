"""Round 0: the expert's demonstrations, and supervised fine-tuning of the backbone on them."""

from __future__ import annotations

from coda_trainer.backbone import PreparingBackbone
from coda_trainer.episode import Episode
from coda_trainer.learning.behaviour_cloning import chunk_arrays, train_backbone
from coda_trainer.learning.demonstrations import collect_demonstrations
from coda_trainer.learning.rollout import Job
from coda_trainer.rounds.context import RoundContext

#: Share of the demonstrations that show the user's own scene, where there is one.
OWN_SHARE = 0.1


def demonstrate(context: RoundContext) -> list[Episode]:
    """The run's demonstrations: noised expert successes on seed scenes (and the user's own)."""
    config = context.config.demonstrations
    with context.report.bar("demonstrations", config.episodes) as progress:
        episodes = collect_demonstrations(
            context.pool,
            context.family,
            config.episodes,
            config.noise,
            context.rng("demonstrations"),
            progress,
        )
    if context.scene is not None:
        rng = context.rng("own demonstrations")
        count = max(1, round(OWN_SHARE * config.episodes))
        jobs = [Job(context.scene, int(rng.integers(2**31)), "demonstration") for _ in range(count)]
        episodes += [e for e in context.pool.demonstrate(config.noise, jobs) if e.success]
    context.count_steps("demonstrations", sum(e.length for e in episodes))
    return episodes


def fine_tune(context: RoundContext, episodes: list[Episode]) -> None:
    """Behaviour cloning of the backbone on the demonstrations."""
    config = context.config.sft
    backbone = context.state.backbone
    chunks = chunk_arrays(episodes, backbone.spec.horizon)
    context.state.demonstrations = chunks
    if config.updates == 0:
        # It acts as it is, but for a normalisation that it may need.
        if isinstance(backbone, PreparingBackbone):
            backbone.prepare(chunks)
        return
    with context.report.bar("fine-tuning", config.updates) as progress:
        metrics = train_backbone(
            backbone,
            chunks,
            updates=config.updates,
            batch_size=config.batch_size,
            rng=context.rng("fine-tuning"),
            progress=lambda step, _: progress(step),
        )
    context.log("sft", loss=metrics["loss"], updates=config.updates, chunks=len(chunks))
