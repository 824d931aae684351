"""Certificates and keys of a deployment on one machine.

A certificate authority signs one server certificate for loopback and is thrown away: nobody can sign another in its
name, and new certificates come with a new authority. Each silo has a key pair of its own, by which the SuperLink knows
it; the private half never leaves the silo's folder.
"""

import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from accounting import SilodpError

VALID = timedelta(days=90)
"""How long new certificates are good for."""

CA, CERTIFICATE, KEY = "ca.pem", "server.pem", "server.key"
"""Files of the SuperLink: what silos check it by, its certificate, and its private key."""

NODE_KEY = "supernode.key"
"""A silo's private key; its public half has the suffix ``.pub``."""


class CertificateUnfit(SilodpError):
    """A certificate that is absent, cannot be read, or is not valid now; the message names the file and the date."""


def write_certificates(folder: Path, *, now: datetime | None = None) -> None:
    """Write a new authority's certificate and a server certificate for loopback, with its private key.

    Args:
        folder: where; files of an earlier call are replaced.
        now: beginning of their validity; None is the present.
    """
    start = datetime.now(UTC) if now is None else now
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = _name("silodp deployment")
    ca = _sign(_builder(issuer, issuer, authority, start, is_ca=True), authority)
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    builder = _builder(_name("silodp SuperLink"), issuer, server, start, is_ca=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CA).write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    (folder / CERTIFICATE).write_bytes(_sign(builder, authority).public_bytes(serialization.Encoding.PEM))
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    write_secret(folder / KEY, server.private_bytes(*pem))


def check_certificate(path: Path, *, now: datetime | None = None) -> None:
    """Refuse a certificate that is not valid.

    Raises:
        CertificateUnfit: for one that is absent, broken, expired or not yet valid.
    """
    present = datetime.now(UTC) if now is None else now
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CertificateUnfit(f"{path}: cannot be read as a certificate: {error}") from None
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not first <= present <= last:
        word = "expired" if present > last else "is not valid before"
        raise CertificateUnfit(f"{path}: {word} {last if present > last else first:%Y-%m-%d %H:%M} UTC.")


def write_node_key(folder: Path) -> None:
    """Write a silo's new key pair in OpenSSH's format, on a curve that Flower accepts."""
    key = ec.generate_private_key(ec.SECP384R1())
    openssh = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    write_secret(folder / NODE_KEY, key.private_bytes(*openssh))
    (folder / f"{NODE_KEY}.pub").write_bytes(public_line(key.public_key()))


def public_line(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key as one line of OpenSSH's format."""
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH) + b"\n"


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, start: datetime, *, is_ca: bool
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=not is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - timedelta(minutes=5))
        .not_valid_after(start + VALID)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _sign(builder: x509.CertificateBuilder, authority: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return builder.sign(authority, hashes.SHA384())
