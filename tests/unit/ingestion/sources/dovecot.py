"""An IMAP server for tests: Dovecot with a certificate and users of its own."""

import getpass
import grp
import imaplib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.ports import find_free_port

PASSWORD = "s3cret-ä"
_USERS = 300

_CONFIG = """
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
protocols = imap
listen = 127.0.0.1
ssl = required
ssl_cert = <{folder}/cert.pem
ssl_key = <{folder}/key.pem
mail_location = maildir:{folder}/mail/%u:LAYOUT=fs
auth_failure_delay = 0
first_valid_uid = 1
default_internal_user = {internal}
default_internal_group = {group}
default_login_user = {internal}
auth_mechanisms = plain oauthbearer xoauth2
passdb {{
  driver = oauth2
  mechanisms = oauthbearer xoauth2
  args = {folder}/oauth2.conf
}}
passdb {{
  driver = passwd-file
  mechanisms = plain
  args = {folder}/users
}}
userdb {{
  driver = static
  args = uid={owner} gid={group} home={folder}/mail/%u
}}
namespace inbox {{
  inbox = yes
  separator = .
  mailbox Trash {{
    special_use = \\Trash
    auto = create
  }}
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {starttls_port}
  }}
  inet_listener imaps {{
    port = {port}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
"""


class Dovecot:
    """A server on this machine; each test has users of its own."""

    def __init__(self, folder: Path, oauth_port: int) -> None:
        self.folder = folder
        self.port, self.starttls_port = find_free_port(), find_free_port()
        self.certificate = folder / "cert.pem"
        self._process: subprocess.Popen[bytes] | None = None
        root = os.geteuid() == 0
        owner = "nobody" if root else getpass.getuser()
        group = "nogroup" if root else grp.getgrgid(os.getgid()).gr_name
        (folder / "mail").mkdir()
        if root:
            folder.chmod(0o755)
            shutil.chown(folder / "mail", owner, group)
        # All at once: the server looks for changes of the file once a second.
        (folder / "users").write_text("".join(f"user{number}:{{PLAIN}}{PASSWORD}\n" for number in range(_USERS)))
        self._users = iter(range(_USERS))
        (folder / "oauth2.conf").write_text(
            f"tokeninfo_url = http://127.0.0.1:{oauth_port}/tokeninfo?access_token=\nusername_attribute = email\n"
        )
        (folder / "dovecot.conf").write_text(
            _CONFIG.format(
                folder=folder, owner=owner, group=group, internal="dovecot" if root else owner,
                port=self.port, starttls_port=self.starttls_port,
            )
        )  # fmt: skip
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
                *("-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key.pem", "-out", self.certificate),
            ],
            check=True, capture_output=True,
        )  # fmt: skip

    @classmethod
    @contextmanager
    def run(cls, oauth_port: int = 9) -> Iterator["Dovecot"]:
        """Run a server; the test is skipped where Dovecot is not installed.

        It asks for the user of a token on a port of this machine.
        """
        if _find() is None or shutil.which("openssl") is None:
            pytest.skip("dovecot-imapd or openssl is not installed")
        # A short path: those of its sockets are limited to 107 bytes.
        folder = Path(tempfile.mkdtemp(prefix="dovecot-"))
        server = cls(folder, oauth_port)
        try:
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def start(self) -> None:
        """Start the server and wait for its port."""
        command = [str(_find()), "-F", "-c", str(self.folder / "dovecot.conf")]
        self._process = subprocess.Popen(command, start_new_session=True)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError((self.folder / "log").read_text())

    def stop(self) -> None:
        """End the server and its connections."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def add_user(self) -> str:
        """Return the name of a user with an empty mailbox."""
        return f"user{next(self._users)}"

    def expire_password(self, user: str) -> None:
        """Give a user another password, and wait until the old one is refused."""
        users = self.folder / "users"
        users.write_text(users.read_text().replace(f"{user}:{{PLAIN}}{PASSWORD}\n", f"{user}:{{PLAIN}}another\n"))
        with suppress(imaplib.IMAP4.error):
            while True:
                with self.log_in(user):
                    time.sleep(0.1)

    @contextmanager
    def log_in(self, user: str) -> Iterator[imaplib.IMAP4]:
        """Yield a connection that may write."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        with imaplib.IMAP4_SSL("localhost", self.port, ssl_context=context, timeout=10) as connection:
            connection.authenticate("PLAIN", lambda _: f"\0{user}\0{PASSWORD}".encode())
            yield connection


def _find() -> str | None:
    return shutil.which("dovecot") or shutil.which("dovecot", path="/usr/sbin")
