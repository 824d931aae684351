"""A deployment over real processes: the run is the simulation's, strangers stay out, and nobody is left behind.

All on free ports of 127.0.0.1. The four SuperNodes are started once for the whole module, by the commands that
docs/deploying.md begins with, and with a test seed.
"""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from deploying_page import shell_commands
from flwr.cli.build import build_fab_from_files
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from safetensors.numpy import load_file
from typer.testing import CliRunner

from accounting import Ledger
from benchmarks.deployment_kills import soak
from scenarios import load, run
from scenarios.cli import app
from scenarios.deployment._deployed import MODEL, DeployedProgress
from scenarios.deployment._deployments import GUARANTEE, follow
from scenarios.spec._scenario import Scenario
from server._deploy_certificates import CA, NODE_KEY, write_certificates, write_node_key
from server._deploy_control import SuperLink, SuperLinkUnreachable
from server._deploy_folder import ENVIRONMENT, LOG, PUBLIC, Deployment, supernode_command
from server._deploy_processes import ProcessError, carriers, carry, free_ports, stop_all
from server._deploy_up import up
from silos._folder import LEDGER

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")]


INIT, UP, STATUS, RUN, ACCOUNT, DOWN = shell_commands()[:6]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("network") / "cps"
    call(f"{INIT} --insecure-test-seed", folder)
    token = Deployment.read(folder).token
    try:
        call(UP, folder)
        yield Deployment.read(folder)
    finally:
        call(DOWN, folder)
        assert list(carriers(token)) == []


@pytest.fixture(scope="module")
def scenario(deployment: Deployment) -> Scenario:
    return load(deployment.server / "scenario.toml")


@pytest.fixture(scope="module")
def deployed(deployment: Deployment) -> Path:
    """The folder of the run."""
    assert "There is no guarantee" in call(RUN, deployment.folder)
    (folder,) = (deployment.folder / "runs").iterdir()
    return folder


def call(command: str, folder: Path) -> str:
    """Run a command of the page with another folder in it, and return what it prints."""
    words = shlex.split(command.replace("deployment", str(folder)))[1:]
    return CliRunner().invoke(app, words, catch_exceptions=False).output


@pytest.fixture
def link(deployment: Deployment) -> Iterator[SuperLink]:
    with SuperLink(deployment.address, deployment.server / CA) as opened:
        yield opened


def test_a_deployed_run_has_the_models_and_ledgers_of_the_simulation(
    deployed: Path, deployment: Deployment, scenario: Scenario, tmp_path: Path
) -> None:
    simulated = run(scenario, out=tmp_path / "simulated")
    model = load_file(deployed / MODEL)
    assert set(model) == set(simulated.model)
    for name, weights in simulated.model.items():
        np.testing.assert_array_equal(model[name], weights)
    progress = DeployedProgress.read(deployed)
    assert progress is not None
    assert (progress.round, progress.failures) == (2, 0)
    for silo in deployment.silos:
        with Ledger.open(deployment.silo(silo) / LEDGER, read_only=True) as ledger:
            assert ledger.verify()[silo] == simulated.guarantee.heads[silo]


def test_a_run_with_a_test_seed_has_no_guarantee(deployed: Path, deployment: Deployment) -> None:
    price = json.loads((deployed / GUARANTEE).read_text("utf-8"))
    assert price["epsilon"] == "inf"
    assert "test seed" in price["void"]
    assert set(deployment.silos) <= set(price["heads"])
    assert "West" in call(ACCOUNT, deployment.folder)


def test_status_knows_the_processes_the_silos_and_the_run(deployed: Path, deployment: Deployment) -> None:
    told = call(STATUS, deployment.folder)
    assert f"runs at {deployment.address}" in told
    for silo in deployment.silos:
        assert silo in told
    assert f"{deployed.name}: round 2 of 2, done" in told
    assert "is down" not in told


def test_what_runs_is_not_started_again(deployment: Deployment) -> None:
    before = sorted(carriers(deployment.token))
    up(deployment)
    assert set(before) <= set(carriers(deployment.token))
    with pytest.raises(ProcessError, match="take it down"):
        up(deployment, port=9000)


def test_plain_http_gets_no_answer(deployment: Deployment) -> None:
    with socket.create_connection(("127.0.0.1", deployment.ports[0]), timeout=20) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answer = b""
        try:
            while part := plain.recv(4096):
                answer += part
        except ConnectionResetError:
            pass
    assert b"HTTP/1" not in answer


def test_a_client_that_checks_by_another_authority_refuses_the_server(deployment: Deployment, tmp_path: Path) -> None:
    write_certificates(tmp_path)
    with (
        SuperLink(deployment.address, tmp_path / CA) as stranger,
        pytest.raises(SuperLinkUnreachable, match="certificate"),
    ):
        stranger.nodes()


def test_an_unregistered_supernode_is_refused(deployment: Deployment, link: SuperLink, tmp_path: Path) -> None:
    folder = tmp_path / "stranger"
    shutil.copytree(deployment.silo("West"), folder, ignore=shutil.ignore_patterns("supernode.*", "flwr", LEDGER))
    write_node_key(folder)
    known = {node.key for node in link.nodes()}
    (port,) = free_ports(1)
    token, path = f"{deployment.token}-stranger", f"{Path(sys.executable).parent}:{os.defpath}"
    try:
        ended = subprocess.run(
            ["sh", "-c", supernode_command(deployment.address, port)],
            cwd=folder,
            env={"PATH": path, "FLWR_HOME": str(folder / "flwr"), **ENVIRONMENT, **carry(token, "0")},
            capture_output=True,
            timeout=90,
            check=False,
        )
    finally:
        stop_all(token)
    assert ended.returncode != 0
    assert b"Failed to activate SuperNode" in ended.stdout + ended.stderr
    assert {node.key for node in link.nodes()} == known


def test_a_registered_key_is_no_use_without_its_private_half(deployment: Deployment) -> None:
    public = load_ssh_public_key(deployment.public_key("West").read_bytes())
    private = load_ssh_private_key((deployment.silo("West") / NODE_KEY).read_bytes(), None)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    forged = NodeAuthHttpInterceptor(ec.generate_private_key(ec.SECP384R1()), public)
    root = (deployment.server / CA).read_bytes()
    request = ActivateNodeRequest(public_key=public_key_to_bytes(public), heartbeat_interval=30)
    with (
        FleetHttpClient.from_server_address(deployment.address, False, root, interceptors=[forged]) as client,
        pytest.raises(httpx.HTTPStatusError) as refused,
    ):
        client.ActivateNode(request)
    assert refused.value.response.status_code == httpx.codes.UNAUTHORIZED


def test_an_app_that_silos_did_not_approve_runs_in_none_of_them(
    deployment: Deployment, scenario: Scenario, link: SuperLink, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    project = """
        project = { name = "silodp", version = "0.1.0", license = "Apache-2.0" }
        [tool.flwr.app]
        publisher = "silodp"
        components = { serverapp = "server.app:app", clientapp = "hostile:app" }
        config = { scenario = "", public = "", run = "", out = "" }
    """
    code = f"from pathlib import Path\nfrom silos.app import app\nPath({str(mark)!r}).touch()\n"
    bundle, _ = build_fab_from_files({"pyproject.toml": project.encode(), "hostile.py": code.encode()})
    (tmp_path / "scenario.toml").write_text(scenario.to_toml(), "utf-8")
    number = link.start(
        bundle,
        {
            "scenario": str(tmp_path / "scenario.toml"),
            "public": str(deployment.server / PUBLIC),
            "run": "hostile",
            "out": str(tmp_path / "out"),
        },
    )
    state = follow(link, number, tmp_path / "out", lambda _: None)
    assert state.outcome == "failed"
    assert "The FAB could not be verified" in state.details
    assert not mark.exists()
    for silo in deployment.silos:
        assert "FAB could not be verified" in (deployment.silo(silo) / LOG).read_text("utf-8")


def test_a_deployment_outlives_kills_and_its_ledgers_miss_nothing(scenario_file: Path, tmp_path: Path) -> None:
    small = load(scenario_file, ["training.rounds=3", "silos.partition=iid", "silos.count=2"])
    done = soak(small, tmp_path / "killed", ("supernode", "superlink", "supernode"), spread=6.0, seed=1)
    assert done.killed == {"supernode": 2, "superlink": 1}
    assert done.resumed >= 1
    assert len(done.heads) == 2
