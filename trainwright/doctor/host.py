"""This machine itself: its Python, its certificates, its AWS credentials (found, never tried or shown)."""

from __future__ import annotations

import configparser
import os
import ssl
import sys
import time
from pathlib import Path

from trainwright.doctor.machine import Machine, MachineFinding, MachineSeverity, finding
from trainwright.engine import engine_packages
from trainwright.engine.platforms import ELSEWHERE, this_machine

PYTHON = (3, 11)
CA_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")


def check_platform(_: Machine) -> MachineFinding:
    """Images are for Linux on x86-64, and a build runs their programs."""
    here, fits = this_machine()
    if fits:
        return finding("platform", "ok", here)
    return finding("platform", "error", f"{here}: images are built on Linux x86-64", ELSEWHERE)


def check_python(_: Machine) -> MachineFinding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON:
        wanted = ".".join(map(str, PYTHON))
        remedy = f"rm -rf .venv && TRAINWRIGHT_PYTHON=python{wanted} ./invoke --list"
        return finding("python", "error", f"{version} ({sys.executable}) is older than {wanted}", remedy)
    return finding("python", "ok", f"{version} ({sys.executable})")


def check_certificates(_: Machine) -> MachineFinding:
    named = {Path(os.environ[name]): name for name in reversed(CA_VARIABLES) if os.environ.get(name)}
    files = named or {SYSTEM_CA: "the system's bundle"}
    good = []
    for file, origin in files.items():
        severity: MachineSeverity = "error" if named else "warning"
        fix = f"unset {origin}, or point it at a bundle of PEM certificates"
        remedy = fix if named else engine_packages.commands("ca-certificates")
        if file.is_dir():
            continue  # a folder of hashed names: OpenSSL reads it at need
        if not file.is_file():
            return finding("certificates", severity, f"{origin}: {file} does not exist", remedy)
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(file)
        except (ssl.SSLError, OSError) as error:
            return finding("certificates", severity, f"{origin}: {file} contains no certificates ({error})", remedy)
        ends = [ssl.cert_time_to_seconds(str(one["notAfter"])) for one in context.get_ca_certs() if "notAfter" in one]
        valid = sum(end > time.time() for end in ends)
        if not valid:
            return finding("certificates", severity, f"{origin}: every certificate in {file} is expired", remedy)
        good.append(f"{file} ({valid} valid)")
    return finding("certificates", "ok", ", ".join(good) or "a folder of certificates")


def check_aws(_: Machine) -> MachineFinding:
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    place = f"region {region}" if region else "no region in the environment"
    if origin := _aws_credentials():
        return finding("aws", "ok", f"credentials in {origin}, {place} (not tried)")
    message = "no AWS credentials: nothing can be pushed to ECR or run on SageMaker; building works without them"
    return finding("aws", "warning", message, "aws configure   # or AWS_PROFILE=NAME")


def _aws_credentials() -> str:
    """Where the AWS SDKs would find credentials, by the order in which they look; empty: nowhere."""
    if os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY"):
        return "the environment"
    roles = (
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    )
    for name in roles:
        if os.environ.get(name):
            return name
    profile = os.environ.get("AWS_PROFILE") or "default"
    files = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
    for variable, usual in files.items():
        path = Path(os.environ.get(variable) or usual).expanduser()
        held = configparser.RawConfigParser()
        try:
            held.read(path)
        except (configparser.Error, UnicodeDecodeError):
            continue
        for section in (profile, f"profile {profile}"):
            keys = set(held[section]) if section in held else set()
            if keys & {"aws_access_key_id", "role_arn", "sso_session", "sso_start_url", "credential_process"}:
                return f"{path} (profile {profile})"
    return ""
