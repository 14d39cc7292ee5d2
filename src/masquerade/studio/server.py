"""The pages: every address is a state, every number is one that a command printed."""

from __future__ import annotations

import asyncio
import socket
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
from masquerade.studio import notebook, pages, policy_edits, records, releases, steps
from masquerade.studio.access import ADDRESS, OPEN_ASSETS, Door, Guard
from masquerade.studio.allow_list import KEPT, read_step
from masquerade.studio.answer import Answer, answer_of
from masquerade.studio.engine import Engine, Job
from masquerade.studio.pages import SCREENS
from masquerade.studio.project import Project
from masquerade.studio.reach import NotAllowed, Reach

PATIENCE = 1.5  # seconds that an answer may take before its page shows how far it is
BEAT = 0.25  # seconds between two looks at a job
MOST_BYTES = 1 << 20
# what becomes of a project when a command is done
AFTER: Mapping[tuple[str, ...], Callable[[Project, Job], None]] = {
    ("policy", "init"): records.drafted,
    ("policy", "check"): records.counted,
    ("survey", "export"): records.exported,
    ("disguise",): releases.released,
}
TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
ASSETS = (*OPEN_ASSETS, "htmx.min.js")


class Studio:
    """A project, the process that works for it, and the pages that show it."""

    def __init__(self, project: Project, port: int) -> None:
        self.project = project
        self.reach = Reach(project.folder)
        releases.recovered(project)
        self.door = Door(port)
        self.engine = Engine(project.folder, self._finished)
        self.app = FastAPI(
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            middleware=[Middleware(Guard, door=self.door)],
            lifespan=self._life,
        )
        _add_routes(self)

    @asynccontextmanager
    async def _life(self, _app: FastAPI) -> AsyncIterator[None]:
        yield
        self.close()

    def close(self) -> None:
        """End the process that works, and remove the file that lets in."""
        self.engine.close()
        self.door.close()

    def answer(self, argv: Sequence[str], patience: float = PATIENCE) -> Answer:
        """Return the answer of a command: its kept result, or a job that was waited for a little.

        A command that is not in the allow-list is refused; so is a file or database that the person has
        not allowed.
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

    def _finished(self, job: Job) -> None:
        """Keep what a command printed; a draft becomes the policy, a release the records to count."""
        if job.outcome is None:
            return
        after = AFTER.get(job.argv[:2]) or AFTER.get(job.argv[:1])
        if after is not None:
            after(self.project, job)
        if job.argv[0] in KEPT and job.outcome.printed:  # last: who sees a result sees what came of it
            self.project.keep_result(job.argv, job.name, job.outcome.printed, job.outcome.said)

    def place_of(self, text: str) -> str:
        """Return the path of a file as commands get it: from the project's folder if it is inside."""
        path = Path(text).expanduser()
        whole = path if path.is_absolute() else self.project.folder / path
        if not whole.is_file():
            raise FileError(f"{text}: no such file; give its whole path, or choose it in the list.")
        inside = whole.resolve().is_relative_to(self.project.folder)
        return whole.resolve().relative_to(self.project.folder).as_posix() if inside else str(whole.resolve())

    def choose_file(self, text: str) -> str:
        """Return the path of a file that the person chose in a form, which steps may read from now on."""
        place = self.place_of(text)
        self.reach.name(self.project.folder / place)
        return place


def listening_socket(port: int = 0) -> socket.socket:
    """Return a socket of this machine alone, at a free port if none is given."""
    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # without it replies wait
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((ADDRESS, port))
        taken.listen()  # who comes before the server has started waits, and is not turned away
    except OSError:
        taken.close()
        raise InputError(f"Port {port} is taken; leave --port out and a free one is found.") from None
    return taken


async def _form(request: Request) -> steps.Asked:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise InputError("That is too long for a form.")
    return parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)


def _asked(request: Request) -> dict[str, list[str]]:
    return parse_qs(request.url.query, keep_blank_values=True)


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/html; charset=utf-8")


def _add_routes(studio: Studio) -> None:
    app, prefix = studio.app, studio.door.prefix

    @app.exception_handler(MasqueradeError)
    async def problem(_request: Request, error: Exception) -> Response:
        needs = error.needs if isinstance(error, NotAllowed) else ()
        return _html(pages.problem_page(studio, str(error), needs), 400)

    def screen(name: str) -> None:
        @app.get(f"{prefix}/{name}")
        async def show(request: Request) -> Response:
            return _html(await run_in_threadpool(pages.screen_page, studio, name, _asked(request)))

    for name in SCREENS:
        screen(name)

    @app.get(f"{prefix}/policy/live")
    async def live(request: Request) -> Response:
        return _html(await run_in_threadpool(pages.live_words, studio, _asked(request)))

    @app.get(f"{prefix}/jobs/{{name}}")
    async def events(name: str) -> Response:
        return StreamingResponse(_events(studio, name), media_type="text/event-stream")

    _add_entrance(studio)
    _add_files(studio)

    @app.post(f"{prefix}/{{name}}")  # the last: every other place was named before
    async def change(name: str, request: Request) -> Response:
        asked = await _form(request)
        if name not in CHANGES:
            raise InputError(f"There is nothing to do at {name!r}.")
        return RedirectResponse(await run_in_threadpool(CHANGES[name], studio, asked), 303)


def _add_entrance(studio: Studio) -> None:
    app, prefix = studio.app, studio.door.prefix

    @app.get(f"{prefix}/enter")
    async def enter() -> Response:
        return _html(pages.filled("enter.html.j2", {}))

    @app.post(f"{prefix}/enter")
    async def admit(request: Request) -> Response:
        cookie = studio.door.admit((await request.body())[:200].decode("utf-8", "replace"))
        if cookie is None:
            return Response("This link was used already; open the file once more.", 403)
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
    app, prefix, project = studio.app, studio.door.prefix, studio.project

    @app.get(f"{prefix}/results/{{name}}.{{ending}}")
    async def download(name: str, ending: str) -> Response:
        kind, content = await run_in_threadpool(pages.download, studio, name, ending)
        return _file(f"{name}.{ending}", content, kind)

    @app.get(f"{prefix}/project.zip")
    async def archive() -> Response:
        return _file("project.zip", await run_in_threadpool(project.archive), "application/zip")

    @app.get(f"{prefix}/notebook.ipynb")
    async def written() -> Response:
        steps_kept = project.steps
        for step in steps_kept:
            studio.reach.check(step.step)
        return _file("notebook.ipynb", notebook.jupyter(steps_kept), "application/x-ipynb+json")


def _file(name: str, content: bytes, kind: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=kind, headers=headers)


def _undone(studio: Studio, asked: steps.Asked) -> str:
    to = steps.need(asked, "to", "a version")
    if not to.isdecimal():
        raise InputError("Versions are numbered.")
    studio.project.go_to(int(to))
    back = steps.one(asked, "page")
    return back if back in SCREENS else "policy"


def _allow(studio: Studio, asked: steps.Asked) -> str:
    """Permit a path or an address, as it was shown, until the studio ends."""
    studio.reach.agree(steps.need(asked, "what", "a file or an address"))
    return _back(asked)


def _cancelled(studio: Studio, asked: steps.Asked) -> str:
    studio.engine.cancel(steps.need(asked, "job", "a job"))
    return _back(asked)


def _tried_again(studio: Studio, asked: steps.Asked) -> str:
    studio.engine.forget(steps.need(asked, "job", "a job"))
    return _back(asked)


def _back(asked: steps.Asked) -> str:
    back, query = steps.one(asked, "page"), steps.one(asked, "query")
    return "data" if back not in SCREENS else f"{back}?{query}" if query else str(back)


def _data_chosen(studio: Studio, asked: steps.Asked) -> str:
    answer = records.choose(studio, asked)
    if answer is not None and answer.problem is not None:
        raise InputError(answer.problem)
    return f"data?draft={answer.name}" if answer is not None and answer.job is not None else "data"


def _policy_changed(studio: Studio, asked: steps.Asked) -> str:
    with studio.project.changed(_words_of(asked)) as (_, values):
        policy_edits.edit(values, asked)
    return "policy"


def _planned(studio: Studio, asked: steps.Asked) -> str:
    answer = studio.answer(steps.trade_off(asked, studio.project.people))
    if answer.values is None:
        raise InputError(answer.problem or "The plan is still being made; wait for it and try again.")
    with pages.reading_results():
        words, policy = f"planned at ε = {answer.values['epsilon']:g}", dict(answer.values["policy"])
    with studio.project.changed(words) as (_, values):
        values.clear()
        values.update(policy)
    return "policy"


def _model_opened(studio: Studio, asked: steps.Asked) -> str:
    return f"learn?{urlencode({'do': 'model', 'model': records.open_model(studio, asked)})}"


def _released(studio: Studio, asked: steps.Asked) -> str:
    made = releases.make(studio, asked)
    if made.problem is not None:
        raise InputError(made.problem)
    return f"release?{urlencode({'made': made.name})}"


CHANGES: Mapping[str, Callable[[Studio, steps.Asked], str]] = {
    "undo": _undone,
    "allow": _allow,
    "cancel": _cancelled,
    "again": _tried_again,
    "data": _data_chosen,
    "policy": _policy_changed,
    "trade-off": _planned,
    "learn": _model_opened,
    "release": _released,
}


def _words_of(asked: steps.Asked) -> str:
    name = steps.one(asked, "name") or ", ".join(steps.several(asked, "names")) or "policy"
    return f"{name}: {steps.one(asked, 'do') or 'changed'}"


async def _events(studio: Studio, name: str) -> AsyncIterator[str]:
    """Yield which share of a job is done; at the end what loads the page anew."""
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
