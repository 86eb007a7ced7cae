"""Round 0: the experts' demonstrations, and supervised fine-tuning of the backbone on them."""

from __future__ import annotations

from coda_trainer.backbone import PreparingBackbone
from coda_trainer.episode import Episode
from coda_trainer.learning.behaviour_cloning import chunk_arrays, join_chunks, train_backbone
from coda_trainer.learning.demonstrations import collect_demonstrations
from coda_trainer.learning.rollout import Job
from coda_trainer.rounds.context import RoundContext, RunContext
from coda_trainer.rounds.learning import demonstration_replay

#: Share of a family's demonstrations that show the user's own scene, where there is one.
OWN_SHARE = 0.1


def start(context: RunContext, *, learns: bool) -> None:
    """Demonstrations of every family, and one fine-tuning on all of them.

    ``learns``: rounds follow, so the demonstrations also go into each family's replay.
    """
    shown = []
    for part in context.parts():
        episodes = demonstrate(part)
        part.state.demonstrations = chunk_arrays(episodes, part.backbone.spec.horizon)
        shown.append((part, episodes))
    fine_tune(context)
    if learns:
        # After the fine-tuning, which fits the normalisation that reading them needs.
        for part, episodes in shown:
            demonstration_replay(part, episodes)


def demonstrate(context: RoundContext) -> list[Episode]:
    """A family's demonstrations: noised expert successes on seed scenes (and the user's own)."""
    config = context.config.demonstrations
    bar = context.report.bar(f"demonstrations of {context.family.name}", config.episodes)
    with bar as progress:
        episodes = collect_demonstrations(
            context.pool,
            context.family,
            config.episodes,
            config.noise,
            context.rng("demonstrations"),
            progress,
            pushes=config.pushes,
        )
    if context.scene is not None:
        rng = context.rng("own demonstrations")
        count = max(1, round(OWN_SHARE * config.episodes))
        jobs = [Job(context.scene, int(rng.integers(2**31)), "demonstration") for _ in range(count)]
        shown = context.pool.demonstrate(config.noise, jobs, pushes=config.pushes)
        episodes += [e for e in shown if e.success]
    context.count_steps("demonstrations", sum(e.length for e in episodes))
    return episodes


def fine_tune(context: RunContext) -> None:
    """Behaviour cloning of the backbone on the demonstrations of all families."""
    config = context.config.sft
    backbone = context.state.backbone
    chunks = join_chunks(*context.demonstrations())
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
