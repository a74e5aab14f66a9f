"""How an https server has to prove itself, and how we prove ourselves to it; and what to do where that fails.

For the measured requests and the small questions alike. It must not know of HTTP. Nothing of a key is ever said.
"""

import ssl
from collections.abc import Iterable
from dataclasses import dataclass

# OpenSSL's numbers of what is wrong with a certificate (X509_V_ERR_...).
TOO_EARLY, EXPIRED = 9, 10
OTHER_NAME = (62, 63, 64)
NO_AUTHORITY = (2, 18, 19, 20, 21)
# Its names of what a server says that wants a certificate of ours, or another one.
CLOSED = "CLOSED IN THE HANDSHAKE"  # no name of OpenSSL's: nothing was said
WANTED = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", CLOSED)
PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
OWN = "engine.client_cert_file=FILE engine.client_key_file=FILE"


@dataclass(frozen=True)
class Tls:
    """PEM files: the authority that signed the server's certificate (None: those of the system), our own certificate
    and its key (None: in the certificate's file). `verify` false believes any server."""

    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None
    verify: bool = True

    @property
    def files(self) -> tuple[str, ...]:
        """Those that have to be where connections are opened."""
        return tuple(filter(None, (self.ca_file, self.client_cert_file, self.client_key_file)))


VERIFIED = Tls()
UNVERIFIED = (
    "the server's certificate was not verified (engine.tls_verify=false): whoever stood between heard all, the key too"
)


def remarks(tls: Tls, urls: Iterable[str]) -> list[str]:
    """What is to be known of results that came over such connections."""
    return [] if tls.verify or not any(url.startswith("https:") for url in urls) else [UNVERIFIED]


def context(tls: Tls) -> ssl.SSLContext:
    """What a connection is secured with. OSError with a sentence where a file cannot be used."""
    try:
        made = ssl.create_default_context(cafile=tls.ca_file)
    except OSError as error:
        raise OSError(f"engine.ca_file={tls.ca_file}: {_why(error)}; give certificates in PEM") from None
    if not tls.verify:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if tls.client_cert_file:
        try:
            made.load_cert_chain(tls.client_cert_file, tls.client_key_file, password=_no_password)
        except (OSError, ValueError) as error:
            files = f"engine.client_cert_file={tls.client_cert_file} engine.client_key_file={tls.client_key_file}"
            raise OSError(
                f"{files}: {_why(error)}; give a certificate and its key in PEM, without a password"
            ) from None
    return made


def _no_password() -> str:
    # OpenSSL would ask at the terminal, of every worker.
    raise ValueError("the key has a password")


def _why(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def unfinished(secured: ssl.SSLObject | None) -> bool:
    """Whether the server had not taken our handshake yet when the connection ended, before a word of HTTP.

    In TLS 1.3 its tickets follow its look at our certificate; many servers close there without an alert.
    """
    if secured is None or secured.version() != "TLSv1.3":
        return False
    return secured.session is None or not secured.session.has_ticket


def trouble(error: BaseException) -> str | None:
    """What went wrong in securing a connection and what to do; None where the error is not of that kind."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is refused: {error.verify_message}; {_advice(error.verify_code)}"
    if not isinstance(error, ssl.SSLError):
        return None
    reason = str(getattr(error, "reason", None) or error).upper()
    if any(word in reason for word in WANTED):
        return f"the server refuses us ({reason}), as one does that wants a certificate which it knows; give {OWN}"
    if any(word in reason for word in PLAIN):
        return f"the server does not speak TLS ({reason}); write its address with http://"
    return f"no secure connection: {reason}; compare its TLS versions and ciphers with this machine's"


def _advice(code: int) -> str:
    if code in OTHER_NAME:
        return "write engine.url with a name that the certificate is for"
    if code in (TOO_EARLY, EXPIRED):
        return "renew it at the server, or set this machine's clock"
    if code in NO_AUTHORITY:
        return "name the authority that signed it: engine.ca_file=FILE"
    return "correct it at the server"
