"""Access control: one local browser, admitted by a one-time token and the cookie of this instance."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from masquerade.core.util.atomic import write_whole

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

ADDRESS = "127.0.0.1"
OPEN_ASSETS = ("page.css", "studio.css", "studio.js", "icon.svg")  # served before the token is checked
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer, forms would send "Origin: null"
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}"><title>masquerade studio</title></head>
<body><p><a href="{url}">Open masquerade studio</a></p></body></html>
"""


class StudioAccess:
    """The secrets of one instance: the path of its pages, the one-time token, and the session cookie.

    Cookies are not bound to a port, so this cookie is for a path that no other user of the machine knows. The
    token is in a file that only its owner can read, never on a command line. Once the token is used, the file
    contains a new one.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.prefix = f"/{secrets.token_urlsafe(12)}"
        self.cookie = f"masquerade-{secrets.token_hex(6)}"
        self._session = secrets.token_urlsafe(32)
        self._folder = Path(tempfile.mkdtemp(prefix="masquerade-studio-"))  # mode 0700
        self.file = self._folder / "open.html"
        self._token = ""
        self._renew()

    @property
    def host(self) -> str:
        """Return the only Host header that this instance accepts."""
        return f"{ADDRESS}:{self.port}"

    @property
    def origin(self) -> str:
        """Return the Origin that requests with effects must have."""
        return f"http://{self.host}"

    def admit(self, token: str) -> str | None:
        """Exchange the current token for the cookie; return None for any other token."""
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return None
        self._renew()
        return f"{self.cookie}={self._session}; Path={self.prefix}/; HttpOnly; SameSite=Strict"

    def has_cookie(self, cookies: str) -> bool:
        """Return True if a Cookie header contains the cookie of this instance."""
        pairs = (part.strip().partition("=") for part in cookies.split(";"))
        given = [value for name, _, value in pairs if name == self.cookie]
        return any(secrets.compare_digest(value.encode(), self._session.encode()) for value in given)

    def close(self) -> None:
        """Remove the file."""
        self.file.unlink(missing_ok=True)
        if self._folder.exists():
            self._folder.rmdir()

    def _renew(self) -> None:
        self._token = secrets.token_urlsafe(32)
        page = PAGE.format(url=f"{self.origin}{self.prefix}/enter#{self._token}")
        write_whole(self.file, page, private=True)
        os.chmod(self.file, 0o600)  # noqa: PTH101  (also if the file existed)


class Guard:
    """Middleware that refuses requests unless they come from the admitted browser; adds security headers."""

    def __init__(self, app: ASGIApp, access: StudioAccess) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it with a reason."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        refused = self._find_refusal(scope)
        if refused is not None:
            await _plain(send, *refused)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.decode().lower() for name, _ in message["headers"]}
                more = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n not in given]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        await self.app(scope, receive, guarded)

    def _find_refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        access, path, origin = self.access, str(scope["path"]), headers.get("origin")
        within = path.removeprefix(access.prefix)
        open_to_all = within == "/enter" or within in {f"/assets/{name}" for name in OPEN_ASSETS}
        rules = (
            (headers.get("host") != [access.host], 421, f"This page is available only at {access.host}."),
            (origin not in (None, [access.origin]), 403, "This request comes from a different page."),
            (
                scope["method"] not in {"GET", "HEAD"} and origin is None,
                403,
                "A request with effects must state the page that it comes from.",
            ),
            (
                not path.startswith(f"{access.prefix}/"),
                404,
                "Open the file whose path `masquerade studio` printed.",
            ),
            (
                not open_to_all and not access.has_cookie("; ".join(headers.get("cookie", []))),
                403,
                "Access denied: open the file again whose path `masquerade studio` printed.",
            ),
        )
        return next(((status, words) for broken, status, words in rules if broken), None)


async def _plain(send: Send, status: int, words: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    headers += [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": words.encode()})
