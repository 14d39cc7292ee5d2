"""`masquerade privacy --ledger`: what all releases together reveal about one person, and to whom.

Services and the studio keep a ledger. A folder of disguised files has none: its releases are read from the
metadata of the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from masquerade.cli import output
from masquerade.core.errors import FileError
from masquerade.core.util.formatting import counted, epsilon_text, gamma_text, log_gamma

if TYPE_CHECKING:
    from rich.table import Table

    from masquerade.channels.privacy_level import PrivacyLimit
    from masquerade.services.common.ledger_totals import PersonTotal
    from masquerade.services.common.release_ledger import Release

PLOT_ENDINGS = (".png", ".svg")
PROJECT = "releases"  # folder of the ledger in a project of the studio
ALL_RECIPIENTS = "all together"


def show_ledger(place: str, policy: str | None, *, json: bool, plot: str | None, overwrite: bool) -> None:
    """Print what the releases in a ledger reveal about one person, compared with the limit, and to whom.

    Parameters
    ----------
    place : str
        A ledger file, the state folder of a service, a ledger of noise, a project of the studio, or a folder
        of disguised files.
    policy : str or None
        A policy file with the limit. Without a policy, or if it states no limit, the limit is 5%:50%.
    json : bool
        Print JSON instead of text.
    plot : str or None
        File for a plot.
    overwrite : bool
        Replace the plot's file if it exists.
    """
    from masquerade.channels.policy import Policy  # noqa: PLC0415  (loads numpy)
    from masquerade.channels.privacy_level import DEFAULT_LIMIT  # noqa: PLC0415
    from masquerade.services.common.ledger_totals import person_total  # noqa: PLC0415

    output.check_plot(plot, overwrite=overwrite, endings=PLOT_ENDINGS)
    limit = (None if policy is None else Policy.load(policy).limit) or DEFAULT_LIMIT
    releases = read_releases(Path(place))
    total = person_total(releases)
    by_recipient = {
        who: person_total(release for release in releases if release.recipient == who)
        for who in total.recipients
    }
    if plot is not None:
        from masquerade.services.common.ledger_plot import ledger_plot  # noqa: PLC0415  (loads matplotlib)

        picture = output.picture_of(ledger_plot(releases, limit), plot)
        output.write_whole(plot, picture, overwrite=overwrite)
        output.say(f"the ledger is drawn in {plot}.")
    if json:
        seen = [{"recipient": who, **item.to_dict(limit)} for who, item in by_recipient.items()]
        output.emit({"person": total.to_dict(limit), "recipients": seen})
        return
    if not releases:
        output.emit("Nothing was released.\n")
        return
    parts: list[Any] = [
        *total.lines(limit),
        "",
        _recipient_table({**by_recipient, ALL_RECIPIENTS: total}, limit),
        _release_table(releases),
    ]
    output.emit(output.render(*parts))


def read_releases(place: Path) -> list[Release]:
    """Return the releases of a ledger, or of a folder of disguised files, oldest first.

    Parameters
    ----------
    place : Path
        A ledger file, the state folder of a service, a ledger of noise, a project of the studio, or a folder
        of disguised files.

    Returns
    -------
    list of Release

    Raises
    ------
    FileError
        If a ledger was changed, or there is neither a ledger nor a disguised file.
    """
    from masquerade.services.common.release_ledger import ABOUT_ITSELF, FILE, inspect  # noqa: PLC0415
    from masquerade.services.common.state import DATABASE  # noqa: PLC0415

    if place.is_dir() and not (place / FILE).exists():
        if (place / DATABASE).exists():
            if noisy := _read_noise(place):
                return noisy
        elif (place / PROJECT / FILE).exists():
            place = place / PROJECT / FILE
        else:
            return _read_folder(place)
    entries, _ = inspect(place)
    return [entry.release for entry in entries if entry.release.kind not in ABOUT_ITSELF]


def _read_noise(folder: Path) -> list[Release]:
    """Return the budget of a noise ledger as one release; an empty list if the folder is not a noise ledger.

    The ε and δ of all tables together count in full, because the curator may still spend what is left.
    """
    from masquerade.services.common.noise_ledger import NoiseLedger  # noqa: PLC0415  (loads numpy)
    from masquerade.services.common.release_ledger import Release  # noqa: PLC0415

    with NoiseLedger(folder) as ledger:
        terms, spent = ledger.terms, ledger.entries
    if terms is None:
        return []
    variables = sorted(
        {name for entry in spent for query in entry["asked"] for name in _query_variables(query)}
    )
    noise = (Fraction(terms.epsilon), Fraction(terms.delta) or None)
    what = ("noisy counts", tuple(variables), 0, None, Fraction(1), None, "noise")
    return [Release(folder.name, "noise", "analyst", *what, *noise)]


def _query_variables(query: Mapping[str, Any]) -> list[str]:
    """Return the variables that a spent query names."""
    return [*query.get("by", ()), *(name for name, _ in query.get("where", ()))]


def _read_folder(folder: Path) -> list[Release]:
    """Return the releases of the disguised files in a folder; a file whose policy is unknown has no bound."""
    from masquerade.disguising.earlier_draws import disguised_files  # noqa: PLC0415  (loads Arrow)
    from masquerade.frames.file_reader import open_batches  # noqa: PLC0415
    from masquerade.services.common.ledger_totals import ANYBODY, DISGUISED, releases_of_file  # noqa: PLC0415
    from masquerade.services.common.release_ledger import Release  # noqa: PLC0415

    releases: list[Release] = []
    for file in reversed(list(disguised_files(folder))):
        name = file.path.name
        if file.policy is None:
            unknown = (DISGUISED, ("its policy cannot be read",), 0, None, None)
            releases.append(Release(name, "disguise", ANYBODY, *unknown))
            continue
        with open_batches(file.path) as batches:
            in_policy = {*file.policy.schema, *file.policy.observed}
            others = [column for column in batches.file_names if column not in in_policy]
        releases += releases_of_file(file.policy, name, 0, memo=file.memo, digest=None, other_columns=others)
    if not releases:
        raise FileError(f"{folder}: there is no release ledger here, and no disguised file.")
    return releases


def _recipient_table(totals: dict[str, PersonTotal], limit: PrivacyLimit) -> Table:
    """Return a table with one row per recipient: releases, budget spent and budget left."""
    table = output.plain_table(
        f"What is known about one person; the limit is {limit}",
        ["seen by", "in clear"],
        ["releases", "draws", "spent, γ", "ε", "left, γ"],
    )
    for who, item in totals.items():
        left = gamma_text(item.left(limit)) if item.is_within(limit) else "beyond the limit"
        spent = gamma_text(item.bound)
        epsilon = "–" if item.gamma is None else epsilon_text(log_gamma(item.bound))
        clear = output.join_names(item.clear, 6) or "nothing"
        table.add_row(who, clear, f"{item.releases}", f"{item.draws}", spent, epsilon, left)
    return table


def _release_table(releases: list[Release]) -> Table:
    """Return a table with one row per release, and the total γ up to that release."""
    from masquerade.services.common.ledger_totals import person_total  # noqa: PLC0415

    table = output.plain_table(
        f"{counted(len(releases), 'release')}, oldest first",
        ["release", "what", "seen by", "variables"],
        ["people", "γ", "total γ"],
    )
    for number, release in enumerate(releases, start=1):
        so_far = person_total(releases[:number])
        table.add_row(
            release.session,
            release.kind,
            release.recipient,
            output.join_names(release.variables, 4),
            f"{release.rows:,}" if release.rows else "–",
            gamma_text(release.gamma),
            gamma_text(so_far.bound),
        )
    return table
