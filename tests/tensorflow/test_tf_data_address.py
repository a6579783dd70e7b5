"""Where tf.data's service is found from other hosts: on a host with several networks."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

#: Two networks, of which one leads nowhere, and a host name that means 127.0.1.1, as Debian has it.
NETWORKS = """
mount --bind "$1" /etc/hosts && hostname node7 &&
ip link set lo up &&
ip link add wire type veth peer name far && ip link add dead type veth peer name nobody &&
ip addr add 10.88.0.1/24 dev dead && ip addr add 10.77.1.1/24 dev wire &&
for link in wire far dead nobody; do ip link set $link up; done
"""
PROGRAM = """
import os, runpy, sys
found = runpy.run_path(sys.argv[1])
own, addresses = found["own_address"], found["interface_addresses"]()
assert addresses == {"lo": "127.0.0.1", "wire": "10.77.1.1", "dead": "10.88.0.1"}, addresses
assert own() == "127.0.0.1", own()
assert own("10.77.1.9") == "10.77.1.1"
assert own("10.77.1.1") == "10.77.1.1"  # from the host itself
assert own("127.0.0.1") == "127.0.0.1"
os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = "10.77.1.9"
assert own() == own("127.0.0.1") == "10.77.1.1"
os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = "127.0.0.1"
os.environ["HOROVOD_GLOO_IFACE"] = "dead"
assert own("10.77.1.9") == "10.88.0.1"
os.environ["HOROVOD_GLOO_IFACE"] = "eth7"
try:
    own()
except ValueError as error:
    assert "HOROVOD_GLOO_IFACE=eth7" in str(error) and "wire" in str(error)
else:
    raise AssertionError("an interface that is not there")
del os.environ["HOROVOD_GLOO_IFACE"]
assert os.system("ip route add default via 10.77.1.254") == 0
assert own() == "10.77.1.1"
"""


def network() -> list[str]:
    """What runs a command in a network and a name space of its own."""
    return ["unshare", "--net", "--uts", "--mount", "sh", "-c"]


def why_not() -> str | None:
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return "there is no ip or unshare"
    made = subprocess.run(
        [*network(), "ip link add wire type veth peer name far"], capture_output=True
    )
    return None if made.returncode == 0 else "network namespaces are not allowed"


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_the_address_is_that_of_the_network_that_leads_to_the_others(tmp_path: Path) -> None:
    package = importlib.util.find_spec("horovod")
    assert package and package.submodule_search_locations
    module = Path(package.submodule_search_locations[0], "tensorflow", "data", "_address.py")
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.0.1.1 node7\n")
    commands = f'{NETWORKS} exec "$2" -c "$3" "$4"'
    arguments = [str(hosts), sys.executable, PROGRAM, str(module)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOROVOD_")}
    command = [*network(), commands, "sh", *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
