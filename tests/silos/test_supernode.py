"""A silo's approval of an app, judged by Flower's own check."""

import hashlib
from pathlib import Path

import pytest
import yaml
from flwr.supercore.fab import Fab
from flwr.supernode.start_client_internal import _verify_fab

from accounting import InvalidValue
from silos._supernode import APPROVED, TRUSTED, _read, _vouching, approve, approved

APP, OTHER = b"an app", b"another app"


def arrived(content: bytes, claimed: bytes = b"") -> Fab:
    """An app as a SuperLink sends it, under a hash and with verifications of its own choosing."""
    return Fab(hashlib.sha256(claimed or content).hexdigest(), content, {"valid_license": "yes"})


def passes(folder: Path, fab: Fab) -> bool:
    """What Flower's SuperNode does with it."""
    seen = _vouching(lambda *_: fab, _read(folder))(fab.hash_str, 1)
    trusted = yaml.safe_load((folder / TRUSTED).read_text("utf-8"))
    return bool(seen.verifications.get("valid_license")) and _verify_fab(seen, trusted)


def test_the_approved_app_passes_flowers_check_and_no_other_does(tmp_path: Path) -> None:
    assert approve(tmp_path, APP) == approved(tmp_path) == hashlib.sha256(APP).hexdigest()
    assert passes(tmp_path, arrived(APP))
    assert not passes(tmp_path, arrived(OTHER))


def test_an_app_under_the_approved_ones_hash_is_refused(tmp_path: Path) -> None:
    approve(tmp_path, APP)
    assert not passes(tmp_path, arrived(OTHER, claimed=APP))


def test_a_new_approval_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    approve(tmp_path, APP)
    approve(tmp_path, OTHER)
    assert passes(tmp_path, arrived(OTHER))
    assert not passes(tmp_path, arrived(APP))


def test_a_signature_by_another_key_is_refused(tmp_path: Path) -> None:
    approve(tmp_path, APP)
    record = (tmp_path / APPROVED).read_bytes()
    approve(tmp_path, APP)
    (tmp_path / APPROVED).write_bytes(record)
    assert not passes(tmp_path, arrived(APP))


def test_without_an_approval_there_is_no_supernode(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="no app is approved"):
        approved(tmp_path)
