"""Derives findings from the facts of several hosts together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from horovod.doctor.facts import Facts, Interface, version_numbers
from horovod.doctor.finding import Finding, advice, ok, problem
from horovod.doctor.wire import Reached, Way

#: A connection slower than this fraction of the fastest one delays all ranks.
_FAR_BELOW = 1 / 4
#: The most that a single connection can be expected to reach on any network.
_MOST_EXPECTED = 10e9 / 8
#: The rate of a gigabit network, which suits only small models.
_SLOW = 100e6
_GRADIENTS = 100e6  #: gradients of 25 million parameters
_FAR_AWAY_SECONDS = 1e-3
_CLOCK_ADVICE_SECONDS, _CLOCK_PROBLEM_SECONDS = 0.1, 60.0
#: Connections that are shown without --verbose.
_MOST_LINES = 15

Hosts = Mapping[str, Facts]  #: by the name that the user wrote


def compare(hosts: Hosts) -> list[Finding]:
    """Compares versions, which a job assumes to be the same on all hosts."""
    found = _compared(
        hosts,
        "Horovod",
        lambda one: one.horovod,
        problem,
        "ranks of different versions cannot communicate",
        "pip install --no-cache-dir --force-reinstall horovod   (on all hosts)",
    )
    found += _compared(
        hosts,
        "Python",
        lambda one: _minor(one.python),
        problem,
        "objects and functions pickled by one Python version cannot be read by another",
        "install the same Python on all hosts, or use one installation on a shared file system",
    )
    for name in sorted({one.name for facts in hosts.values() for one in facts.frameworks}):
        found += _framework(hosts, name)
    found += _nccl({name: facts for name, facts in hosts.items() if facts.gpu.gpus})
    if len({facts.kernel for facts in hosts.values()}) == 1:  # a difference is harmless
        found.append(ok(f"Linux {next(iter(hosts.values())).kernel}"))
    same = [one.what for one in found if one.severity == "ok"]
    return [
        *(one for one in found if one.severity != "ok"),
        ok(f"the same everywhere: {', '.join(same)}"),
    ]


def _framework(hosts: Hosts, name: str) -> list[Finding]:
    def version(facts: Facts) -> str:
        return next((one.version for one in facts.frameworks if one.name == name), "missing")

    versions = [version(facts) for facts in hosts.values()]
    # The part after + names one build, which pip may not find on every host.
    public = {one.partition("+")[0] for one in versions if one != "missing"}
    newest = max(sorted(public), key=version_numbers, default="")
    again = "--force-reinstall " if len(public) == 1 and "missing" not in versions else ""
    return _compared(
        hosts,
        name,
        version,
        problem if "missing" in versions or len({_minor(one) for one in versions}) > 1 else advice,
        "models, states and results differ between versions, and some fail to load"
        if "missing" not in versions
        else "ranks on hosts without it fail when they import it",
        f'pip install {again}"{name}=={newest}"   (on all hosts, in the same environment)',
    )


def _nccl(hosts: Hosts) -> list[Finding]:
    """Compares NCCL on the hosts that have GPUs."""
    versions = {name: facts.gpu.nccl.partition(" ")[0] for name, facts in hosts.items()}
    newest = max(sorted(set(versions.values())), key=version_numbers, default="")
    if not newest:
        return []
    return _compared(
        hosts,
        "NCCL",
        lambda one: one.gpu.nccl.partition(" ")[0] or "missing",
        problem,
        "GPU tensors are rejected: ranks with different versions of NCCL cannot connect",
        f'pip install "nvidia-nccl-cu12=={newest}"   (on all hosts; cu13 with CUDA 13)',
    )


def _minor(version: str) -> str:
    return ".".join(version.partition("+")[0].split(".")[:2])


def _compared(
    hosts: Hosts,
    what: str,
    value: Callable[[Facts], str],
    find: Callable[..., Finding],
    why: str,
    fix: str,
) -> list[Finding]:
    by_value: dict[str, list[str]] = {}
    for name, facts in hosts.items():
        by_value.setdefault(value(facts), []).append(name)
    if len(by_value) == 1:
        return [ok(f"{what} {next(iter(by_value))}")] if next(iter(by_value)) else []
    parts = [f"{text or 'unknown'} on {_listed(names)}" for text, names in by_value.items()]
    return [find(f"{what} differs: {'; '.join(parts)}", why, fix)]


def _listed(names: Sequence[str]) -> str:
    if len(names) <= 4:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} more"


class Network:
    """The measured connections, and the interfaces that they use."""

    def __init__(self, hosts: Hosts, told: Iterable[Way | Reached]) -> None:
        self.names = list(hosts)
        self.facts = list(hosts.values())
        self.ways: list[Way] = []
        self.broken: list[Way] = []
        self.reached: list[Reached] = []
        for one in told:
            if isinstance(one, Reached):
                self.reached.append(one)
            else:
                (self.broken if one.problem else self.ways).append(one)
        self.ways.sort(key=lambda way: (way.a, way.b))

    def findings(self) -> list[Finding]:
        return [
            *self._broken(),
            *self._rates(),
            *self._distances(),
            *self._clocks(),
            *self._frames(),
        ]

    def ends(self, way: Way) -> tuple[Interface, Interface] | None:
        """Returns the interfaces of both hosts that a connection uses, if they are known."""
        for one in self.reached:
            for rank, other in ((way.a, way.b), (way.b, way.a)):
                own = self.facts[rank].interface_with(one.own) if one.rank == rank else None
                theirs = self.facts[other].interface_with(one.other)
                if own and theirs and not own.loopback and not theirs.loopback:
                    return (own, theirs) if rank == way.a else (theirs, own)
        return None

    def _title(self, way: Way) -> str:
        return f"{self.names[way.a]} and {self.names[way.b]}"

    def _broken(self) -> list[Finding]:
        return [
            problem(
                f"the connection between {self._title(way)} failed: {way.problem}",
                "training on both hosts would fail in the same way",
                "check the network between them and firewalls: allow TCP on all ports between "
                "hosts of a job",
            )
            for way in {(way.a, way.b): way for way in self.broken}.values()
        ]

    def _rates(self) -> list[Finding]:
        if not self.ways:
            return []
        best = max(rate(way) for way in self.ways)
        slow = [way for way in self.ways if rate(way) < best * _FAR_BELOW]
        found = [*self._slow_hosts(slow, best)]
        if best < _SLOW:
            found.append(
                advice(
                    f"no two hosts exchange more than {rate_text(best)}{self._promised()}",
                    f"the gradients of 25 million parameters ({_GRADIENTS / 1e6:.0f} MB) take "
                    f"{_GRADIENTS / best:.1f} s of every step",
                    "use a faster network of all hosts: horovodrun --network-interfaces NAME ...",
                    "or send less: compression=hvd.Compression.fp16, backward_passes_per_step=4",
                )
            )
        else:
            found += self._below_the_line([way for way in self.ways if way not in slow])
        return found

    def _promised(self) -> str:
        ends = [end for way in self.ways for end in self.ends(way) or ()]
        speeds = [end.mbit_s * 1e6 / 8 for end in ends if end.mbit_s]
        return f"; the speed of their interfaces is {rate_text(min(speeds))}" if speeds else ""

    def _slow_hosts(self, slow: Sequence[Way], best: float) -> list[Finding]:
        """Reports a host once if all its connections are slow; other slow connections by pair."""
        found = []
        rest = list(slow)
        for host, name in enumerate(self.names):
            own = [way for way in self.ways if host in (way.a, way.b)]
            if len(own) < 2 or not all(way in rest for way in own):
                continue
            rest = [way for way in rest if way not in own]
            rates = [rate(way) for way in own]
            found.append(self._slow(f"{name} exchanges {rate_text(median(rates))} with each other "
                                    "host", best, self._interface(own[0], host), name))  # fmt: skip
        for way in rest:
            text = f"{self._title(way)} exchange {rate_text(rate(way))}"
            name = self.names[way.b]
            found.append(self._slow(text, best, self._interface(way, way.b), name))
        return found

    def _interface(self, way: Way, host: int) -> str:
        ends = self.ends(way)
        return ends[0 if host == way.a else 1].name if ends else "INTERFACE"

    def _slow(self, text: str, best: float, interface: str, host: str) -> Finding:
        return problem(
            f"{text}; the fastest connection reaches {rate_text(best)}",
            "an operation over all hosts is limited by the slowest connection",
            f"on {host}: ethtool {interface}; tc qdisc show dev {interface}   (speed, duplex, "
            "limits)",
            "or use another network: horovodrun --network-interfaces NAME ...",
        )

    def _below_the_line(self, ways: Sequence[Way]) -> list[Finding]:
        found = []
        for way in ways:
            ends = self.ends(way)
            speeds = [one.mbit_s * 1e6 / 8 for one in ends if one.mbit_s] if ends else []
            expected = min([*speeds, _MOST_EXPECTED])
            if speeds and ends and rate(way) < expected * _FAR_BELOW:
                found.append(
                    advice(
                        f"{self._title(way)} exchange {rate_text(rate(way))} over {ends[0].name}, "
                        f"whose speed is {rate_text(min(speeds))}",
                        "the network in between, or other traffic, limits the rate",
                        "without Horovod: iperf3 -s on one host, iperf3 -c ADDRESS on the other",
                    )
                )
        return found

    def _distances(self) -> list[Finding]:
        far = [way for way in self.ways if way.round_trip_seconds > _FAR_AWAY_SECONDS]
        if not far:
            return []
        worst = max(far, key=lambda way: way.round_trip_seconds)
        return [
            advice(
                f"a round trip between {self._title(worst)} takes "
                f"{worst.round_trip_seconds * 1e3:.1f} ms"
                + (f" ({len(far)} such connections)" if len(far) > 1 else ""),
                "every operation takes at least this long; typical in one data center is 0.1 ms",
                "use hosts close to each other, or fewer operations: a larger "
                "HOROVOD_FUSION_THRESHOLD, backward_passes_per_step",
            )
        ]

    def _clocks(self) -> list[Finding]:
        """Compares with the first host only, since each host has a single clock."""
        found = []
        for way in self.ways:
            off = abs(way.clock_seconds) - way.clock_error_seconds
            if way.a != 0 or off < _CLOCK_ADVICE_SECONDS:
                continue
            find = problem if off > _CLOCK_PROBLEM_SECONDS else advice
            direction = "ahead of" if way.clock_seconds > 0 else "behind"
            found.append(
                find(
                    f"the clock of {self.names[way.b]} is {abs(way.clock_seconds):.1f} s "
                    f"{direction} that of {self.names[way.a]}",
                    "logs and timelines of ranks cannot be merged, and checkpoints on shared "
                    "file systems appear older or newer than they are",
                    "timedatectl set-ntp true   (on both)",
                )
            )
        if self.ways and not found:
            most = max(abs(way.clock_seconds) for way in self.ways)
            found.append(ok(f"clocks within {max(most * 1e3, 0.1):.1f} ms"))
        return found

    def _frames(self) -> list[Finding]:
        found = []
        for way in self.ways:
            ends = self.ends(way)
            if ends and ends[0].mtu != ends[1].mtu:
                larger = 0 if ends[0].mtu > ends[1].mtu else 1
                host = self.names[(way.a, way.b)[larger]]
                found.append(
                    problem(
                        f"the MTUs of {self._title(way)} differ: {ends[0].mtu} and {ends[1].mtu} "
                        "bytes",
                        "larger frames may be dropped silently: connections "
                        "are set up, but hang at the first large tensor",
                        f"on {host}: ip link set dev {ends[larger].name} mtu "
                        f"{ends[1 - larger].mtu}",
                    )
                )
        return found

    def table(self, verbose: bool) -> list[str]:
        """Shows the slowest connections first if there are too many for the table."""
        shown = self.ways
        if len(shown) > _MOST_LINES and not verbose:
            shown = sorted(shown, key=rate)[:_MOST_LINES]
        if not shown:
            return []
        rows = [("between", "", "by", "there", "back", "round trip", "clock")]
        for way in shown:
            ends = self.ends(way)
            rows.append(
                (
                    self.names[way.a],
                    self.names[way.b],
                    "/".join(dict.fromkeys(one.name for one in ends)) if ends else "?",
                    rate_text(way.there),
                    rate_text(way.back),
                    time_text(way.round_trip_seconds),
                    f"{way.clock_seconds * 1e3:+.2f} ms",
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        left = len(self.ways) - len(shown)
        return [*lines, *([f"({left} faster ones omitted; --verbose shows all)"] if left else [])]


def rate(way: Way) -> float:
    return min(way.there, way.back)


def rate_text(value: float) -> str:
    return f"{value / 1e9:.1f} GB/s" if value >= 1e9 else f"{value / 1e6:.0f} MB/s"


def time_text(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"
