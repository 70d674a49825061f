"""Signatures in a repository: made, found, and demanded before an image is used."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import validated
from tests.support.in_process import call
from tests.support.signing_keys import write_pair
from tests.unit.signing.conftest import gate, manifest_of, signatory
from trainwright.core.errors import ProofFailed, RegistryRefused, RequestError
from trainwright.push.attest import IN_TOTO, PREDICATE, RECORD, proof_documents
from trainwright.push.references import PushPlace
from trainwright.signing import bundle, notation
from trainwright.signing.keys import load_key
from trainwright.signing.sign import signer
from trainwright.signing.verify import VerifyDocument, covered_documents
from trainwright.site.site import Signing, Site, load_site

PLACE = PushPlace("123456789012", "us-west-2", "team/x")
HOST = "123456789012.dkr.ecr.us-west-2.amazonaws.com"


def signed(here: Any, key: str) -> str:
    return signer(key, Site(), PLACE.region)(here, here, here.image, proof_documents(here, here.image.digest))


def verified(here: Any, **signing: Any) -> VerifyDocument:
    return gate(**signing).verify(PLACE, here.image.digest)


def with_record(here: Any) -> str:
    digest: str = here.attach(here.image, b"{}", IN_TOTO, {PREDICATE: RECORD})
    return digest


def test_an_image_is_signed_with_its_proof_and_once(here: Any, tmp_path: Path) -> None:
    private, public = write_pair(tmp_path)
    record = with_record(here)
    made = signed(here, private)
    found = verified(here, trusted=[public])
    assert found.valid
    assert [(row.kind, row.signer, row.digest) for row in found.signatures] == [("bundle", public, made)]
    assert found.documents == (record,) == covered_documents(found)
    assert signed(here, private) == made
    # Tested again: the new document is not signed yet.
    with_record_too = here.attach(here.image, b"[]", IN_TOTO, {PREDICATE: RECORD})
    assert signed(here, private) != made
    assert verified(here, trusted=[public]).documents == tuple(sorted((record, with_record_too)))


def test_a_signature_by_another_key_does_not_count(here: Any, tmp_path: Path) -> None:
    private, _ = write_pair(tmp_path)
    _, other = write_pair(tmp_path, "other")
    signed(here, private)
    with pytest.raises(ProofFailed, match="not by a trusted key"):
        gate(trusted=[other]).check(PLACE, here.image.digest)


def test_an_image_without_a_signature_is_refused_where_one_is_demanded(here: Any, tmp_path: Path) -> None:
    _, public = write_pair(tmp_path)
    with pytest.raises(ProofFailed, match="no valid signature"):
        gate(trusted=[public]).check(PLACE, here.image.digest)
    assert gate().check(PLACE, here.image.digest) is None  # nothing is demanded
    with pytest.raises(RegistryRefused, match="no such image"):
        gate(trusted=[public]).check(PLACE, "sha256:" + "0" * 64)


def test_a_signature_that_is_moved_to_another_image_does_not_count(here: Any, tmp_path: Path) -> None:
    private, public = write_pair(tmp_path)
    content = here.document(signed(here, private))
    other = manifest_of('{"config": {}}')
    here.add(other)
    here.attach(other, content, bundle.MEDIA_TYPE, bundle.NOTES)
    found = gate(trusted=[public]).verify(PLACE, other.digest)
    assert [row.says for row in found.signatures] == ["it is about another image"]
    assert not found.documents


def test_a_changed_signature_says_so(here: Any, tmp_path: Path) -> None:
    private, public = write_pair(tmp_path)
    said = json.loads(here.document(signed(here, private)))
    here.record.images = [one for one in here.record.images if one.image_digest == here.image.digest]
    said["dsseEnvelope"]["payload"] = said["dsseEnvelope"]["payload"].replace("e", "f", 1)
    here.attach(here.image, json.dumps(said).encode(), bundle.MEDIA_TYPE, bundle.NOTES)
    assert [row.says for row in verified(here, trusted=[public]).signatures] == ["changed after it was signed"]


def test_signatures_of_cosign_2_under_their_tag(here: Any, tmp_path: Path) -> None:
    private, public = write_pair(tmp_path)
    layers = []
    for digest in ("sha256:" + "0" * 64, here.image.digest):
        said = {"image": {"docker-manifest-digest": digest}, "type": "cosign container image signature"}
        payload = json.dumps({"critical": said}).encode()
        signature = base64.b64encode(load_key(private, Site(), "").sign(payload)).decode()
        layers.append(
            {
                "mediaType": bundle.SIMPLE_SIGNING,
                "digest": here.keep(payload),
                "annotations": {bundle.SIMPLE_SIGNATURE: signature},
            }
        )
    here.add(manifest_of(json.dumps({"layers": layers})), bundle.simple_tag(here.image.digest))
    found = verified(here, trusted=[public])
    assert [(row.kind, row.valid) for row in found.signatures] == [("simple-signing", False), ("simple-signing", True)]
    assert covered_documents(found) is None  # it names none, so that all count


def test_a_signature_of_notation(here: Any, tmp_path: Path) -> None:
    who, other = signatory(), signatory()
    envelope = who.envelope(notation.payload_of(here.image))
    notes = {notation.THUMBPRINTS: notation.thumbprints(envelope)}
    here.attach(here.image, envelope, notation.ENVELOPE, notes, artifact=notation.ARTIFACT)
    assert verified(here, trusted=[who.root(tmp_path)]).valid
    refused = verified(here, trusted=[other.root(tmp_path)])
    assert [row.says for row in refused.signatures] == ["the root CN=Root is not trusted"]


def test_what_jobs_name(here: Any, tmp_path: Path) -> None:
    private, public = write_pair(tmp_path)
    asked = gate(trusted=[public])
    here.put_tag(here.image, "latest")
    address = f"{HOST}/team/x"
    for name in (f"{address}@{here.image.digest}", f"{address}:latest", address):
        with pytest.raises(ProofFailed):
            asked.check_address(name)
    with pytest.raises(RegistryRefused, match="no such image"):
        asked.check_address(f"{address}:nothing")
    signed(here, private)
    assert asked.check_address(f"{address}:latest") is not None
    # AWS's own containers, other registries, tags of the engine.
    for name in ("763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.6", "quay.io/a/b:1", "a:1"):
        assert asked.check_address(name) is None


def test_files_of_a_site_are_relative_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "trainwright.toml").write_text(
        '[signing]\nkey = "cosign.key"\ntrusted = ["keys/cosign.pub", "awskms:///alias/a"]\n'
        'profiles = ["arn:aws:signer:us-west-2:123456789012:/signing-profiles/a"]\n'
    )
    signing = load_site(cwd=tmp_path, environ={}).signing
    assert signing.key == str(tmp_path / "cosign.key")
    assert signing.trusted == (str(tmp_path / "keys/cosign.pub"), "awskms:///alias/a")
    (tmp_path / "trainwright.toml").write_text('[signing]\ntrust = ["a"]\n')
    with pytest.raises(RequestError, match=r"signing\.trust"):
        load_site(cwd=tmp_path, environ={})
    (tmp_path / "trainwright.toml").write_text("[signing]\nkey = 3\n")
    with pytest.raises(RequestError, match=r"signing\.key"):
        load_site(cwd=tmp_path, environ={})


@pytest.mark.usefixtures("own_places")
def test_the_verbs(here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainwright.push import ecr, registry

    monkeypatch.setattr(ecr, "Ecr", lambda *_: here)
    monkeypatch.setattr(registry, "Registry", lambda *_: here)
    private, public = write_pair(tmp_path)
    address = f"{HOST}/team/x@{here.image.digest}"
    record = with_record(here)
    done = call("verify", address, "--key", public, "--json")
    assert (done.returncode, validated(done.stdout)["signatures"]) == (1, [])
    made = validated(call("sign", address, "--key", private, "--json").stdout)
    assert made["documents"] == [record]
    # An index is signed with the proof of the image in it.
    inside = {"digest": here.image.digest, "platform": {"architecture": "amd64", "os": "linux"}}
    index = manifest_of(json.dumps({"manifests": [inside]}))
    here.add(index, "index")
    around = f"{HOST}/team/x@{index.digest}"
    assert validated(call("sign", around, "--key", private, "--json").stdout)["documents"] == [record]
    assert validated(call("verify", around, "--key", public, "--json").stdout)["documents"] == [record]
    done = call("verify", address, "--key", public, "--json")
    assert (done.returncode, validated(done.stdout)["valid"]) == (0, True)
    assert call("verify", address).returncode == call("sign", address).returncode == 2  # which key?
    job = ("estimator", "--image", address, "--entry-point", "train.py", "--instance-type", "ml.m5.xlarge")
    _, other = write_pair(tmp_path, "other")
    (tmp_path / "trainwright.toml").write_text(f'[signing]\ntrusted = ["{other}"]\n')
    done = call(*job, cwd=tmp_path)
    assert (done.returncode, "no valid signature" in done.stderr) == (6, True)
    done = call("promote", address, "--to", "123456789012/eu-west-1/aa", cwd=tmp_path)
    assert (done.returncode, "no valid signature" in done.stderr) == (6, True)


def test_nothing_is_demanded_by_a_key_that_signs() -> None:
    assert not Signing(key="a").required
    assert Signing(authorities=("a",)).required
