"""A real SLURM of one node on this machine, for as long as a test needs it."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

CONFIGURATION = """
ClusterName=deepex
SlurmctldHost={host}
SlurmctldPort={control_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs=4 State=UNKNOWN
PartitionName=main Nodes=n1 Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment variables under which srun finds the cluster."""
    folder = tmp_path_factory.mktemp("slurm")
    folder.chmod(0o755)
    for name in ("state", "spool-n1"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(64))
    key.chmod(0o400)
    text = CONFIGURATION.format(
        folder=folder, host=socket.gethostname().split(".")[0], control_port=_free_port(), node_port=_free_port()
    )
    (folder / "slurm.conf").write_text(text.lstrip())
    variables = {"SLURM_CONF": str(folder / "slurm.conf")}
    environment = {**os.environ, **variables}
    files = [f"--{name}={folder}/munge.{ending}" for name, ending in _MUNGE_FILES.items()]
    daemons = [
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in (
            [
                _program("munged"),
                "--foreground",
                "--force",
                f"--key-file={key}",
                f"--socket={folder}/munge.socket",
                *files,
            ],
            [_program("slurmctld"), "-D", "-c"],
            [_program("slurmd"), "-D", "-N", "n1"],
        )
    ]
    try:
        _wait_until_idle(environment, folder)
        yield variables
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            _end(daemon)


_MUNGE_FILES = {"pid-file": "pid", "log-file": "log", "seed-file": "seed"}


def _program(name: str) -> str:
    return shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin") or name


def _wait_until_idle(environment: dict[str, str], folder: Path) -> None:
    end = time.monotonic() + 60
    state = ""
    while time.monotonic() < end:
        asked = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True, timeout=30)
        state = asked.stdout.strip()
        if state == "idle":
            return
    logs = "\n".join(log.read_text()[-2000:] for log in folder.glob("slurm*.log"))
    raise AssertionError(f"SLURM's node is '{state}', not idle:\n{logs}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _end(daemon: "subprocess.Popen[bytes]") -> None:
    """Wait for a daemon that was told to end; slurmd may wait for a step that ended just before, for minutes."""
    try:
        daemon.wait(timeout=20)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
