"""What a deployment's folders hold, and to whom they give it. Nothing is started here."""

import json
import stat
import zipfile
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from scenarios import ScenarioError, load, prepare
from scenarios._errors import RunError
from scenarios.deployment._deployed import PublicFacts
from scenarios.deployment._deployments import make_deployment, new_run, run_on
from server._deploy_app import build_app
from server._deploy_certificates import CertificateUnfit, write_certificates
from server._deploy_control import SuperLinkUnreachable
from server._deploy_folder import NAME, START, Deployment, superlink_command, supernode_command
from server._deploy_up import up
from silos._folder import SiloFolder
from silos._shard_files import read_shard
from silos._supernode import approved


@pytest.fixture(scope="module")
def deployment(module_scenario_file: Path) -> Deployment:
    made, _ = make_deployment(load(module_scenario_file), module_scenario_file.parent / "deployment")
    return made


def test_a_silos_folder_holds_its_own_records_and_nobody_elses(
    deployment: Deployment, module_scenario_file: Path
) -> None:
    dataset = prepare(load(module_scenario_file))
    assert deployment.silos == tuple(dataset.shards)
    for name, shard in dataset.shards.items():
        kept = read_shard(deployment.silo(name) / "shard.npz", name)
        np.testing.assert_array_equal(kept.features, shard.features)
        assert kept.individuals.tolist() == shard.individuals.tolist()
        assert SiloFolder(deployment.silo(name)).law().name == name
        assert stat.S_IMODE(deployment.silo(name).stat().st_mode) == 0o700


def test_the_servers_folder_holds_no_records_and_no_silos_key(deployment: Deployment) -> None:
    held = {path.name for path in deployment.server.rglob("*") if path.is_file()}
    silos = {f"{name}.pub" for name in deployment.silos}
    assert held == silos | {
        *("app.fab", "ca.pem", "config.toml", "public.json", "scenario.toml", "server.key", "server.pem", "start.sh")
    }
    public = json.loads((deployment.server / "public.json").read_text("utf-8"))
    assert set(public) == {"sizes", "input_shape", "outputs", "label_scale"}


def test_every_silo_approves_the_servers_app_and_the_app_holds_no_code(deployment: Deployment) -> None:
    app = deployment.server / "app.fab"
    assert zipfile.ZipFile(app).namelist() == ["pyproject.toml", ".info/CONTENT"]
    for name in deployment.silos:
        assert approved(deployment.silo(name)) == sha256(app.read_bytes()).hexdigest()
    assert build_app() == app.read_bytes()


def test_silos_of_a_deployment_price_all_declared_rounds(deployment: Deployment) -> None:
    for name in deployment.silos:
        law = SiloFolder(deployment.silo(name)).law()
        assert law.participation == "reacts"
        assert law.insecure_test_seed is None


def test_tls_and_authentication_are_on_and_installing_is_off(deployment: Deployment) -> None:
    assert {"--enable-supernode-auth", "--disable-runtime-dependency-installation", "--ssl-certfile"} <= set(
        superlink_command(1).split()
    )
    assert {"--root-certificates", "--auth-supernode-private-key"} <= set(supernode_command("a:1", 2).split())
    for folder in (deployment.server, *map(deployment.silo, deployment.silos)):
        script = (folder / START).read_text("utf-8")
        assert "--insecure" not in script
        for setting in ("FLWR_TELEMETRY_ENABLED=0", "FLWR_DISABLE_UPDATE_CHECK=1", 'FLWR_HOME="$PWD/flwr"'):
            assert setting in script


def test_a_deployment_is_read_back_as_it_was_written(deployment: Deployment) -> None:
    assert Deployment.read(deployment.folder) == deployment
    moved = deployment.on(range(9000, 9004), chosen=True)
    assert (moved.address, moved.chosen) == ("127.0.0.1:9000", True)


def test_public_facts_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    facts = PublicFacts(sizes={"b": 3, "a": 4}, input_shape=(2, 3), outputs=1)
    facts.write(tmp_path / "public.json")
    found = PublicFacts.read(tmp_path / "public.json")
    assert found == facts
    assert list(found.sizes) == ["b", "a"]
    with pytest.raises(RunError, match=r"absent\.json"):
        PublicFacts.read(tmp_path / "absent.json")


def test_odd_names_get_folders_of_their_own() -> None:
    deployment = Deployment.new(Path("/d"), ["plain", "../up", "a b", ".hidden"], range(5))
    assert [deployment.silo(name).name for name in deployment.silos] == ["plain", "silo-1", "a b", "silo-3"]


def test_what_was_prepared_cannot_be_overridden(deployment: Deployment) -> None:
    for override in ("silos.declared_size=100", "data.task=regression", "seed=4"):
        with pytest.raises(ScenarioError, match=r"used to prepare|data\.label"):
            run_on(deployment, [override])


def test_a_run_without_a_superlink_says_so(deployment: Deployment) -> None:
    with pytest.raises(SuperLinkUnreachable, match=deployment.address):
        run_on(deployment)
    assert not (deployment.folder / "runs").exists()


def test_a_folder_that_is_not_empty_or_no_deployment_is_refused(tmp_path: Path, module_scenario_file: Path) -> None:
    with pytest.raises(RunError, match="not empty"):
        make_deployment(load(module_scenario_file), module_scenario_file.parent)
    with pytest.raises(RunError, match="no run to resume"):
        run_on(_unstarted(tmp_path, module_scenario_file), resume=True)
    with pytest.raises(Exception, match=NAME):
        Deployment.read(tmp_path / "absent")


def test_a_test_seed_has_one_run_named_as_in_the_simulation(tmp_path: Path, module_scenario_file: Path) -> None:
    scenario = load(module_scenario_file)
    seeded, _ = make_deployment(scenario, tmp_path / "seeded", insecure_test_seed=True)
    folder = new_run(seeded, scenario)
    assert folder.name.startswith("hospitals-")
    with pytest.raises(RunError, match="one run"):
        new_run(seeded, scenario)


def test_expired_certificates_are_refused_before_anything_starts(tmp_path: Path, module_scenario_file: Path) -> None:
    stale = _unstarted(tmp_path, module_scenario_file)
    write_certificates(stale.server, now=datetime(2025, 1, 1, tzinfo=UTC))
    with pytest.raises(CertificateUnfit, match="expired 2025-04-01"):
        up(stale)
    assert not (stale.server / "log.txt").exists()


def _unstarted(folder: Path, scenario: Path) -> Deployment:
    made, _ = make_deployment(load(scenario), folder / "unstarted")
    return made
