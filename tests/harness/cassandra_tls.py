"""Certificates for a Cassandra node."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tools.cassandra.config import KEYSTORE_PASSWORD
from tools.cassandra.jars import find_java


class Identity(NamedTuple):
    """Who a node says it is. keystore: for the node. certificate: for those who trust it."""

    keystore: Path
    certificate: Path


def make_identity(folder: Path, *, name: str, address: str) -> Identity:
    """Make a certificate that signs itself, made out to a name and an address."""
    keytool = shutil.which("keytool", path=str(Path(find_java()).resolve().parent))
    assert keytool is not None, "it comes with Java"
    made = Identity(folder / "node.p12", folder / "node.pem")
    store = ["-alias", "node", "-keystore", str(made.keystore), "-storepass", KEYSTORE_PASSWORD]
    subject = ["-dname", f"CN={name}", "-ext", f"san=dns:{name},ip:{address}", "-ext", "bc=ca:true"]
    key = ["-keyalg", "EC", "-groupname", "secp256r1", "-validity", "7", "-storetype", "PKCS12"]
    for words in (
        ["-genkeypair", *store, *key, *subject],
        ["-exportcert", "-rfc", "-file", str(made.certificate), *store],
    ):
        subprocess.run([keytool, *words], check=True, capture_output=True, timeout=300)
    return made
