"""The loop: fine-tune; then generate, collect, diagnose, control, compile, train, measure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from coda_envs.errors import HeldOutError, SceneError
from coda_envs.family import get_family
from coda_envs.scene import Scene, parse_scene
from coda_envs.suites import SUITES
from coda_envs.validity import validate
from coda_trainer.config import RunConfig
from coda_trainer.evaluation import evaluate, scene_jobs, suite_jobs
from coda_trainer.learning.rollout import EnvSpec, Job, RolloutPool
from coda_trainer.memory.store import MemoryStore
from coda_trainer.report.events import EventLog, rewrite_events
from coda_trainer.report.final import print_results, write_report
from coda_trainer.report.frames import draw_examples
from coda_trainer.report.progress import Reporter
from coda_trainer.rounds import start
from coda_trainer.rounds.checkpoint import load_state, save_state
from coda_trainer.rounds.context import RoundContext, RunState
from coda_trainer.rounds.learning import demonstration_replay
from coda_trainer.rounds.policy import make_policy
from coda_trainer.rounds.run_folder import RunFolder
from coda_trainer.strategies import make_strategy


def train(
    config: RunConfig,
    out: Path,
    *,
    resume: bool = False,
    scene: Scene | None = None,
    reporter: Reporter | None = None,
) -> None:
    """Run the configuration to its end in the folder ``out``.

    ``resume`` goes on from the last complete checkpoint, or from the start where there is none;
    the figures are those of a run that was never stopped. ``scene``: a scene of the user's own
    that demonstrations and rounds also use. Raises :class:`CodaError` before anything is written
    where the scene, the backbone or the run folder cannot be used.
    """
    # Imported here: the command line must not load torch to show its help.
    import torch

    torch.set_num_threads(1)
    report = reporter or Reporter()
    strategy = make_strategy(config.strategy)
    family = get_family(config.family)
    backbone = make_policy(config.backbone, config.seed, learns=strategy.learns)
    last = config.rounds if strategy.learns else 0
    with ExitStack() as stack:
        stack.callback(backbone.close)
        if resume:
            run = RunFolder.open(out)
            stack.callback(run.close)
            if run.finished(last):
                report.headline("Nothing is left to do")
                print_results(run, report)
                return
            own = run.manifest().get("scene")
            scene = None if own is None else parse_scene(own, f"{out}/manifest.json")
        else:
            if scene is not None:
                check_own_scene(scene, config)
            extra = {"scene": None if scene is None else scene.to_dict()}
            run = RunFolder.create(out, config, extra)
            stack.callback(run.close)
        memory = stack.enter_context(MemoryStore(run.memory))
        pool = stack.enter_context(
            RolloutPool(EnvSpec(config.family, config.control_hz), config.workers)
        )
        context = RoundContext(
            config, family, 0, run, pool, memory, report, RunState(backbone), scene
        )
        first = _go_on(context) if resume else 0
        for round in range(first, last + 1):
            context.round = round
            with _round(context):
                if round == 0:
                    report.headline(f"Round 0: fine-tuning {backbone.spec.name}")
                    episodes = start.demonstrate(context)
                    start.fine_tune(context, episodes)
                    if strategy.learns:
                        demonstration_replay(context, episodes)
                else:
                    report.headline(f"Round {round} of {last}: {config.strategy}")
                    # Imported here, since a strategy without rounds needs no learner.
                    from coda_trainer.rounds.learning import improve

                    plan = strategy.plan(context)
                    improve(context, plan)
                    strategy.measure(context)
                _evaluate(context, pictures=round == last)
        write_report(run, config, report)


def _go_on(context: RoundContext) -> int:
    """Restore the last complete checkpoint, if there is one; the round to do next."""
    run = context.run
    for change in run.drift():
        context.report.line(f"{change}: the numbers may differ from those of an uninterrupted run")
    found, problems = run.find_checkpoint()
    for problem in problems:
        context.report.line(f"{problem}; it is left out")
    if found is None:
        context.report.headline("No complete checkpoint: starting with round 0")
        context.memory.rewind(0)
        run.forget_after(-1)
        first = 0
    else:
        context.round, folder = found
        context.report.headline(f"Going on after round {context.round}")
        load_state(context, folder)
        run.forget_after(context.round)
        first = context.round + 1
    rewrite_events(run.events, run.metrics())
    return first


@contextmanager
def _round(context: RoundContext) -> Iterator[None]:
    """A round is complete when its checkpoint is; its TensorBoard events follow."""
    yield
    with context.run.new_checkpoint(context.round) as folder:
        save_state(context, folder)
    with EventLog(context.run.events) as events:
        events.write(r for r in context.run.metrics() if r["round"] == context.round)


def _evaluate(context: RoundContext, *, pictures: bool) -> None:
    """Success on every configured suite (and in the user's own scene), the backbone alone."""
    config = context.config.evaluation
    actor = context.actor("evaluation")
    tests: list[tuple[str, list[Job]]] = [
        (name, suite_jobs(context.family, name, config.episodes)) for name in config.suites
    ]
    if context.scene is not None:
        tests.append(("own", scene_jobs([context.scene], "own", config.episodes)))
    episodes = []
    for name, jobs in tests:
        with context.report.bar(f"evaluation on {name}", len(jobs)) as progress:
            result, found = evaluate(context.pool, actor, jobs, name, progress)
        context.log("evaluation", **result.to_dict())
        if name != "ood":
            # Pictures show scenes that may be looked at while tuning.
            episodes += found
    if pictures:
        draw_examples(context, episodes)


def check_own_scene(scene: Scene, config: RunConfig) -> None:
    """Raises :class:`SceneError` naming why a user's scene cannot be trained on."""
    if scene.family != config.family:
        raise SceneError(
            f"the scene is of the family {scene.family!r}.",
            allowed=f"family {config.family!r}, as in the configuration",
        )
    certificate = validate(scene)
    if not certificate.passed:
        failed = certificate.checks[-1]
        raise SceneError(
            f"the scene fails the check {failed.name!r}: {failed.detail}.",
            allowed="a scene that passes `coda scene validate`",
            remedy="move what the check names, then validate again",
        )
    family = get_family(scene.family)
    region = family.region(scene)
    if region in SUITES:
        raise HeldOutError(
            f"the scene lies in the region of the suite {region!r}, which is kept for testing.",
            allowed="scenes outside the held-out regions",
            remedy=f"change one of {', '.join(family.space.key_paths)}",
        )
