"""A push through the engine: how often it is tried, what ends it. Scripted here; a real engine is in tests/e2e."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest
import requests
from docker.errors import APIError, ImageNotFound
from urllib3.exceptions import ProtocolError, ReadTimeoutError

from trainwright.core.errors import EngineError, RegistryRefused
from trainwright.push import patience
from trainwright.push.ecr import ImageManifest, Token
from trainwright.push.references import PushPlace
from trainwright.push.upload import Uploaded, upload, upload_checked

IMAGE = "sha256:" + "1" * 64
DIGEST = "sha256:" + "2" * 64
OTHER = "sha256:" + "3" * 64
GOOD = [
    {"status": "Layer already exists", "id": "a"},
    {"status": "Pushing", "id": "b", "progressDetail": {"current": 10, "total": 10}},
    {"status": "Pushed", "id": "b"},
    {"aux": {"Tag": "t", "Digest": DIGEST, "Size": 1}},
]


class Image:
    def __init__(self, engine: Engine) -> None:
        self.id = IMAGE
        self.tags = sorted(engine.names)


class Engine:
    """The part of the docker SDK that a push uses; each push takes the next of ``scripts``."""

    def __init__(self, *scripts: Any, names: tuple[str, ...] = ("built:here",)) -> None:
        self.scripts = list(scripts)
        self.names = set(names)
        self.passwords: list[str] = []
        self.api = self.images = self
        self.timeout = 3600.0

    def get(self, name: str) -> Image:
        if name not in self.names:
            raise ImageNotFound(f"no {name}")
        return Image(self)

    def tag(self, image: str, repository: str, tag: str) -> None:
        assert image == IMAGE
        self.names.add(f"{repository}:{tag}")

    def remove_image(self, name: str, **_: Any) -> None:
        self.names.discard(name)

    def push(
        self, name: str, *, tag: str, auth_config: dict[str, str], stream: bool = False, decode: bool = False
    ) -> Iterator[Any]:
        assert f"{name}:{tag}" in self.names
        assert stream and decode, "without them the SDK returns one text"
        assert auth_config.keys() == {"username", "password"}
        assert auth_config["username"] == "AWS"
        self.passwords.append(auth_config["password"])
        script = self.scripts.pop(0)
        return self._events(script)

    def _events(self, script: Any) -> Iterator[Any]:
        for event in script:
            if isinstance(event, Exception):
                raise event
            yield event


class Repository:
    """The part of :class:`trainwright.push.ecr.Ecr` that a push uses."""

    place = PushPlace("123456789012", "us-west-2", "team/x")

    def __init__(self) -> None:
        self.made = 0

    def token(self, *, renew: bool = False) -> Token:
        self.made += renew or not self.made
        return Token("AWS", f"password {self.made}", datetime(2999, 1, 1, tzinfo=UTC))


def pushed(engine: Engine, pauses: list[float] | None = None) -> Uploaded:
    told: list[str] = []
    waits = pauses if pauses is not None else []
    before = engine.names.copy()
    try:
        return upload(engine, Repository(), IMAGE, "t", progress="none", stall=7, say=told.append, sleep=waits.append)
    finally:
        # Whatever happens: the engine's names are as before, its limit as well, and nobody is told a password.
        assert engine.names == before
        assert engine.timeout == 3600.0
        assert "password" not in " ".join(told)


def error(text: str) -> list[dict[str, str]]:
    return [{"status": "Pushing", "id": "b"}, {"error": text}]


def test_a_push():
    assert pushed(Engine(GOOD)) == Uploaded(DIGEST, 10, 1, 1)


def test_what_may_pass_is_tried_again_after_pauses():
    pauses: list[float] = []
    engine = Engine(error("received unexpected HTTP status: 503"), error("toomanyrequests: Rate exceeded"), GOOD)
    assert pushed(engine, pauses).digest == DIGEST
    assert len(pauses) == 2
    assert 0 < pauses[0] <= 1
    assert 0 < pauses[1] <= 2


def test_tries_are_bounded():
    engine = Engine(*[error("EOF")] * 50)
    with pytest.raises(RegistryRefused) as refused:
        pushed(engine)
    assert refused.value.details["cause"] == "network"
    assert len(engine.passwords) == patience.TRIES


def test_a_token_is_renewed_once_in_a_row():
    expired = error("denied: Your authorization token has expired. Reauthenticate and try again.")
    engine, pauses = Engine(expired, GOOD), list[float]()
    assert pushed(engine, pauses).digest == DIGEST
    assert engine.passwords == ["password 1", "password 2"]
    assert pauses == [0.0], "a new token need not wait"
    engine = Engine(*[expired] * 9)
    with pytest.raises(RegistryRefused):
        pushed(engine)
    assert len(engine.passwords) == 2


def test_a_new_token_helps_anew_after_something_else():
    expired = error("no basic auth credentials")
    engine = Engine(expired, error("EOF"), expired, GOOD)
    assert pushed(engine).digest == DIGEST
    assert engine.passwords == [f"password {n}" for n in (1, 2, 2, 3)]


@pytest.mark.parametrize(
    "text",
    ["name unknown: x", "tag invalid: x", "denied: not authorized to perform: ecr:PutImage", "no space left on device"],
)
def test_what_will_not_pass_is_not_tried_again(text):
    engine = Engine(error(text), GOOD)
    with pytest.raises(RegistryRefused):
        pushed(engine)
    assert len(engine.passwords) == 1


def test_a_layer_that_the_registry_has_lost_is_asked_for_again():
    # docker/for-linux#736
    lost = error("errors:\nmanifest blob unknown: blob unknown to registry\n")
    engine = Engine(lost, GOOD)
    assert pushed(engine).digest == DIGEST
    with pytest.raises(RegistryRefused, match="blob unknown to registry") as refused:
        pushed(Engine(*[lost] * patience.TRIES))
    assert refused.value.details["cause"] == "layer"
    assert "Run the same command again" in refused.value.remedy
    assert "new repository" in refused.value.remedy


def test_an_end_without_a_digest_is_no_success():
    engine = Engine(*[[{"status": "Pushed", "id": "b"}]] * patience.TRIES)
    with pytest.raises(RegistryRefused, match="digest"):
        pushed(engine)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "silent",
    [
        # As requests wraps urllib3's while it reads a stream; by its text, its type, its cause alone.
        requests.exceptions.ConnectionError(ReadTimeoutError(cast(Any, None), "/", "Read timed out.")),
        requests.exceptions.ConnectionError("UnixHTTPConnectionPool(host='localhost', port=None): Read timed out."),
        requests.exceptions.ReadTimeout("no answer"),
        TimeoutError("no answer"),
        caused(requests.exceptions.ConnectionError("no answer"), TimeoutError()),
    ],
    ids=["wrapped", "text", "type", "own", "cause"],
)
def test_a_registry_that_is_silent_ends_it(silent):
    engine = Engine([{"status": "Pushing", "id": "b"}, silent], GOOD)
    with pytest.raises(RegistryRefused, match="7 s") as refused:
        pushed(engine)
    assert refused.value.details["cause"] == "stall"


@pytest.mark.parametrize(
    "end", [ProtocolError("Connection broken"), requests.exceptions.ConnectionError("Connection refused")]
)
def test_an_engine_that_goes_away(end):
    with pytest.raises(EngineError):
        pushed(Engine([{"status": "Pushing", "id": "b"}, end]))


def test_an_engine_that_refuses():
    with pytest.raises(RegistryRefused, match="tag does not exist"):
        pushed(Engine([APIError("500", explanation="tag does not exist: x")]))


def test_ctrl_c_leaves_no_name():
    engine = Engine([KeyboardInterrupt()])
    engine._events = _interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        pushed(engine)


def _interrupted(script: Any) -> Iterator[Any]:
    yield {"status": "Pushing", "id": "b"}
    raise KeyboardInterrupt


def test_a_name_that_was_there_stays_and_so_does_the_last_one():
    name = "123456789012.dkr.ecr.us-west-2.amazonaws.com/team/x:t"
    engine = Engine(GOOD, names=("built:here", name))
    upload(engine, Repository(), IMAGE, "t", progress="none", say=print, sleep=print)
    assert engine.names == {"built:here", name}
    # The engine would delete the image with its last name.
    engine = Engine(GOOD, names=())
    upload(engine, Repository(), IMAGE, "t", progress="none", say=print, sleep=print)
    assert engine.names == {name}


class Read(Repository):
    """A repository in which a tag is read as told, one answer after another."""

    def __init__(self, *answers: ImageManifest | None) -> None:
        super().__init__()
        self.answers = list(answers)

    def manifest(self, *, tag: str) -> ImageManifest | None:
        assert tag == "t"
        return self.answers.pop(0)


def manifest(config: str, digest: str = DIGEST) -> ImageManifest:
    return ImageManifest(digest, json.dumps({"config": {"digest": config}}), "")


def checked(engine: Engine, repository: Read) -> tuple[Uploaded | None, ImageManifest]:
    return upload_checked(engine, repository, IMAGE, "t", progress="none", say=print)  # type: ignore[arg-type]


def test_what_was_pushed_is_read_back_until_ecr_knows_it(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    there = manifest(IMAGE)
    assert checked(Engine(GOOD), Read(there)) == (Uploaded(DIGEST, 10, 1, 1), there)
    assert checked(Engine(GOOD), Read(None, manifest(IMAGE, OTHER), there)) == (Uploaded(DIGEST, 10, 1, 1), there)
    with pytest.raises(RegistryRefused, match=f"pushed as {DIGEST}, but ECR says no image") as refused:
        checked(Engine(GOOD), Read(*[None] * 9))
    assert refused.value.details["cause"] == "digest"
    with pytest.raises(RegistryRefused, match=f"but ECR says {OTHER}"):
        checked(Engine(GOOD), Read(*[manifest(IMAGE, OTHER)] * 9))


# The engine's words where ECR answers ImageTagAlreadyExistsException.
TAKEN = error("tag invalid: The image tag 't' already exists in the 'team/x' repository and cannot be overwritten")


def test_a_tag_that_another_push_of_the_same_image_made_is_as_good():
    assert checked(Engine(TAKEN), Read(manifest(IMAGE))) == (None, manifest(IMAGE))


def test_a_tag_of_another_image_is_a_clash_that_names_it():
    with pytest.raises(RegistryRefused, match=OTHER) as refused:
        checked(Engine(TAKEN), Read(manifest(OTHER, OTHER)))
    assert refused.value.details["cause"] == "immutable"
    with pytest.raises(RegistryRefused) as refused:  # it is gone again
        checked(Engine(TAKEN), Read(None))
    assert refused.value.details["cause"] == "immutable"


def test_another_refusal_is_not_looked_into():
    with pytest.raises(RegistryRefused) as refused:
        checked(Engine(error("denied: not authorized to perform: ecr:PutImage")), Read())
    assert refused.value.details["cause"] == "denied"


def test_each_new_try_says_why_and_when():
    told: list[str] = []
    engine = Engine(error("no basic auth credentials"), error("EOF"), GOOD)
    upload(engine, Repository(), IMAGE, "t", progress="none", say=told.append, sleep=lambda _: None)
    assert "; a new token (try 2 of" in told[0]
    assert re.search(r"; again in \d+ s \(try 3 of", told[1])


def test_a_refusal_without_an_explanation_says_what_there_is():
    with pytest.raises(RegistryRefused, match="the whole answer"):
        pushed(Engine([APIError("the whole answer")]))
