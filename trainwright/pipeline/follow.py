"""Follows a build in CodeBuild to its end: its phases, its log, and what to do when either side goes away."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from trainwright.core.errors import BuildFailed, Failure, RegistryRefused
from trainwright.core.layout import duration
from trainwright.core.masking import mask
from trainwright.core.say import Say
from trainwright.pipeline.codebuild import BuildState, CodeBuild, LogPage

PAUSE = 4.0  # seconds between two looks at a build; CodeBuild allows ten calls a second for a whole account
PATIENCE = 600.0  # seconds without an answer after which following ends; botocore has tried five times in each call
LAST_PAGES = 3  # empty pages of a log after the end of its build: CloudWatch has the last lines some seconds later
LAST_LINES = 20
# Who does not answer now may do so later; everything else that AWS says, it will say again.
_PASSING = frozenset(
    {
        *("ConnectTimeoutError", "ConnectionClosedError", "EndpointConnectionError", "HTTPClientError"),
        *("ProxyConnectionError", "ReadTimeoutError", "ResponseStreamingError"),
        *("ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded"),
        *("InternalFailure", "InternalServerError", "InternalServiceException", "ServiceUnavailableException"),
        *("ServiceUnavailable", "500", "502", "503", "504"),
    }
)


@dataclass
class FollowedLog:
    """The log of a build as far as it was read: in a file, on standard error, its last lines in memory."""

    file: TextIO
    show: Callable[[str], None] | None
    last: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    token: str = ""
    denied: bool = False

    def take(self, page: LogPage) -> None:
        """Show and keep a page."""
        for line in map(mask, page.lines):
            self.file.write(f"{line}\n")
            self.last.append(line)
            if self.show is not None:
                self.show(line)
        if page.lines:
            self.file.flush()
        self.token = page.token


def again(build: str, region: str) -> str:
    """The command that follows a build again."""
    return f"./invoke build --on codebuild --follow {build} --region {region}"


def follow(
    service: CodeBuild, build: str, folder: Path, *, say: Say, show: Callable[[str], None] | None
) -> tuple[BuildState, list[str]]:
    """Follow a build until it has ended; the state it ended in, and the last lines of its log.

    Args:
        service: CodeBuild.
        build: its id.
        folder: gets the log, as ``build.log``.
        say: progress callback: phases, and what goes wrong on the way.
        show: takes the lines of the log.

    Raises:
        RequestError: there is no such build.
        RegistryRefused: AWS refuses, or has not answered for a long time; the build goes on.
        BuildFailed: this was interrupted, and the build is stopped.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with (folder / "build.log").open("w") as file:
            log = FollowedLog(file, show)
            state = _until_complete(service, build, log, say)
            _rest(service, state, log)
        return state, list(log.last)
    except KeyboardInterrupt:
        raise _stopped(service, build) from None


def _until_complete(service: CodeBuild, build: str, log: FollowedLog, say: Say) -> BuildState:
    answered, lost, phase = time.monotonic(), False, ""
    while True:
        try:
            state = service.state(build)
            _read(service, state, log, say)
        except RegistryRefused as refused:
            waited = time.monotonic() - answered
            if refused.details.get("cause") not in _PASSING or waited > PATIENCE:
                raise _left(refused, build, service.region) from None
            if not lost:
                say(f"AWS does not answer ({refused.message}); the build goes on, and this waits for it")
            lost = True
        else:
            if lost:
                say("AWS answers again")
            answered, lost = time.monotonic(), False
            if state.phase != phase and not state.complete:
                say(f"{build}: {state.phase.lower().replace('_', ' ')}")
            phase = state.phase
            if state.complete:
                return state
        time.sleep(PAUSE)


def _read(service: CodeBuild, state: BuildState, log: FollowedLog, say: Say) -> bool:
    """Read what there is of the log; whether there was something."""
    if not state.log_group or not state.log_stream or log.denied:
        return False
    found = False
    while True:
        before = log.token
        try:
            page = service.log(state.log_group, state.log_stream, before)
        except RegistryRefused as refused:
            if refused.details.get("cause") != "AccessDeniedException":
                raise
            log.denied = True
            say(f"the log stays away, and the build goes on: {refused.message}\n{refused.remedy}")
            return found
        log.take(page)
        found = found or bool(page.lines)
        # The same place again is the end of what there is (CloudWatch Logs, GetLogEvents, nextForwardToken).
        if page.token == before:
            return found


def _rest(service: CodeBuild, state: BuildState, log: FollowedLog) -> None:
    """The last lines, which arrive after the build has ended; no reason to fail if they cannot be read."""
    left = LAST_PAGES
    with suppress(RegistryRefused):
        while left:
            left = LAST_PAGES if _read(service, state, log, lambda _: None) else left - 1
            if left:
                time.sleep(PAUSE / LAST_PAGES)


def _left(refused: RegistryRefused, build: str, region: str) -> Failure:
    """A refusal, and how to come back to the build that goes on without this."""
    return RegistryRefused(
        f"{refused.message}\nThe build {build} goes on in CodeBuild; nobody follows it now",
        remedy=f"{refused.remedy}\n{again(build, region)}   # follows it again\n"
        f"aws codebuild stop-build --region {region} --id {build}   # stops it",
        **{**refused.details, "build": build},
    )


def _stopped(service: CodeBuild, build: str) -> Failure:
    """Stop the build; what this run ends with."""
    try:
        service.stop(build)
    except (RegistryRefused, KeyboardInterrupt) as refused:
        why = f": {refused.message}" if isinstance(refused, Failure) else ""
        return BuildFailed(
            f"interrupted, and the build {build} could not be stopped{why}; it goes on, and costs",
            remedy=f"aws codebuild stop-build --region {service.region} --id {build}\n"
            f"{again(build, service.region)}   # follows it again",
            build=build,
            stopped=False,
        )
    return BuildFailed(
        f"interrupted: the build {build} was stopped; nothing of it was pushed that has no proof",
        remedy="The same command begins a new build; layers in the cache are not built again.",
        build=build,
        stopped=True,
    )


def outcome(state: BuildState, lines: list[str], region: str) -> None:
    """Check that a build ended well.

    Raises:
        BuildFailed: it was stopped, took too long, or CodeBuild itself failed.
    """
    after = f"after {duration(state.seconds, tenths=False)}"
    texts = {
        "TIMED_OUT": (
            f"the build {state.id} took too long, and CodeBuild ended it {after}",
            "Deploy the stack with a longer BuildTimeout or a larger ComputeType (docs/setup-aws.md).",
        ),
        "STOPPED": (f"the build {state.id} was stopped {after}", "The same command begins a new build."),
        "FAULT": (f"CodeBuild itself failed {after}, in the build {state.id}", "The same command begins a new build."),
    }
    if state.status in texts:
        message, remedy = texts[state.status]
        phases = [phase for phase in state.phases if phase.says]
        raise BuildFailed(
            "\n".join([message, *(f"  {phase.name}: {phase.says}" for phase in phases)]),
            remedy=remedy,
            build=state.id,
            region=region,
            status=state.status,
            last_lines=lines,
        )
