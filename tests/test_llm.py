"""The language model's client, with the real openai package, against a server that misbehaves."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coda_envs.errors import ConfigError, LLMError, ProgramError, RunError
from coda_trainer.llm.answers import read_object
from coda_trainer.llm.client import LLM, MAX_FAILURES
from coda_trainer.llm.question import Picture, Question
from coda_trainer.llm.settings import LLMSettings
from tests.llm_server import completion, dribble, error, hang_up, serve, slow

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
QUESTION = Question("be brief", ("what is x?", Picture(b"png", "a box")), SCHEMA, "x")
FAST: dict[str, Any] = {"model": "stub", "timeout": 0.5, "retries": 0}


def client(base_url: str, **settings: Any) -> LLM:
    return LLM(LLMSettings(base_url=base_url, **(FAST | settings)))


def ask_times(llm: LLM, times: int) -> None:
    for _ in range(times):
        llm.ask(QUESTION)


def x_of(data: dict[str, Any]) -> int:
    if not isinstance(data.get("x"), int):
        raise ProgramError("x is missing.", allowed="a whole number")
    return int(data["x"])


def test_a_question_is_sent_with_its_picture_and_schema_and_every_token_is_counted() -> None:
    with serve('{"x": 3}') as server:
        llm = client(server.base_url, price_in=2.0, price_out=10.0)
        assert llm.ask_for(QUESTION, x_of) == 3
        (sent,) = server.requests
    assert sent["model"] == "stub"
    assert sent["max_tokens"] == llm.settings.answer_tokens
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
    system, user = sent["messages"]
    assert system["content"] == "be brief"
    assert [part["type"] for part in user["content"]] == ["text", "image_url"]
    assert user["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    usage = llm.usage.to_dict()
    assert (usage["calls"], usage["tokens_in"], usage["tokens_out"]) == (1, 11, 7)
    assert usage["cost"] == pytest.approx((11 * 2 + 7 * 10) / 1e6)


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"x": 3}\n```',
        'Sure! Here it is:\n```\n{"x": 3}\n```\nAnything else?',
        '<think>maybe {"x": 9}?</think>\n{"x": 3}',
        '\ufeff \n {"x": 3} as you wished',
    ],
)
def test_talk_and_fences_around_an_object_do_no_harm(text: str) -> None:
    assert read_object(text) == {"x": 3}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        (" \n" * 500, "empty"),
        ("I cannot say.", "no object"),
        ('{"x": 3', "not JSON"),
        ('{"x": NaN}', "NaN"),
        ('{"x": -Infinity}', "-Infinity"),
        ('{"x": 1, "x": 2}', "twice"),
        ('{"a":' * 5000, "nested too deeply|not JSON"),
        ('{"x": ' + "9" * 6000 + "}", "not JSON"),
        ("{" * 200_000, "characters"),
    ],
)
def test_a_useless_answer_is_a_program_error(text: str, words: str) -> None:
    with pytest.raises(ProgramError, match=words):
        read_object(text)


@given(st.text(max_size=300))
def test_any_text_is_an_object_or_a_program_error(text: str) -> None:
    with contextlib.suppress(ProgramError):
        assert isinstance(read_object(text), dict)


def test_an_answer_of_no_use_is_repaired_once() -> None:
    with serve('{"y": 3}', '{"x": 4}') as server:
        llm = client(server.base_url)
        assert llm.ask_for(QUESTION, x_of) == 4
        again = server.requests[1]["messages"][1]["content"][-1]["text"]
    assert '{"y": 3}' in again
    assert "x is missing" in again
    assert llm.usage.to_dict()["repaired"] == 1
    with serve('{"y": 3}') as server:
        llm = client(server.base_url)
        with pytest.raises(LLMError, match="also after one repair: x is missing"):
            llm.ask_for(QUESTION, x_of)
        assert len(server.requests) == 2


def test_an_answer_of_white_space_is_asked_for_again_without_the_format() -> None:
    with serve(completion("\n" * 900, finish="length"), '{"x": 5}') as server:
        llm = client(server.base_url)
        assert llm.ask_for(QUESTION, x_of) == 5
        assert "response_format" in server.requests[0]
        assert "response_format" not in server.requests[1]


def test_a_server_that_refuses_a_format_is_asked_in_a_simpler_one_from_then_on() -> None:
    with serve(error(400, "no json_schema"), error(400, "no json"), '{"x": 5}') as server:
        llm = client(server.base_url)
        assert [llm.ask_for(QUESTION, x_of) for _ in range(2)] == [5, 5]
        formats = [r.get("response_format", {}).get("type") for r in server.requests]
    assert formats == ["json_schema", "json_object", None, None]
    assert llm.usage.to_dict()["calls"] == 2


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_under_load_is_tried_again(status: int) -> None:
    with serve(error(status), '{"x": 6}') as server:
        assert client(server.base_url, retries=1, timeout=5.0).ask_for(QUESTION, x_of) == 6


BROKEN = {
    "an error of the server": (error(500), "InternalServerError"),
    "a wrong key": (error(401), "AuthenticationError"),
    "an unknown model": (error(404), "NotFoundError"),
    "half an answer": (hang_up, "gave no answer"),
    "a late answer": (slow(2.0, '{"x": 1}'), "APITimeoutError|TimeoutError"),
    "an answer byte by byte": (dribble(3.0), "no whole answer within"),
    "no JSON": ((200, b"<html>sign in</html>"), "gave no answer"),
    "another JSON": ((200, b"[1, 2]"), "gave no answer"),
    "no choices": ({"id": "1", "choices": []}, "no message"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_server_is_one_clear_error(case: str) -> None:
    reply, words = BROKEN[case]
    with serve(reply) as server:
        llm = client(server.base_url)
        with pytest.raises(LLMError, match=words):
            llm.ask_for(QUESTION, x_of)
        assert llm.usage.to_dict()["failed"] == 1


def test_a_server_that_is_not_there_is_given_up_after_some_calls() -> None:
    llm = client("http://127.0.0.1:9/v1")
    for _ in range(MAX_FAILURES):
        with pytest.raises(LLMError, match="see that the server runs"):
            llm.ask(QUESTION)
    with pytest.raises(LLMError, match="is not asked: 3 calls in a row"):
        llm.ask(QUESTION)
    assert llm.usage.calls == MAX_FAILURES


@pytest.mark.parametrize(
    "reply",
    [completion(None, refusal="I will not"), completion("", finish="content_filter")],
)
def test_a_refusal_is_not_asked_again(reply: dict[str, Any]) -> None:
    with serve(reply) as server:
        with pytest.raises(LLMError, match="refused"):
            client(server.base_url).ask_for(QUESTION, x_of)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_calls": 2}, "cap of 2 calls"),
        ({"max_tokens": 30}, "cap of 30 tokens"),
        ({"max_cost": 3e-5, "price_in": 1.0, "price_out": 1.0}, "on the cost"),
        ({"max_calls": 0}, "cap of 0 calls"),
    ],
)
def test_no_call_is_made_beyond_a_cap(settings: dict[str, Any], words: str) -> None:
    with serve('{"x": 1}') as server:
        llm = client(server.base_url, **settings)
        with pytest.raises(LLMError, match=words):
            ask_times(llm, 5)
        assert len(server.requests) == min(2, settings.get("max_calls", 2))


def test_caps_hold_where_the_server_counts_no_tokens() -> None:
    with serve(completion('{"x": 1}', usage=None)) as server:
        llm = client(server.base_url, max_tokens=20)
        with pytest.raises(LLMError, match="cap of 20 tokens"):
            ask_times(llm, 20)
        assert len(server.requests) < 20
        assert llm.usage.to_dict()["uncounted_calls"] == len(server.requests)


def test_a_recorded_answer_needs_no_server_and_costs_nothing(tmp_path: Path) -> None:
    folder = str(tmp_path / "answers")
    with serve('{"x": 3}') as server:
        first = client(server.base_url, recordings=folder)
        assert [first.ask_for(QUESTION, x_of) for _ in range(2)] == [3, 3]
        assert len(server.requests) == 1
        address = server.base_url
    later = client(address, recordings=folder, replay=True, max_calls=0)
    # The same scene drawn by another machine, in other bytes.
    redrawn = Question("be brief", ("what is x?", Picture(b"other", "a box")), SCHEMA, "x")
    assert later.ask_for(redrawn, x_of) == 3
    assert later.usage.to_dict() | {"recorded": 0} == client(address).usage.to_dict()
    other = Question("be brief", ("what is x?", Picture(b"png", "a bowl")), SCHEMA, "x")
    with pytest.raises(LLMError, match="no answer in"):
        later.ask(other)


def test_a_broken_recording_is_named(tmp_path: Path) -> None:
    with serve('{"x": 3}') as server:
        llm = client(server.base_url, recordings=str(tmp_path))
        llm.ask(QUESTION)
        (file,) = tmp_path.iterdir()
        file.write_text('{"text": "')
        with pytest.raises(RunError, match=rf"{file.name} is no recorded answer"):
            llm.ask(QUESTION)


def test_the_key_comes_from_the_environment_and_is_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", "canary-1234")
    wrong = error(401, "the key canary-1234 is wrong")
    with serve('{"x": 3}', wrong) as server:
        llm = client(server.base_url, key_variable="MY_KEY", recordings=str(tmp_path))
        llm.ask(QUESTION)
        assert server.keys == ["Bearer canary-1234"]
        with pytest.raises(LLMError) as caught:
            llm.ask(Question("another", (), SCHEMA, "x"))
    told = [p.read_text() for p in tmp_path.iterdir()]
    told += [str(caught.value), json.dumps(llm.settings.model_dump()), *capfd.readouterr()]
    assert not any("canary" in text for text in told)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"base_url": "https://models.example/v1"}, "NO_SUCH_KEY is not set"),
        ({"max_cost": 1.0}, "no prices"),
        ({"replay": True}, "no recordings"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_sent(
    settings: dict[str, Any], words: str
) -> None:
    given = {"base_url": "http://127.0.0.1:9/v1", "key_variable": "NO_SUCH_KEY", **FAST}
    with pytest.raises(ConfigError, match=words):
        LLM(LLMSettings(**(given | settings)))


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://a/v1", "http:///v1", "http://me:canary@host/v1"]
)
def test_an_address_that_is_none_or_holds_a_password_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="address") as caught:
        LLMSettings(base_url=url, model="stub")
    assert "canary" not in str(caught.value)
