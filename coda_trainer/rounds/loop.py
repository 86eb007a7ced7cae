"""The loop: fine-tune; then generate, collect, diagnose, control, compile, train, measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from coda_envs.errors import HeldOutError, SceneError
from coda_envs.family import get_family
from coda_envs.scene import Scene, parse_scene
from coda_envs.suites import SUITES
from coda_envs.validity import validate
from coda_trainer.compile.author import check_author
from coda_trainer.config import RunConfig
from coda_trainer.episode import Episode
from coda_trainer.evaluation import SuiteResult, evaluate, pooled, scene_jobs, suite_jobs
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.environment import env_spec
from coda_trainer.learning.rollout import Job, RolloutPool
from coda_trainer.learning.signals import RULES
from coda_trainer.memory.store import MemoryStore
from coda_trainer.recall import make_recall
from coda_trainer.report.events import EventLog, rewrite_events
from coda_trainer.report.final import print_results, write_report
from coda_trainer.report.frames import draw_examples
from coda_trainer.report.progress import Reporter
from coda_trainer.rounds.adopted_memory import check_adopted, copy_adopted, open_adopted
from coda_trainer.rounds.checkpoint import load_state, save_state
from coda_trainer.rounds.context import RoundContext, RunContext, RunState
from coda_trainer.rounds.distilling import distil
from coda_trainer.rounds.learning import learn
from coda_trainer.rounds.policy import make_policy
from coda_trainer.rounds.run_folder import RunFolder
from coda_trainer.rounds.start import start
from coda_trainer.strategies import make_strategy
from coda_trainer.strategies.base import Strategy
from coda_trainer.strategies.coda import CoDA
from coda_trainer.strategies.given import Given


def train(
    config: RunConfig,
    out: Path,
    *,
    resume: bool = False,
    scene: Scene | None = None,
    adopted: Path | str | None = None,
    reporter: Reporter | None = None,
) -> None:
    """Run the configuration to its end in the folder ``out``.

    ``resume`` goes on from the last complete checkpoint, or from the start where there is none;
    the figures are those of a run that was never stopped. ``scene``: a scene of the user's own
    that the demonstrations and rounds of its family also use. ``adopted``: another run's memory
    file, of which the run folder gets a copy; its modes are trained on and nothing is diagnosed.
    Raises :class:`CodaError` before anything is written where the scene, the memory, the backbone
    or the run folder cannot be used.
    """
    # Imported here: the command line must not load torch to show its help.
    import torch

    torch.set_num_threads(1)
    report = reporter or Reporter()
    strategy = make_strategy(config.strategy)
    families = tuple(get_family(name) for name in config.families)
    if isinstance(strategy, Given):
        strategy.check(config, families)
    check_author(config)
    if isinstance(strategy, CoDA):
        # It is made again in every round; here, so that nothing is trained in vain.
        make_recall(config)
    frozen = RULES[config.signal].frozen
    backbone = make_policy(config.backbone, config.seed, learns=strategy.learns, frozen=frozen)
    last = config.rounds if strategy.learns else 0
    with ExitStack() as stack:
        stack.callback(backbone.close)
        env = env_spec(backbone.spec, config.control_hz)
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
            taken = None if adopted is None else check_adopted(adopted, config)
            if adopted is not None:
                # Before the manifest that names it: what has one can be resumed.
                copy_adopted(adopted, out)
            extra = {"scene": None if scene is None else scene.to_dict(), "adopted": taken}
            run = RunFolder.create(out, config, extra)
            stack.callback(run.close)
        given = open_adopted(run)
        if given is not None:
            stack.callback(given.close)
        memory = stack.enter_context(MemoryStore(run.memory))
        pool = stack.enter_context(RolloutPool(env, config.workers))
        context = RunContext(
            config, families, 0, run, pool, memory, report, RunState(backbone), scene, given
        )
        first = _go_on(context) if resume else 0
        for round in range(first, last + 1):
            context.round = round
            with _round(context):
                if round == 0:
                    report.headline(f"Round 0: fine-tuning {backbone.spec.name}")
                    start(context, learns=strategy.learns)
                else:
                    _improve(context, strategy, f"Round {round} of {last}: {config.strategy}")
                _evaluate(context, pictures=round == last)
        write_report(run, config, report)


def _improve(context: RunContext, strategy: Strategy, headline: str) -> None:
    """Plan for one family after the other, learn, distil once, and measure every family.

    All families' plans and learners start from the same backbone, so their order changes nothing.
    """
    plans = []
    for part in context.parts():
        several = len(context.families) > 1
        context.report.headline(f"{headline}, {part.family.name}" if several else headline)
        plans.append((part, strategy.plan(part)))
    distil(context, learn(context, plans))
    for part in context.parts():
        strategy.measure(part)


def _go_on(context: RunContext) -> int:
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
def _round(context: RunContext) -> Iterator[None]:
    """A round is complete when its checkpoint is; its TensorBoard events follow."""
    yield
    with context.run.new_checkpoint(context.round) as folder:
        save_state(context, folder)
    with EventLog(context.run.events) as events:
        events.write(r for r in context.run.metrics() if r["round"] == context.round)


def _evaluate(context: RunContext, *, pictures: bool) -> None:
    """Success of the backbone alone in every family, and over all families together."""
    actor = context.actor("evaluation")
    results = []
    for part in context.parts():
        found, episodes = _evaluate_family(part, actor)
        results += found
        if pictures:
            draw_examples(part, episodes)
    if len(context.families) > 1:
        for suite in context.config.evaluation.suites:
            together = pooled([r for r in results if r.suite == suite])
            context.log("evaluation", **together.to_dict())


def _evaluate_family(
    context: RoundContext, actor: ActorSpec
) -> tuple[list[SuiteResult], list[Episode]]:
    """A family's results on every configured suite (and in the user's own scene), and the
    episodes that may be looked at while tuning."""
    config = context.config.evaluation
    family = context.family.name
    tests: list[tuple[str, list[Job]]] = [
        (name, suite_jobs(context.family, name, config.episodes)) for name in config.suites
    ]
    if context.scene is not None:
        tests.append(("own", scene_jobs([context.scene], "own", config.episodes)))
    results: list[SuiteResult] = []
    episodes: list[Episode] = []
    for name, jobs in tests:
        with context.report.bar(f"evaluation of {family} on {name}", len(jobs)) as progress:
            result, found = evaluate(context.pool, actor, jobs, family, name, progress)
        context.log("evaluation", **result.to_dict())
        results.append(result)
        if name != "ood":
            episodes += found
    if RULES[context.config.signal].frozen and context.state.learner is not None:
        _evaluate_choice(context, tests)
    return results, episodes


def _evaluate_choice(context: RoundContext, tests: Sequence[tuple[str, list[Job]]]) -> None:
    """The same tests with the critic's choice among the backbone's samples: a figure of its own,
    never the headline."""
    actor, family = context.choosing_actor("choice", best=True), context.family.name
    for name, jobs in tests:
        what = f"evaluation of {family} on {name}, critic at test time"
        with context.report.bar(what, len(jobs)) as progress:
            result, _ = evaluate(context.pool, actor, jobs, family, name, progress)
        candidates = context.config.learner.candidates
        context.log("critic at test time", candidates=candidates, **result.to_dict())


def check_own_scene(scene: Scene, config: RunConfig) -> None:
    """Raises :class:`SceneError` naming why a user's scene cannot be trained on."""
    if scene.family not in config.families:
        raise SceneError(
            f"the scene is of the family {scene.family!r}.",
            allowed=f"families of the configuration: {', '.join(map(repr, config.families))}",
            remedy=f"add {scene.family!r} to families",
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
