"""The service worker of a page that shares its address with other surveys and with other people's pages."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.survey.browser import PHONE, Visit, running
from tests.survey.world import example

from masquerade.survey import build

POISON = """async () => {
  const headers = { 'Content-Type': 'text/html' };
  const page = () => new Response('<h1>Give me your answers</h1>', { headers });
  let number = 0;
  for (const name of await caches.keys()) {
    const cache = await caches.open(name);
    for (const request of await cache.keys()) { await cache.put(request, page()); number++; }
  }
  return number;
}"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def machine():
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """Serve two surveys at one address, an index beside one of them, and a stranger's page."""
    folder = tmp_path_factory.mktemp("host")
    for name in ("first", "second"):
        build(example(folder / f"{name} work", title=f"Survey {name}")).write(folder / name)
    (folder / "second" / "index.html").write_text("<!doctype html><h1>The clinic</h1>")
    (folder / "first" / "index.html").write_bytes((folder / "first" / "survey.html").read_bytes())
    (folder / "other.html").write_text("<!doctype html><h1>Somebody else</h1>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def visited(machine, host):
    """Give a browser that was at both surveys, and whose workers are ready."""
    context = machine[1].new_context(**PHONE)
    pages = [Visit(context, f"{host}/{name}/survey.html") for name in ("first", "second")]
    for one in pages:
        one.page.wait_for_function(
            "navigator.serviceWorker.ready.then((ready) => ready.active.state === 'activated')"
        )
    yield pages
    context.close()


def test_two_surveys_of_one_address_leave_each_other_s_pages(visited, host):
    """Before, the worker of the second deleted what the first had kept."""
    first, second = visited
    first.context.set_offline(True)
    for one, name in ((first, "first"), (second, "second")):
        one.page.goto(f"{host}/{name}/survey.html?from=mail")
        one.sees(f"Survey {name}")
    first.page.goto(f"{host}/first/")
    first.sees("Survey first")


def test_page_put_into_the_cache_by_others_is_not_shown(visited, host):
    """Every page of an address can write into its caches, and stays there after it is gone."""
    first, second = visited
    second.page.goto(f"{host}/other.html")
    assert second.page.evaluate(POISON) >= 1
    for name in ("first", "second"):
        first.page.goto(f"{host}/{name}/survey.html")
        first.sees(f"Survey {name}")


def test_index_beside_a_survey_is_not_replaced_by_it(visited, host):
    """Before, whoever had been at the survey once got it in place of the site's own page, for ever."""
    _, second = visited
    second.page.goto(f"{host}/second/")
    second.sees("The clinic")


def test_kept_page_cannot_be_framed(visited, host):
    """A host of plain files sends no headers: the worker adds those of the collector."""
    first, _ = visited
    headers = first.page.goto(f"{host}/first/survey.html").headers
    assert headers["content-security-policy"] == "frame-ancestors 'none'"
    assert headers["referrer-policy"] == "no-referrer"
