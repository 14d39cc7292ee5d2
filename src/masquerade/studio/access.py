"""Who may come in: one browser of this machine, by a token used once and a cookie of this instance."""

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
OPEN_ASSETS = ("page.css", "studio.css", "studio.js", "icon.svg")  # what the page before the door shows
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer a form says it comes from nowhere (Origin: null)
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}"><title>masquerade studio</title></head>
<body><p><a href="{url}">Open masquerade studio</a></p></body></html>
"""


class Door:
    """The secrets of one instance: where its pages are, the token that opens it, the cookie that stays.

    Cookies know no ports, so this one is for a path that nobody else on the machine knows. The token stands
    in a file that only its owner can read, never on a command line; once used, the file holds the next one.
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
        """Return the only name by which this instance may be called."""
        return f"{ADDRESS}:{self.port}"

    @property
    def origin(self) -> str:
        """Return where requests that change something must come from."""
        return f"http://{self.host}"

    def admit(self, token: str) -> str | None:
        """Return the value of the cookie for the token in force, which is used up; None for any other."""
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return None
        self._renew()
        return f"{self.cookie}={self._session}; Path={self.prefix}/; HttpOnly; SameSite=Strict"

    def knows(self, cookies: str) -> bool:
        """Tell whether a header of cookies has the one of this instance."""
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
        os.chmod(self.file, 0o600)  # noqa: PTH101  (also where the file was there already)


class Guard:
    """Refuse whatever is not a request of the browser that was let in; every answer forbids what it can."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self.app = app
        self.door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or say why not."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        refused = self._refused(scope)
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

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        door, path, origin = self.door, str(scope["path"]), headers.get("origin")
        within = path.removeprefix(door.prefix)
        open_to_all = within == "/enter" or within in {f"/assets/{name}" for name in OPEN_ASSETS}
        rules = (
            (headers.get("host") != [door.host], 421, f"This page is {door.host} and has no other name."),
            (origin not in (None, [door.origin]), 403, "This request comes from another page."),
            (
                scope["method"] not in {"GET", "HEAD"} and origin is None,
                403,
                "A request that changes something must say which page it comes from.",
            ),
            (not path.startswith(f"{door.prefix}/"), 404, "Open the file that `masquerade studio` names."),
            (
                not open_to_all and not door.knows("; ".join(headers.get("cookie", []))),
                403,
                "You are not let in: open the file that `masquerade studio` names, once more.",
            ),
        )
        return next(((status, words) for broken, status, words in rules if broken), None)


async def _plain(send: Send, status: int, words: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    headers += [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": words.encode()})
