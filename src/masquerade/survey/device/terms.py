"""The terms that an organisation publishes: one file, the same for everybody, that a device takes part by.

It says who asks and what for, where reports go, what each question may be answered with, and the mechanism
that reports are drawn by. Read strictly and without NumPy: a file that says anything else is refused whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from masquerade.core.errors import FileError, InputError, did_you_mean
from masquerade.core.util.formatting import gamma_text
from masquerade.core.util.json_text import parse_json, read_text
from masquerade.survey.device.device_mechanism import Mechanism

FORMAT: Final = 1
KEYS: Final = frozenset({
    "masquerade_gather", "title", "contact", "consent", "closes", "delete_after", "collector", "authority",
    "issuer", "policy", "questions", "report_sizes", "mechanism", "size",
})  # fmt: skip
MOST_TERMS: Final = 1 << 22
MOST_BODY: Final = 1 << 16
ADDRESS: Final = re.compile(
    r"https://[A-Za-z0-9.-]+(?::\d{1,5})?|http://(?:localhost|127\.0\.0\.1)(?::\d{1,5})?"
)
DIGEST: Final = re.compile("[0-9a-f]{64}")
FORMS: Final = {
    ADDRESS: "an address such as https://gather.example.org, or of this machine",
    DIGEST: "64 hexadecimal digits",
}
_BAD: Final = "is no file of terms that this version reads: {}."


@dataclass(frozen=True)
class Question:
    """A variable: its words, what it may be answered with, and of whom it is not asked."""

    name: str
    text: str
    labels: tuple[bool | int | str, ...]
    shown: Mapping[str, tuple[int, ...]]
    not_asked: int | None


@dataclass(frozen=True)
class Terms:
    """What a device needs to know to take part; `load` it from the file that was published.

    Example: `docs/howto/gather-from-devices.md`.
    """

    title: str
    contact: str
    consent: str
    closes: str | None
    delete_after: str | None
    collector: str
    authority: str | None
    issuer: bytes | None
    policy: str
    questions: tuple[Question, ...]
    mechanism: Mechanism
    size: int
    digest: str

    @classmethod
    def load(cls, path: str | Path) -> Terms:
        """Return the terms in a file, after checking all of it."""
        text = read_text(Path(path), most=MOST_TERMS)
        try:
            return cls.parse(text)
        except InputError as error:
            raise FileError(f"{path}: {error}") from None

    @classmethod
    def parse(cls, text: str) -> Terms:
        """Return the terms that a text holds."""
        values = parse_json(text, most=MOST_TERMS)
        if not isinstance(values, dict) or values.get("masquerade_gather") != FORMAT:
            raise InputError(_BAD.format("it does not begin with 'masquerade_gather': 1"))
        if set(values) != KEYS:
            other = sorted(set(values) ^ KEYS)
            raise InputError(_BAD.format(f"more or less is said than has to be: {', '.join(other[:5])}"))
        questions = _questions(values["questions"])
        sizes = {question.name: len(question.labels) for question in questions}
        issuer = _text(values, "issuer", absent=True, form=DIGEST)
        size, report_sizes = values["size"], values["report_sizes"]
        if type(size) is not int or not 0 < size <= MOST_BODY:
            raise InputError(_BAD.format(f"'size' must be from 1 to {MOST_BODY:,}"))
        if not isinstance(report_sizes, list) or not all(type(n) is int and n >= 1 for n in report_sizes):
            raise InputError(_BAD.format("'report_sizes' must be whole numbers"))
        return cls(
            title=_text(values, "title"),
            contact=_text(values, "contact"),
            consent=_text(values, "consent"),
            closes=_text(values, "closes", absent=True) or None,
            delete_after=_text(values, "delete_after", absent=True) or None,
            collector=_text(values, "collector", form=ADDRESS),
            authority=_text(values, "authority", absent=True) or None,
            issuer=bytes.fromhex(issuer) or None,
            policy=_text(values, "policy", form=DIGEST),
            questions=questions,
            mechanism=Mechanism.of(values["mechanism"], sizes, report_sizes),
            size=size,
            digest=sha256(text.encode()).hexdigest(),
        )

    @cached_property
    def gammas(self) -> dict[str, Fraction | float]:
        """By variable how far a report shifts the odds about it at most, worked out on this device."""
        return self.mechanism.gammas()

    def codes(self, row: Mapping[str, object]) -> dict[str, int]:
        """Return a row of labels as codes; an error says all that is wrong with it, and shows no value.

        Whoever is not asked a question, by answers before it, has the answer that stands for that.
        """
        names = [question.name for question in self.questions]
        problems = [
            f"there is no variable {name!r}.{did_you_mean(name, names)}" for name in row if name not in names
        ]
        codes: dict[str, int] = {}
        for one in self.questions:
            unmet = any(name in codes and codes[name] not in shown for name, shown in one.shown.items())
            if one.not_asked is not None and unmet:
                codes[one.name] = one.not_asked
                continue
            if one.name not in row:
                problems.append(f"{one.name!r} is not answered.")
                continue
            code = _code(one.labels, row[one.name])
            if code is None:
                problems.append(
                    f"{one.name!r} is not answered with one of: {', '.join(map(str, one.labels))}."
                )
            else:
                codes[one.name] = code
        if problems:
            raise InputError("The row cannot be reported, and nothing was drawn: " + " ".join(problems))
        return codes

    def summary(self) -> str:
        """Return who asks, what leaves the device, and what it gives away at most."""
        lines = [self.title, "", self.consent.strip(), "", f"Asked by: {self.contact}"]
        lines.append(f"Reports go to {self.collector}" + (" with an invitation." if self.issuer else "."))
        if self.closes is not None:
            lines.append(f"They can be withdrawn until {self.closes}.")
        if self.delete_after is not None:
            lines.append(f"All are deleted after {self.delete_after}.")
        lines += ["", "What leaves this device, drawn here at random:"]
        for one in self.questions:
            gamma = self.gammas[one.name]
            if gamma == float("inf"):
                told = "sent so that somebody may be certain of the answer"
            else:
                sure = gamma / (1 + gamma)
                told = f"γ = {gamma_text(gamma)}: who was in two minds is at most {float(sure):.1%} sure"
            lines.append(f"- {one.name} ({', '.join(map(str, one.labels))}): {told}. {one.text}")
        lines += ["", f"Policy {self.policy}", f"sha256 of these terms {self.digest}"]
        return "\n".join(lines) + "\n"


def _code(labels: tuple[bool | int | str, ...], value: object) -> int | None:
    for code, label in enumerate(labels):
        if type(label) is type(value) and label == value:
            return code
    return None


def _text(
    values: Mapping[str, Any], name: str, *, absent: bool = False, form: re.Pattern[str] | None = None
) -> str:
    """Return a text; where it may be absent, an empty one for none."""
    value = values[name]
    if value is None and absent:
        return ""
    if not isinstance(value, str) or not value or (form is not None and not form.fullmatch(value)):
        must = "text" if form is None else FORMS[form]
        raise InputError(_BAD.format(f"{name!r} must be {must}"))
    return value


def _questions(values: Any) -> tuple[Question, ...]:
    if not isinstance(values, list) or not values:
        raise InputError(_BAD.format("'questions' must be a list"))
    found: dict[str, Question] = {}
    for entry in values:
        if not isinstance(entry, dict) or set(entry) != {"name", "text", "labels", "shown", "not_asked"}:
            raise InputError(
                _BAD.format("a question has a name, a text, labels, and of whom it is not asked")
            )
        name = _text(entry, "name")
        if name in found:
            raise InputError(_BAD.format(f"{name!r} is asked twice"))
        labels = _labels(entry["labels"], name)
        shown, not_asked = _condition(entry, len(labels), {one: len(found[one].labels) for one in found})
        found[name] = Question(name, _text(entry, "text"), labels, shown, not_asked)
    return tuple(found.values())


def _labels(values: Any, name: str) -> tuple[bool | int | str, ...]:
    if not isinstance(values, list) or not all(type(label) in (bool, int, str) for label in values):
        raise InputError(_BAD.format(f"the labels of {name!r} must be texts or whole numbers"))
    if not values or len({(type(label), label) for label in values}) < len(values):
        raise InputError(_BAD.format(f"a label of {name!r} stands twice, or there is none"))
    return tuple(values)


def _condition(
    entry: Mapping[str, Any], size: int, before: Mapping[str, int]
) -> tuple[dict[str, tuple[int, ...]], int | None]:
    """Return which answers to questions before one admit it, and what is sent where they do not."""
    shown, not_asked = entry["shown"], entry["not_asked"]
    if not isinstance(shown, dict) or (not _is_code(not_asked, size) if shown else not_asked is not None):
        raise InputError(_BAD.format(f"{entry['name']!r} must say what is sent for whom it is not asked"))
    for other, codes in shown.items():
        known = before.get(other)
        if known is None or not isinstance(codes, list) or not all(_is_code(code, known) for code in codes):
            raise InputError(_BAD.format(f"{entry['name']!r} depends on an answer that is not before it"))
    return {other: tuple(codes) for other, codes in shown.items()}, not_asked


def _is_code(value: object, size: int) -> bool:
    return type(value) is int and 0 <= value < size
