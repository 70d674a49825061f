"""The network that the hosts of a rehearsal share: a bridge of the engine's, or pairs of virtual cables.

An engine can be without bridges (no kernel module, no permission); then every host gets a network namespace of its
own, held open by a container that sleeps, and the namespaces are joined by veth pairs: host 1 in the middle, which
passes on what the others say to one another. In both, the interface is called ``eth0`` as on the platform.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from typing import Literal, Protocol

from trainwright.core.errors import EngineError
from trainwright.core.runner import Completed, run
from trainwright.engine.engine import Engine
from trainwright.rehearse.owner import LABEL, OWNER_LABEL, PREFIX, this_process

NetworkKind = Literal["bridge", "veth"]

VARIABLE = "TRAINWRIGHT_REHEARSAL_NETWORK"
SECONDS = 60
SUBNET = "10.77.0"


class Network(Protocol):
    """Where the containers of hosts are put."""

    kind: NetworkKind

    def join(self, index: int) -> list[str]:
        """The options of ``docker create`` for host ``index`` (from 0 on)."""

    def close(self) -> None:
        """Remove it; does no harm twice."""


@dataclass
class Names:
    """The hosts of one rehearsal: what SageMaker calls them, and what they call themselves.

    On the platform a container's own name is not algo-N, and it resolves.
    """

    id: str
    hosts: tuple[str, ...]

    def own(self, index: int) -> str:
        """The host name of the container of host ``index``."""
        return f"ip-10-77-0-{index + 1}.rehearsal.internal"

    def container(self, index: int) -> str:
        """The container's name in the engine."""
        return f"{PREFIX}{self.id}-{self.hosts[index]}"


def labels(identity: str) -> list[str]:
    """The options that mark what belongs to a rehearsal."""
    return ["--label", f"{LABEL}={identity}", "--label", f"{OWNER_LABEL}={this_process()}"]


def make(engine: Engine, names: Names, image: str) -> Network:
    """The network for the hosts, a bridge where the engine can make one.

    ``TRAINWRIGHT_REHEARSAL_NETWORK`` (``bridge`` or ``veth``) decides instead.

    Raises:
        EngineError: neither can be made here.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "bridge", "veth"):
        raise EngineError(f"{VARIABLE}={wanted}: bridge or veth", remedy=f"unset {VARIABLE}")
    refusal = ""
    if wanted != "veth":
        made = _bridge(engine, names, image)
        if isinstance(made, Bridge):
            return made
        refusal = made.tail(2)
        if wanted == "bridge":
            raise EngineError(f"the engine makes no bridge network: {refusal}", remedy="./invoke doctor")
    if lacking := _veth_lacks(engine):
        raise EngineError(
            f"no network for the hosts: {refusal + '; ' if refusal else ''}and veth pairs need {lacking}",
            remedy="Run as root on the engine's machine, with iproute2 and util-linux installed; or give the engine "
            "bridge networks.",
        )
    return Veth(engine, names, image)


def _bridge(engine: Engine, names: Names, image: str) -> Bridge | Completed:
    name = f"{PREFIX}{names.id}"
    argv = [engine.client.path, "network", "create", "--driver", "bridge", *labels(names.id), name]
    done = run(argv, env=engine.cli_env, timeout=SECONDS, finish=True)
    return Bridge(engine, names, name, image) if done.ok else done


def _veth_lacks(engine: Engine) -> str:
    missing = [program for program in ("ip", "nsenter") if shutil.which(program) is None]
    if os.geteuid() != 0:
        missing.append("root")
    if not engine.local:
        missing.append("an engine on this machine")
    return ", ".join(missing)


def _sleeper(engine: Engine, names: Names, index: int, image: str, options: list[str]) -> tuple[str, int]:
    """A container that does nothing and holds the network of a host: its name, and its pid.

    Raises:
        EngineError: the engine could not start it.
    """
    name = f"{names.container(index)}-net"
    argv = [engine.client.path, "run", "-d", "--init", "--name", name, *labels(names.id)]
    argv += ["--hostname", names.own(index), *options, "--entrypoint", "sleep", image, "infinity"]
    done = run(argv, env=engine.cli_env, timeout=300, finish=True)
    if done.ok:
        wanted = ["inspect", "--format", "{{.State.Pid}}", name]
        done = run([engine.client.path, *wanted], env=engine.cli_env, timeout=SECONDS)
    if not done.ok or not done.stdout.strip().isdigit():
        raise EngineError(
            f"the engine could not start a container of {image}: {done.tail(3)}", remedy="./invoke doctor"
        )
    return name, int(done.stdout)


def _remove(engine: Engine, containers: list[str]) -> None:
    if containers:
        run([engine.client.path, "rm", "-f", "-v", *containers], env=engine.cli_env, timeout=SECONDS)


@dataclass
class Bridge:
    """A network of the engine's own, whose DNS knows the hosts.

    It forgets a name when the container ends that has it, and the toolkit of a host that begins later than another ends
    would then look it up for 15 minutes. So containers that sleep have the names, and the hosts share their network.
    """

    engine: Engine
    names: Names
    name: str
    image: str
    kind: NetworkKind = "bridge"
    _sleepers: list[str] = field(default_factory=list)

    def join(self, index: int) -> list[str]:
        options = ["--network", self.name, "--network-alias", self.names.hosts[index]]
        if len(self.names.hosts) == 1:
            return [*options, "--hostname", self.names.own(index)]
        # Noted before it is made: an interruption in the middle must find it.
        self._sleepers.append(f"{self.names.container(index)}-net")
        name, _ = _sleeper(self.engine, self.names, index, self.image, options)
        return ["--network", f"container:{name}"]

    def close(self) -> None:
        _remove(self.engine, self._sleepers)
        run([self.engine.client.path, "network", "rm", self.name], env=self.engine.cli_env, timeout=SECONDS)


@dataclass
class Veth:
    """Namespaces of sleeping containers, joined by virtual cables."""

    engine: Engine
    names: Names
    image: str
    kind: NetworkKind = "veth"
    _sleepers: list[str] = field(default_factory=list)

    def join(self, index: int) -> list[str]:
        if not self._sleepers:
            self._connect()
        return ["--network", f"container:{self._sleepers[index]}"]

    def close(self) -> None:
        _remove(self.engine, self._sleepers)

    def _connect(self) -> None:
        hosts = range(len(self.names.hosts))
        # Noted before they are made: an interruption in the middle must find them.
        self._sleepers = [f"{self.names.container(index)}-net" for index in hosts]
        pids = [self._sleeper(index) for index in hosts]
        for pid in pids:
            self._inside(pid, "ip", "link", "set", "lo", "up")
        if len(pids) == 1:
            # Alone, but with an eth0 that is up: a cable whose other end lies here, too.
            self._inside(pids[0], "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0-end")
            self._inside(pids[0], "ip", "link", "set", "eth0-end", "up")
            self._address(pids[0], 0)
            return
        for index in hosts[1:]:
            middle = "eth0" if index == 1 else f"eth0-{index + 1}"
            cable = ("type", "veth", "peer", "name", "eth0", "netns", str(pids[index]))
            self._inside(pids[0], "ip", "link", "add", middle, *cable)
            self._address(pids[index], index)
            if index == 1:
                self._address(pids[0], 0)
            else:
                self._inside(pids[0], "ip", "link", "set", middle, "up")
                self._inside(pids[0], "ip", "route", "add", f"{SUBNET}.{index + 1}/32", "dev", middle)
        if len(pids) > 2:
            # Host 1 answers for the others, and passes on what they say to one another.
            switches = ("ip_forward", "conf/all/proxy_arp", "conf/default/proxy_arp")
            script = "; ".join(f"echo 1 > /proc/sys/net/ipv4/{switch}" for switch in switches)
            self._inside(pids[0], "sh", "-c", script)

    def _sleeper(self, index: int) -> int:
        addresses = [f"{name}:{SUBNET}.{number + 1}" for number, name in enumerate(self.names.hosts)]
        addresses.append(f"{self.names.own(index)}:{SUBNET}.{index + 1}")
        named = [word for address in addresses for word in ("--add-host", address)]
        return _sleeper(self.engine, self.names, index, self.image, ["--network", "none", *named])[1]

    def _address(self, pid: int, index: int) -> None:
        self._inside(pid, "ip", "address", "add", f"{SUBNET}.{index + 1}/24", "dev", "eth0")
        self._inside(pid, "ip", "link", "set", "eth0", "up")

    def _inside(self, pid: int, *command: str) -> None:
        # Not by way of the container: its image need not have `ip`, nor may it.
        done = run(["nsenter", "-t", str(pid), "-n", *command], timeout=SECONDS)
        if not done.ok:
            raise EngineError(
                f"no network between the hosts: {' '.join(command)}: {done.tail(2)}",
                remedy=f"{VARIABLE}=bridge, where the engine has bridge networks",
            )
