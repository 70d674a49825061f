"""The places of compiled wheels: what goes in comes out; a missing entry is no failure, a refusal is one."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import ANY, Stubber

from trainwright.core.errors import RegistryRefused, RequestError
from trainwright.engine.engine import Client, Engine
from trainwright.push.wheel_places import BucketPlace, FolderPlace, RegistryPlace, place_of
from trainwright.site.site import Site, load_site

KEY = "a" * 64
ENGINE = Engine(Client("/bin/false", "builtin", "20.10", "plain"), "20.10")


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    folder = tmp_path / "entry"
    folder.mkdir()
    (folder / "wheel.json").write_text("{}")
    (folder / "own-1.0-py3-none-any.whl").write_bytes(b"compiled")
    return folder


@pytest.fixture
def bucket() -> Iterator[tuple[BucketPlace, Stubber]]:
    client = boto3.client("s3", region_name="eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")
    with Stubber(client) as stub:
        yield BucketPlace("team", "some/wheels/", client), stub
        stub.assert_no_pending_responses()


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("/srv/wheels", FolderPlace, "/srv/wheels"),
        ("s3://team/some/wheels", BucketPlace, "s3://team/some/wheels/"),
        ("s3://team", BucketPlace, "s3://team/"),
        ("oci://127.0.0.1:5000/team/wheels", RegistryPlace, "oci://127.0.0.1:5000/team/wheels"),
    ],
)
def test_a_site_names_a_place(monkeypatch, text, kind, name):
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    place = place_of(Site(wheels=text), ENGINE)
    assert isinstance(place, kind)
    assert place.name == name


def test_a_bucket_needs_a_region(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RequestError, match="no AWS region"):
        place_of(Site(wheels="s3://team"), ENGINE)


@pytest.mark.parametrize("text", ["s3:/team", "http://team.example/wheels", "s3://T", "oci://", ""])
def test_any_other_place_is_refused(tmp_path, text):
    (tmp_path / "trainwright.toml").write_text(f'wheels = "{text}"\n')
    with pytest.raises(RequestError, match="wheels"):
        load_site(cwd=tmp_path, environ={})


def test_a_folder_is_relative_to_the_file_that_names_it_and_need_not_be_there(tmp_path):
    (tmp_path / "trainwright.toml").write_text('wheels = "team/wheels"\n')
    assert load_site(cwd=tmp_path, environ={}).wheels == str(tmp_path / "team/wheels")


def test_a_folder_gives_what_it_was_given(tmp_path, entry):
    place, out = FolderPlace(tmp_path / "place"), tmp_path / "out"
    assert not place.fetch(KEY, out)
    place.store(KEY, entry)
    place.store(KEY, entry)
    assert [path.name for path in (tmp_path / "place").iterdir()] == [KEY]
    assert place.fetch(KEY, out)
    assert content(out) == content(entry)


def test_a_folder_that_cannot_be_written_refuses(tmp_path, entry):
    (tmp_path / "file").write_text("")
    with pytest.raises(RegistryRefused, match="cannot be written"):
        FolderPlace(tmp_path / "file").store(KEY, entry)


def test_a_bucket_gives_what_it_was_given(tmp_path, entry, bucket, monkeypatch):
    place, stub = bucket
    sent: list[bytes] = []
    put = place._client.put_object
    monkeypatch.setattr(
        place._client, "put_object", lambda **words: (sent.append(words["Body"].read()), put(**words))[1]
    )
    where = {"Bucket": "team", "Key": f"some/wheels/{KEY}.tar"}
    stub.add_response("put_object", {}, {**where, "Body": ANY})
    place.store(KEY, entry)
    stub.add_response("get_object", {"Body": StreamingBody(io.BytesIO(sent[0]), len(sent[0]))}, where)
    out = tmp_path / "out"
    out.mkdir()
    assert place.fetch(KEY, out)
    assert content(out) == content(entry)


def test_a_bucket_without_the_entry_is_not_one_that_refuses(tmp_path, bucket):
    place, stub = bucket
    stub.add_client_error("get_object", "NoSuchKey", http_status_code=404)
    assert not place.fetch(KEY, tmp_path)
    stub.add_client_error("get_object", "AccessDenied", http_status_code=403)
    with pytest.raises(RegistryRefused, match="AccessDenied"):
        place.fetch(KEY, tmp_path)


@pytest.mark.parametrize("name", ["../outside", "/outside", "deep/er"])
def test_an_archive_is_unpacked_into_its_folder_alone(tmp_path, bucket, name):
    place, stub = bucket
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    data = out.getvalue()
    stub.add_response("get_object", {"Body": StreamingBody(io.BytesIO(data), len(data))})
    (tmp_path / "in").mkdir()
    with pytest.raises(RegistryRefused, match="not one of ours"):
        place.fetch(KEY, tmp_path / "in")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


# As Docker 20.10 and 28 say it, and ECR.
@pytest.mark.parametrize(
    ("said", "missing"),
    [
        (f"Error response from daemon: manifest for 127.0.0.1:5000/w:{KEY} not found: manifest unknown", True),
        ("Error response from daemon: name unknown: The repository with name 'w' does not exist", True),
        ("Error response from daemon: Head https://r.example/v2/w: no basic auth credentials", False),
        ("Error response from daemon: Get https://r.example/v2/: dial tcp: connection refused", False),
    ],
)
def test_a_registry_without_the_entry_is_not_one_that_refuses(tmp_path, said, missing):
    client = tmp_path / "docker"
    client.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit 1\n')
    client.chmod(0o755)
    place = RegistryPlace("r.example/w", Engine(Client(str(client), "builtin", "20.10", "plain"), "20.10"))
    if missing:
        assert not place.fetch(KEY, tmp_path)
        return
    with pytest.raises(RegistryRefused, match="docker pull") as refused:
        place.fetch(KEY, tmp_path)
    assert "docker login r.example" in refused.value.remedy
