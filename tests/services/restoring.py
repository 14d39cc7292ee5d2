"""What the operator of any restored service does: look, and agree in words that the ledger keeps."""

from __future__ import annotations

import typer
from typer.testing import CliRunner

from masquerade.cli.app import Commands
from masquerade.cli.collect import collect_app
from masquerade.cli.nodes import party_app
from masquerade.services.common.release_ledger import AGREED, RESTORED, inspect

app = typer.Typer(cls=Commands)
app.add_typer(collect_app, name="collect")
app.add_typer(party_app, name="party")


def agreed(server, file, settings):
    """Agree to the restore of a service as its operator, by the command."""

    def said(*words):
        return CliRunner().invoke(app, [*server.RESTORED.split()[1:], "--node", str(file), *words])

    asked = said()
    assert f"This {server.CALLED}'s state was restored from a backup" in asked.stdout, asked.output
    assert f'{server.RESTORED} --node {file} --agree "{server.AGREEMENT}"' in asked.stdout
    wrong = said("--agree", "yes")
    assert wrong.exit_code
    assert server.AGREEMENT in wrong.output.replace("\n", " ") or server.AGREEMENT in str(wrong.exception)
    assert said("--agree", server.AGREEMENT).stdout == "Agreed.\n"
    kept = [entry.release for entry in inspect(settings.state)[0]]
    assert [release.kind for release in kept[-2:]] == [RESTORED, AGREED]
    assert kept[-1].protocol == server.AGREEMENT
    assert "the state is the latest" in said().stdout
