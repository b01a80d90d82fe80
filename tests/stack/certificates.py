"""Certificates of a stack, for tests of TLS: one authority, a server's and a client's.

`ca.crt` signs `server.crt` (for 127.0.0.1 and localhost) and `client.crt` (for the role
`walbraid_cert`). The keys lie beside them. Nothing here is worth keeping: each stack makes its own.
"""

import shutil
import subprocess

from .report import Failure

CLIENT_ROLE = "walbraid_cert"
_DAYS = "3650"


def _openssl(folder, *arguments):
    result = subprocess.run(
        ["openssl", *arguments], cwd=folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )
    if result.returncode != 0:
        raise Failure(f"openssl {arguments[0]} failed:\n{result.stdout[-1000:]}")


def _new_key(name):
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", f"{name}.key")


def make(stack):
    """Fills D/tls, if it is not there."""
    folder = stack.directory / "tls"
    if folder.exists():
        return
    part = folder.with_name("tls.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    _openssl(part, "req", "-x509", *_new_key("ca"), "-out", "ca.crt", "-days", _DAYS,
             "-subj", "/CN=walbraid stack authority")
    for name, subject in (("server", "localhost"), ("client", CLIENT_ROLE)):
        _openssl(part, "req", *_new_key(name), "-out", f"{name}.csr", "-subj", f"/CN={subject}")
        extension = part / f"{name}.ext"
        extension.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n" if name == "server"
                             else "extendedKeyUsage=clientAuth\n", encoding="ascii")
        _openssl(part, "x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt",
                 "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", _DAYS,
                 "-extfile", extension.name)
    part.rename(folder)
