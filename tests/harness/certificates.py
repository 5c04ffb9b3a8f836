"""Certificates for servers of tests."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from tools.cassandra.config import KEYSTORE_PASSWORD


class Identity(NamedTuple):
    """A server's certificate.

    Attributes:
      certificate: For the server, and for clients that trust it.
      key: For the server.
      keystore: Both, for a Cassandra node.
    """

    certificate: Path
    key: Path
    keystore: Path


def make_identity(folder: Path, *, name: str, address: str) -> Identity:
    """Make a certificate that signs itself, made out to a name and an address."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ip_address(address))])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=7))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = Identity(folder / "node.pem", folder / "node.key", folder / "node.p12")
    made.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
    made.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    password = BestAvailableEncryption(KEYSTORE_PASSWORD.encode())
    made.keystore.write_bytes(
        pkcs12.serialize_key_and_certificates(b"node", key, certificate, None, password)
    )
    return made
