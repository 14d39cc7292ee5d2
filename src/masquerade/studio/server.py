"""Web server of the studio: every URL is a state, every number is printed by a command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from urllib.parse import parse_qs, urlencode

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, StreamingResponse
from starlette.middleware import Middleware

from masquerade.core.errors import FileError, InputError, MasqueradeError
from masquerade.services.common.connections import Gate, listen
from masquerade.studio import notebook, pages, policy_edits, records, releases, steps
from masquerade.studio.access import ADDRESS, OPEN_ASSETS, Guard, StudioAccess
from masquerade.studio.allow_list import KEPT, read_step
from masquerade.studio.answer import Answer, answer_of
from masquerade.studio.engine import CommandRunner, StudioJob
from masquerade.studio.pages import SCREENS
from masquerade.studio.project import Project
from masquerade.studio.project_files import check_notebook_folder
from masquerade.studio.reach import NotAllowed, Reach

PATIENCE = 1.5  # seconds to wait for an answer before its page shows progress
BEAT = 0.25  # seconds between two checks of a job
MOST_BYTES = 1 << 20
MOST_UNREAD = 256 << 20  # most bytes of responses that browsers have not read yet
# changes to the project after a command has run
AFTER: Mapping[tuple[str, ...], Callable[[Project, StudioJob], None]] = {
    ("policy", "init"): records.adopt_draft,
    ("policy", "check"): records.keep_row_count,
    ("survey", "export"): records.keep_exported_reports,
    ("disguise",): releases.record_release,
}
TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
ASSETS = (*OPEN_ASSETS, "htmx.min.js")


class Studio:
    """A project, its worker process, and its web server."""

    def __init__(self, project: Project, port: int) -> None:
        self.project = project
        self.reach = Reach(project.folder)
        releases.recover_releases(project)
        self.access = StudioAccess(port)
        self.engine = CommandRunner(project.folder, self._finish_job)
        self.app = FastAPI(
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            middleware=[Middleware(Guard, access=self.access)],
            lifespan=self._life,
        )
        _add_routes(self)

    @asynccontextmanager
    async def _life(self, _app: FastAPI) -> AsyncIterator[None]:
        yield
        self.close()

    def close(self) -> None:
        """End the worker process, and remove the file with the token."""
        self.engine.close()
        self.access.close()

    def answer(self, argv: Sequence[str], patience: float = PATIENCE) -> Answer:
        """Return the answer of a command: its stored result, or its job after at most `patience` seconds.

        A command that is not in the allow-list is refused, as is a file or database that the user has not
        allowed.
        """
        credentials = self.reach.check(read_step(argv))
        name = self.project.result_id(argv)
        kept = self.project.result(name)
        if kept is not None:
            said = next((tuple(step.said) for step in self.project.steps if step.result == name), ())
            return Answer(name, tuple(argv), kept, said)
        known = self.engine.job(name)
        if known is None or known.state not in {"failed", "cancelled"}:
            known = self.engine.submit(name, argv, credentials=credentials)
            known.over.wait(patience)
        return answer_of(known)

    def _finish_job(self, job: StudioJob) -> None:
        """Store the output of a command; a draft becomes the policy, a release the records to count."""
        if job.outcome is None:
            return
        after = AFTER.get(job.argv[:2]) or AFTER.get(job.argv[:1])
        if after is not None:
            after(self.project, job)
        if job.argv[0] in KEPT and job.outcome.printed:  # last, so that a visible result has had its effects
            self.project.keep_result(job.argv, job.name, job.outcome.printed, job.outcome.said)

    def place_of(self, text: str) -> str:
        """Return the path of a file for commands, relative to the project's folder if it is inside."""
        path = Path(text).expanduser()
        whole = path if path.is_absolute() else self.project.folder / path
        if not whole.is_file():
            raise FileError(f"{text}: no such file; give its full path, or choose it from the list.")
        inside = whole.resolve().is_relative_to(self.project.folder)
        return whole.resolve().relative_to(self.project.folder).as_posix() if inside else str(whole.resolve())

    def choose_file(self, text: str) -> str:
        """Permit steps to read a file that the user chose in a form, and return its path."""
        place = self.place_of(text)
        self.reach.name(self.project.folder / place)
        return place


def listening_socket(port: int = 0) -> Gate:
    """Return a socket that only this machine can reach, at a free port if none is given.

    Other users of the machine can reach it, too, so the `Gate` closes connections that send no request.
    """
    try:
        taken = listen(ADDRESS, port)  # early connections wait until the server has started
    except InputError:
        raise InputError(f"Port {port} is in use; omit --port to use a free one.") from None
    taken.secured, taken.is_local = False, True
    return taken


async def _body(request: Request) -> bytes:
    """Return the body of a request, up to the largest size of a form."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise InputError("The form is too long.")
    return body


async def _form(request: Request) -> steps.Asked:
    body = await _body(request)
    return parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)


def _query_of(request: Request) -> dict[str, list[str]]:
    return parse_qs(request.url.query, keep_blank_values=True)


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/html; charset=utf-8")


def _add_routes(studio: Studio) -> None:
    app, prefix = studio.app, studio.access.prefix

    @app.exception_handler(MasqueradeError)
    async def problem(_request: Request, error: Exception) -> Response:
        needs = error.needs if isinstance(error, NotAllowed) else ()
        return _html(pages.problem_page(studio, str(error), needs), 400)

    def screen(name: str) -> None:
        @app.get(f"{prefix}/{name}")
        async def show(request: Request) -> Response:
            return _html(await run_in_threadpool(pages.screen_page, studio, name, _query_of(request)))

    for name in SCREENS:
        screen(name)

    @app.get(f"{prefix}/policy/live")
    async def live(request: Request) -> Response:
        return _html(await run_in_threadpool(pages.live_words, studio, _query_of(request)))

    @app.get(f"{prefix}/jobs/{{name}}")
    async def events(name: str) -> Response:
        return StreamingResponse(_events(studio, name), media_type="text/event-stream")

    _add_entrance(studio)
    _add_files(studio)

    @app.post(f"{prefix}/{{name}}")  # last, so that all other routes match first
    async def change(name: str, request: Request) -> Response:
        asked = await _form(request)
        if name not in CHANGES:
            raise InputError(f"There is no action {name!r}.")
        return RedirectResponse(await run_in_threadpool(CHANGES[name], studio, asked), 303)


def _add_entrance(studio: Studio) -> None:
    app, prefix = studio.app, studio.access.prefix

    @app.get(f"{prefix}/enter")
    async def enter() -> Response:
        return _html(pages.fill_template("enter.html.j2", {}))

    @app.post(f"{prefix}/enter")
    async def admit(request: Request) -> Response:
        cookie = studio.access.admit((await _body(request)).decode("utf-8", "replace"))
        if cookie is None:
            return Response("This link was already used; open the file again.", 403)
        return Response(status_code=204, headers={"set-cookie": cookie})

    @app.get(f"{prefix}/")
    async def start() -> Response:
        return RedirectResponse("data", 303)

    @app.get(f"{prefix}/assets/{{name}}")
    async def asset(name: str) -> Response:
        if name not in ASSETS:
            return Response("There is no such file.", 404)
        shared = name == "page.css"  # the style of reports
        folder = files("masquerade.report") / "templates" if shared else files("masquerade.studio") / "assets"
        content = (folder / name).read_bytes()
        return Response(content, media_type=TYPES[name.rpartition(".")[2]])


def _add_files(studio: Studio) -> None:
    app, prefix, project = studio.app, studio.access.prefix, studio.project

    @app.get(f"{prefix}/results/{{name}}.{{ending}}")
    async def download(name: str, ending: str) -> Response:
        kind, content = await run_in_threadpool(pages.download, studio, name, ending)
        return _file(f"{name}.{ending}", content, kind)

    @app.get(f"{prefix}/project.zip")
    async def archive() -> Response:
        return _file("project.zip", await run_in_threadpool(project.archive), "application/zip")

    @app.get(f"{prefix}/notebook.ipynb")
    async def written() -> Response:
        check_notebook_folder(project.folder)
        steps_kept = project.steps
        for step in steps_kept:
            studio.reach.check(step.step)
        return _file("notebook.ipynb", notebook.jupyter(steps_kept), "application/x-ipynb+json")


def _file(name: str, content: bytes, kind: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=kind, headers=headers)


def _undo(studio: Studio, asked: steps.Asked) -> str:
    to = steps.need(asked, "to", "a version")
    if not to.isdecimal():
        raise InputError("Versions are numbered.")
    seen, now = steps.one(asked, "at"), studio.project.at
    if seen is not None and seen != str(now):
        raise InputError(
            "Another tab or window has changed the project since this page was loaded: the latest change is "
            f"now “{studio.project.versions[now]}”. Nothing was undone. Undo from here, or go back and load "
            "the page again."
        )
    studio.project.go_to(int(to))
    back = steps.one(asked, "page")
    return back if back in SCREENS else "policy"


def _allow(studio: Studio, asked: steps.Asked) -> str:
    """Permit a path or an address, exactly as shown, until the studio ends."""
    studio.reach.agree(steps.need(asked, "what", "a file or an address"))
    return _back(asked)


def _cancel(studio: Studio, asked: steps.Asked) -> str:
    studio.engine.cancel(steps.need(asked, "job", "a job"))
    return _back(asked)


def _try_again(studio: Studio, asked: steps.Asked) -> str:
    studio.engine.forget(steps.need(asked, "job", "a job"))
    return _back(asked)


def _back(asked: steps.Asked) -> str:
    back, query = steps.one(asked, "page"), steps.one(asked, "query")
    return "data" if back not in SCREENS else f"{back}?{query}" if query else str(back)


def _choose_data(studio: Studio, asked: steps.Asked) -> str:
    answer = records.choose(studio, asked)
    if answer is not None and answer.problem is not None:
        raise InputError(answer.problem)
    return f"data?draft={answer.name}" if answer is not None and answer.job is not None else "data"


def _change_policy(studio: Studio, asked: steps.Asked) -> str:
    with studio.project.edit(_words_of(asked)) as (_, values):
        policy_edits.edit(values, asked)
    return "policy"


def _adopt_plan(studio: Studio, asked: steps.Asked) -> str:
    policy = studio.project.policy
    clear = () if policy is None else policy.clear_variables
    answer = studio.answer(steps.trade_off(asked, studio.project.people, clear))
    if answer.values is None:
        raise InputError(answer.problem or "The plan is still being made; wait for it and try again.")
    with pages.reading_results():
        words, planned = f"planned at ε = {answer.values['epsilon']:g}", dict(answer.values["policy"])
    policy_edits.check_raised_limit(policy, planned, is_accepted=bool(steps.one(asked, "raise")))
    with studio.project.edit(words) as (_, values):
        values.clear()
        values.update(planned)
    return "policy"


def _open_model(studio: Studio, asked: steps.Asked) -> str:
    return f"learn?{urlencode({'do': 'model', 'model': records.open_model(studio, asked)})}"


def _release(studio: Studio, asked: steps.Asked) -> str:
    made = releases.make(studio, asked)
    if made.problem is not None:
        raise InputError(made.problem)
    return f"release?{urlencode({'made': made.name})}"


CHANGES: Mapping[str, Callable[[Studio, steps.Asked], str]] = {
    "undo": _undo,
    "allow": _allow,
    "cancel": _cancel,
    "again": _try_again,
    "data": _choose_data,
    "policy": _change_policy,
    "trade-off": _adopt_plan,
    "learn": _open_model,
    "release": _release,
}


def _words_of(asked: steps.Asked) -> str:
    name = steps.one(asked, "name") or ", ".join(steps.several(asked, "names")) or "policy"
    return f"{name}: {steps.one(asked, 'do') or 'changed'}"


async def _events(studio: Studio, name: str) -> AsyncIterator[str]:
    """Yield the progress of a job as events, and at the end the event that reloads the page."""
    last = None
    while True:
        job = studio.engine.job(name)
        if job is None or job.over.is_set():
            yield "event: over\ndata: over\n\n"
            return
        if job.share is not None and job.share != last:
            last = job.share
            yield f"data: {last:.3f}\n\n"
        await asyncio.sleep(BEAT)
