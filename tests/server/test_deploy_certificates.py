"""Certificates and keys, read back by the libraries that will use them."""

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from server._deploy_certificates import (
    CA,
    CERTIFICATE,
    KEY,
    NODE_KEY,
    VALID,
    CertificateUnfit,
    check_certificate,
    write_certificates,
    write_node_key,
)
from server._deploy_control import load_node_key

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def handshake(folder: Path, ca: Path, host: str) -> None:
    """A TLS handshake in memory with the server's files, checked by an authority."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    client_context = ssl.create_default_context(cafile=str(ca))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.version() == "TLSv1.3"


def test_a_client_that_has_the_authority_trusts_the_server_on_loopback(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    for host in ("127.0.0.1", "localhost"):
        handshake(tmp_path, tmp_path / CA, host)


def test_nobody_elses_authority_or_name_will_do(tmp_path: Path) -> None:
    write_certificates(tmp_path / "ours")
    write_certificates(tmp_path / "theirs")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path / "ours", tmp_path / "theirs" / CA, "localhost")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path / "ours", tmp_path / "ours" / CA, "example.org")


def test_a_certificate_is_refused_before_and_after_its_time(tmp_path: Path) -> None:
    write_certificates(tmp_path, now=NOW)
    for name in (CA, CERTIFICATE):
        check_certificate(tmp_path / name, now=NOW)
        check_certificate(tmp_path / name, now=NOW + VALID)
        with pytest.raises(CertificateUnfit, match=r"expired 2026-07-30 00:00 UTC"):
            check_certificate(tmp_path / name, now=NOW + VALID + timedelta(seconds=1))
        with pytest.raises(CertificateUnfit, match=r"not valid before 2026-04-30 23:55 UTC"):
            check_certificate(tmp_path / name, now=NOW - timedelta(hours=1))


def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    for name in ("broken.pem", "absent.pem"):
        with pytest.raises(CertificateUnfit, match=name):
            check_certificate(tmp_path / name)


def test_private_keys_are_their_owners_alone(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    write_node_key(tmp_path)
    for name in (KEY, NODE_KEY):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_silos_keys_are_a_pair_that_flower_reads(tmp_path: Path) -> None:
    write_node_key(tmp_path)
    private = load_ssh_private_key((tmp_path / NODE_KEY).read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes, uses_nist_ec_curve

    assert load_node_key(tmp_path / f"{NODE_KEY}.pub") == public_key_to_bytes(private.public_key())
    assert uses_nist_ec_curve(private.public_key())
