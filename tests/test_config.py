"""Run configurations: what is read, what is refused, and what the refusal says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from coda_envs.errors import ConfigError, RunError
from coda_trainer.config import RunConfig
from coda_trainer.config_file import load_config, load_run_config
from coda_trainer.strict_json import dumps

CONFIGS = Path(__file__).parents[1] / "configs"


def load(tmp_path: Path, text: str, *overrides: str) -> RunConfig:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    return load_config(file, overrides)


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from leaves(kind, f"{prefix}{name}.")
        else:
            yield prefix + name


LEAVES = sorted(leaves(RunConfig))


def test_demo_lists_every_setting_in_the_order_of_the_schema() -> None:
    def keys(data: Any, prefix: str = "") -> Iterator[str]:
        for name, value in data.items():
            if isinstance(value, dict) and name not in ("options", "given"):
                yield from keys(value, f"{prefix}{name}.")
            else:
                yield prefix + name

    written = list(keys(yaml.safe_load((CONFIGS / "demo.yaml").read_text())))
    assert written == list(leaves(RunConfig))


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda p: p.name)
def test_shipped_configurations_load_and_survive_the_run_folder(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    assert "ood-dev" in config.evaluation.suites
    assert load(tmp_path, config.to_yaml()) == config
    assert json.loads(json.dumps(config.to_dict())) == config.to_dict()


def test_an_override_wins_over_the_file(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "rounds: 2\nlearner: {batch_size: 10, updates_per_block: 7}\n",
        "learner.batch_size=64",
        "evaluation.suites=[seed]",
        "backbone.options.width=96",
        "demonstrations.noise=1e-1",
    )
    assert config.rounds == 2
    assert (config.learner.batch_size, config.learner.updates_per_block) == (64, 7)
    assert config.evaluation.suites == ("seed",)
    assert config.backbone.options == {"width": 96}
    assert config.demonstrations.noise == 0.1


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        RunConfig().seed = 3  # type: ignore[misc]


@pytest.mark.parametrize("key", LEAVES)
def test_a_misspelt_key_is_named_with_its_line_and_the_right_one(tmp_path: Path, key: str) -> None:
    *groups, name = key.split(".")
    # Of three letters, two wrong ones would leave nothing to recognise.
    wrong = name[:-1] + ("qq" if len(name) > 3 else "q")
    text = "".join(f"{'  ' * i}{g}:\n" for i, g in enumerate(groups))
    text += f"{'  ' * len(groups)}{wrong}: 1\n"
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"# a comment\n{text}")
    message = str(caught.value)
    assert f"run.yaml, line {len(groups) + 2}:" in message
    assert wrong in message
    assert f"did you mean {name!r}?" in message

    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "", f"{'.'.join([*groups, wrong])}=1")
    assert "--set" in str(caught.value)
    assert f"did you mean {name!r}?" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: 1\nrounds: three\n", ("line 2", "rounds", "'three'", "a whole number")),
        ("rounds: '3'\n", ("rounds", "'3'", "a whole number")),
        ("rounds: true\n", ("rounds", "True", "a whole number")),
        ("rounds: 1.5\n", ("rounds", "1.5", "a whole number")),
        ("rounds: -1\n", ("rounds", "-1", "greater than or equal to 0")),
        ("families: []\n", ("line 1", "families", "[]", "at least one")),
        ("families: pick-place\n", ("families", "'pick-place'", "a list")),
        ("families: [a, b, a]\n", ("families", "'a', 'b', 'a'", "each family once")),
        ("families: [a, '']\n", ("families.1", "''", "not empty")),
        ("seed: 1\nfamily: a\n", ("line 2", "'family'", "now families: [pick-place]")),
        (
            "strategy: codaa\n",
            ("strategy", "'codaa'", "'sft', 'uniform', 'graded', 'coda' or 'given'"),
        ),
        ("control_hz: 15\n", ("control_hz", "15", "10 or 20")),
        ("collect: {wide_share: 0.2}\n", ("collect.wide_share", "0.2", "0.5")),
        ("demonstrations: {noise: .nan}\n", ("demonstrations.noise", "nan", "finite")),
        ("learner: 3\n", ("learner", "3", "a group of settings")),
        ("learner:\n", ("learner", "None", "a group of settings")),
        ("evaluation: {suites: [seed, odd]}\n", ("evaluation.suites.1", "'odd'", "'ood-dev'")),
        ("backbone: {options: {a: [1]}}\n", ("backbone.options.a", "[1]", "a number")),
        ("backbone: {name: ''}\n", ("backbone.name", "''", "not empty")),
        ("seed: 1\nseed: 2\n", ("line 2", "'seed' is given twice")),
        ("a: &a {b: *a}\n", ("line 1", "alias")),
        ("seed: [1\n", ("not YAML", "line")),
        ("- 1\n", ("list", "a mapping")),
        ("seed: !!python/name:os.system\n", ("not YAML", "python/name")),
        ("[" * 600, ("not YAML",)),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(
    tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert "run.yaml" in message
    assert "Remedy: " in message
    for word in words:
        assert word in message


def test_a_few_aliases_cannot_stand_for_billions_of_entries(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 20)]
    with pytest.raises(ConfigError, match="alias"):
        load(tmp_path, "\n".join(lines))


@pytest.mark.parametrize(
    "override", ["rounds", "=3", "a..b=3", ".rounds=3", "rounds=[", "rounds.x=3", "learner=3"]
)
def test_a_bad_override_is_named(tmp_path: Path, override: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        load(tmp_path, "", override)


def test_the_old_name_of_a_setting_is_answered_with_the_new_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--set: 'family'.*now families: \[pick-place\]"):
        load(tmp_path, "", "family=articulated")
    config = load(tmp_path, "families: [a]\n", "families=[pick-place, articulated]")
    assert config.families == ("pick-place", "articulated")


@pytest.mark.parametrize(
    "override",
    [
        "openai_api_key=canary-7",
        "backbone.options.api-key=canary-7",
        "backbone.options.token=canary-7",
        "backbone.options={password: canary-7}",
        "diagnosis.api_key:canary-7",
        "backbone.options.url=https://user:canary-7@host/v1",
        "backbone.options.urls=['https://canary-7@host/v1']",
    ],
)
def test_a_secret_is_refused_and_not_repeated(tmp_path: Path, override: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "", override)
    assert "canary" not in str(caught.value)
    assert "environment variable" in str(caught.value)


def test_a_secret_in_the_file_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "backbone:\n  options: {server_token: canary-7}\n")
    assert "server_token" in str(caught.value)
    assert "canary" not in str(caught.value)


def test_harmless_names_are_no_secrets(tmp_path: Path) -> None:
    config = load(tmp_path, "", "backbone.options.max_tokens=5", "backbone.options.url=http://h/@x")
    assert config.backbone.options == {"max_tokens": 5, "url": "http://h/@x"}


@pytest.mark.parametrize("kind", ["missing", "folder", "binary", "huge"])
def test_an_unreadable_file_is_named(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "run.yaml"
    if kind == "folder":
        file.mkdir()
    elif kind == "binary":
        file.write_bytes(b"\xff\xfe\x00")
    elif kind == "huge":
        file.write_text("#" * 1_000_001)
    with pytest.raises(ConfigError, match=r"run\.yaml.*Remedy"):
        load_config(file)


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no config\.yaml and no manifest\.json.*Remedy"):
        load_run_config(tmp_path)
    with pytest.raises(RunError, match="not a folder"):
        load_run_config(tmp_path / "nothing")
    (tmp_path / "config.yaml").write_text(RunConfig(seed=4).to_yaml())
    (tmp_path / "manifest.json").write_text("{}")
    assert load_run_config(tmp_path).seed == 4


WORDS = st.sampled_from(sorted({part for path in LEAVES for part in path.split(".")} | {"x"}))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=ANYTHING, value=ANYTHING, key=st.sampled_from([*LEAVES, "learner", "x.y"]))
def test_any_document_is_read_or_refused(tmp_path: Path, data: Any, value: Any, key: str) -> None:
    text = yaml.safe_dump(data, default_flow_style=True)
    override = f"{key}={yaml.safe_dump(value, default_flow_style=True)}"
    try:
        config = load(tmp_path, text, override)
    except ConfigError:
        return
    assert load(tmp_path, config.to_yaml()) == config


@given(
    data=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=10,
    )
)
def test_printed_json_is_strict(data: Any) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    json.loads(dumps({"data": data}), parse_constant=refuse)
