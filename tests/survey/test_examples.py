"""The examples for other survey tools: SurveyJS itself in Node, a LimeSurvey theme's form in a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from scipy.stats import binomtest
from tests.statistical.checks import ALPHA
from tests.survey.browser import PHONE, Visit, running
from tests.survey.programs import node, packages
from tests.survey.world import collecting, example

from masquerade.survey import build

EXAMPLES = Path(__file__).parents[2] / "examples"


def placed(survey, folder, name):
    """Put an example beside what a survey was built into."""
    build(survey).write(folder)
    for path in (EXAMPLES / name).iterdir():
        shutil.copy(path, folder)
    (folder / "package.json").write_text('{"type": "module"}')


def test_surveyjs_sends_reports_and_forgets_answers(tmp_path):
    program, place, times = node(), packages(), 40
    with collecting(tmp_path / "work") as (collector, url, _):
        placed(collector.survey, tmp_path / "example", "surveyjs")
        command = [
            program,
            str(Path(__file__).with_name("surveyjs.mjs")),
            str(place),
            str(tmp_path / "example"),
        ]
        done = subprocess.run([*command, url, str(times)], capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == 0, done.stderr
        stored = [codes for *_, codes in collector.store.reports()]
    told = json.loads(done.stdout)
    assert told["errors"] == ["no answer, or none of the policy's categories: pills"]
    assert told["states"] == ["saving"] * (times + 1)
    assert told["left"] == [0] * (times + 1)  # nothing stays in SurveyJS's model
    assert {len(body) for body in told["bodies"]} == {512}
    sent = [json.loads(body) for body in told["bodies"]]
    assert {" ".join(sorted(one)) for one in sent} == {"id mode policy reports token"}
    assert sorted(stored) == sorted(tuple(one["reports"]) for one in sent)
    kept = sum(one["reports"][1] == 0 for one in sent)  # “yes” with three quarters
    assert binomtest(kept, times, 0.75).pvalue > ALPHA


FORM = """<!doctype html><title>LimeSurvey</title><form id="limesurvey" method="post" action="/sent">
{fields}<button type="submit" id="ls-button-submit" name="move" value="movesubmit">Submit</button></form>
<script type="module">
  import {{ mask, masked }} from "./custom.js";
  const made = await (await fetch("mechanism.json")).json();
  const fields = {names};
  masked(document.querySelector("#limesurvey"), made, fields);
  window.maskOnce = (form) => mask(form, made, fields);
</script>"""
CHOICE = '<label><input type="radio" name="{field}" id="answer{field}{code}" value="{code}">{code}</label>'


@contextmanager
def receiving(folder):
    """Serve a folder, and take a form as LimeSurvey does."""
    bodies = []

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *values):
            super().__init__(*values, directory=str(folder))

        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>T</title><h1>Stored</h1>")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_limesurvey_form_is_masked_before_it_leaves(tmp_path):
    survey, folder, times = example(tmp_path / "work"), tmp_path / "theme", 200
    placed(survey, folder, "limesurvey")
    names = {name: f"123456X7X{i}" for i, name in enumerate(survey.policy.schema)}
    fields = "".join(
        CHOICE.format(field=field, code=code)
        for name, field in names.items()
        for code in survey.policy.schema[name].categories
    )
    (folder / "form.html").write_text(FORM.format(fields=fields, names=json.dumps(names)))
    given = {"age": "30 to 49", "pills": "yes", "told": "no", "nights": "many"}
    with receiving(folder) as (url, bodies), running() as (_, browser):
        one = Visit(browser.new_context(**PHONE), f"{url}/form.html")
        one.page.wait_for_function("Boolean(window.maskOnce)")
        for name, answer in given.items():
            one.page.locator(f'input[name="{names[name]}"][value="{answer}"]').check()
        # one form again and again: what is drawn of “yes” has the channel's shares
        kept = one.page.evaluate(
            """async ([field, times]) => { let kept = 0;
              for (let i = 0; i < times; i++) {
                const form = document.querySelector("#limesurvey").cloneNode(true);
                form.querySelectorAll("input").forEach((input) => (input.checked =
                  document.getElementById(input.id).checked));
                await maskOnce(form);
                kept += new FormData(form).get(field) === "yes";
              } return kept; }""",
            [names["pills"], times],
        )
        assert binomtest(kept, times, 0.75).pvalue > ALPHA
        assert bodies == []
        one.page.get_by_role("button", name="Submit").click()
        one.sees("Stored")
        assert one.problems == []
        one.context.close()
    [body] = [parse_qs(body) for body in bodies]
    assert body.pop("move") == ["movesubmit"]
    assert set(body) == set(names.values())
    assert all(
        len(body[names[name]]) == 1 and body[names[name]][0] in survey.policy.schema[name].categories
        for name in given
    )
    assert body[names["age"]] == ["30 to 49"]  # has no channel
