"""Published terms: one file, the same for all people, from which a device makes its report.

The file states who asks and why, the address of the collector, the questions with their answers, and
the mechanism that draws reports. It is parsed strictly, without NumPy: a file with anything else in it is
rejected.
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
from masquerade.core.record_gamma import FollowUp, deciding_variables, describe_gamma
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
CONSENT: Final = re.compile("[0-9a-f]{32}")
AGREED: Final = "agreed"  # only if people must agree to a text: its digest
QUESTION_KEYS: Final = {"name", "text", "labels", "shown", "not_asked"}
FORMS: Final = {
    ADDRESS: "an address such as https://gather.example.org, or one on this machine",
    DIGEST: "64 hexadecimal digits",
    CONSENT: "32 hexadecimal digits",
}
_BAD: Final = "is not a file of terms that this version can read: {}."


@dataclass(frozen=True)
class TermsQuestion:
    """A question: variable, text, labels of its answers, and the condition under which it is asked.

    If no answer is given, the first of `missing` is sent, through the channel like any answer.
    """

    name: str
    text: str
    labels: tuple[bool | int | str, ...]
    shown: Mapping[str, tuple[int, ...]]
    not_asked: int | None
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class DeviceTerms:
    """Published terms under which devices report; `load` them from the published file.

    Examples
    --------
    >>> print(mq.people.DeviceTerms.load("terms.json").summary())  # doctest: +SKIP
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
    questions: tuple[TermsQuestion, ...]
    mechanism: Mechanism
    size: int
    agreed: str | None
    digest: str

    @classmethod
    def load(cls, path: str | Path) -> DeviceTerms:
        """Load terms from a file; raise FileError if any part of it is not valid."""
        text = read_text(Path(path), most=MOST_TERMS)
        try:
            return cls.parse(text)
        except InputError as error:
            raise FileError(f"{path}: {error}") from None

    @classmethod
    def parse(cls, text: str) -> DeviceTerms:
        """Parse terms from the text of their file; raise InputError if any part is not valid."""
        values = parse_json(text, most=MOST_TERMS)
        if not isinstance(values, dict) or values.get("masquerade_gather") != FORMAT:
            raise InputError(_BAD.format("it does not contain 'masquerade_gather': 1"))
        if set(values) - {AGREED} != KEYS:
            other = sorted((set(values) - {AGREED}) ^ KEYS)
            raise InputError(_BAD.format(f"keys are missing or unknown: {', '.join(other[:5])}"))
        questions = _questions(values["questions"])
        sizes = {question.name: len(question.labels) for question in questions}
        issuer = _text(values, "issuer", absent=True, form=DIGEST)
        size, report_sizes = values["size"], values["report_sizes"]
        if type(size) is not int or not 0 < size <= MOST_BODY:
            raise InputError(_BAD.format(f"'size' must be from 1 to {MOST_BODY:,}"))
        if not isinstance(report_sizes, list) or not all(type(n) is int and n >= 1 for n in report_sizes):
            raise InputError(_BAD.format("'report_sizes' must be a list of integers"))
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
            agreed=_text(values, AGREED, form=CONSENT) if AGREED in values else None,
            digest=sha256(text.encode()).hexdigest(),
        )

    @cached_property
    def gammas(self) -> dict[str, Fraction | float]:
        """γ of the report about each variable, computed on this device."""
        return self.mechanism.gammas()

    @cached_property
    def record_gamma(self) -> Fraction | float:
        """γ of the whole report, given the variables in clear, computed on this device."""
        follow_ups = [
            FollowUp(one.name, one.shown, one.not_asked)
            for one in self.questions
            if one.not_asked is not None
        ]
        return self.mechanism.record_gamma(follow_ups)

    @cached_property
    def clear_variables(self) -> tuple[str, ...]:
        """The variables that are sent in clear, and those that decide who is asked one of these."""
        clear = self.mechanism.clear_variables()
        conditions = {one.name: list(one.shown) for one in self.questions}
        parents = [parent for name in clear for parent in deciding_variables(name, conditions)]
        return tuple(dict.fromkeys((*clear, *parents)))

    def disclosure(self) -> str:
        """Describe in plain words what the report reveals: first the variables in clear, then the bound."""
        clear = f"Sent in clear: {', '.join(self.clear_variables)}. " if self.clear_variables else ""
        if len(self.clear_variables) == len(self.questions):
            return clear.strip()
        return f"{clear}{describe_gamma(self.record_gamma)} (γ = {gamma_text(self.record_gamma)} per person)"

    def codes(self, row: Mapping[str, object]) -> dict[str, int]:
        """Encode a row of labels as codes.

        A question that is skipped because of earlier answers gets the code for "not asked".

        Raises
        ------
        InputError
            If labels are missing or unknown. The message lists all problems, and contains no value.
        """
        names = [question.name for question in self.questions]
        problems = [
            f"{name!r} is not a known variable.{did_you_mean(name, names)}"
            for name in row
            if name not in names
        ]
        codes: dict[str, int] = {}
        for one in self.questions:
            unmet = any(name in codes and codes[name] not in shown for name, shown in one.shown.items())
            if one.not_asked is not None and unmet:
                codes[one.name] = one.not_asked
                continue
            if one.missing and row.get(one.name) is None:
                codes[one.name] = one.missing[0]
                continue
            if one.name not in row:
                problems.append(f"{one.name!r} is not answered.")
                continue
            code = _code(one.labels, row[one.name])
            if code is None:
                problems.append(f"{one.name!r} must be one of: {', '.join(map(str, one.labels))}.")
            else:
                codes[one.name] = code
        if problems:
            raise InputError("The row does not match the terms, and nothing was drawn: " + " ".join(problems))
        return codes

    def summary(self) -> str:
        """Describe, for the device's owner, who asks, what leaves the device, and how much it can reveal."""
        lines = [self.title, "", self.consent.strip(), "", f"Contact: {self.contact}"]
        lines.append(
            f"Reports are sent to {self.collector}" + (" with an invitation." if self.issuer else ".")
        )
        if self.closes is not None:
            lines.append(f"They can be withdrawn until {self.closes}.")
        if self.delete_after is not None:
            lines.append(f"All reports are deleted after {self.delete_after}.")
        lines += ["", self.disclosure(), "", "What leaves this device, drawn at random here:"]
        for one in self.questions:
            gamma = self.gammas[one.name]
            if gamma == float("inf"):
                bound = "a reader of the report may be certain of the answer"
            else:
                sure = gamma / (1 + gamma)
                bound = f"γ = {gamma_text(gamma)}: a 50:50 guess becomes at most {float(sure):.1%} sure"
            lines.append(f"- {one.name} ({', '.join(map(str, one.labels))}): {bound}. {one.text}")
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
    """Return the text of a key; empty if the value is null and the key is optional."""
    value = values[name]
    if value is None and absent:
        return ""
    if not isinstance(value, str) or not value or (form is not None and not form.fullmatch(value)):
        must = "text" if form is None else FORMS[form]
        raise InputError(_BAD.format(f"{name!r} must be {must}"))
    return value


def _questions(values: Any) -> tuple[TermsQuestion, ...]:
    if not isinstance(values, list) or not values:
        raise InputError(_BAD.format("'questions' must be a list"))
    questions: dict[str, TermsQuestion] = {}
    for entry in values:
        if not isinstance(entry, dict) or set(entry) - {"missing"} != QUESTION_KEYS:
            raise InputError(
                _BAD.format("a question must have the keys name, text, labels, shown and not_asked")
            )
        name = _text(entry, "name")
        if name in questions:
            raise InputError(_BAD.format(f"{name!r} is asked twice"))
        labels = _labels(entry["labels"], name)
        sizes = {earlier: len(question.labels) for earlier, question in questions.items()}
        shown, not_asked = _condition(entry, len(labels), sizes)
        missing = entry.get("missing", [])
        if not isinstance(missing, list) or not all(_is_code(code, len(labels)) for code in missing):
            raise InputError(_BAD.format(f"the missing answers of {name!r} must be codes of its labels"))
        text = _text(entry, "text")
        questions[name] = TermsQuestion(name, text, labels, shown, not_asked, tuple(missing))
    return tuple(questions.values())


def _labels(values: Any, name: str) -> tuple[bool | int | str, ...]:
    if not isinstance(values, list) or not all(type(label) in (bool, int, str) for label in values):
        raise InputError(_BAD.format(f"the labels of {name!r} must be texts or integers"))
    if not values or len({(type(label), label) for label in values}) < len(values):
        raise InputError(_BAD.format(f"{name!r} must have at least one label, and each label only once"))
    return tuple(values)


def _condition(
    entry: Mapping[str, Any], size: int, before: Mapping[str, int]
) -> tuple[dict[str, tuple[int, ...]], int | None]:
    """Return the earlier answers under which a question is asked, and the code that is sent otherwise."""
    shown, not_asked = entry["shown"], entry["not_asked"]
    if not isinstance(shown, dict) or (not _is_code(not_asked, size) if shown else not_asked is not None):
        raise InputError(_BAD.format(f"'not_asked' of {entry['name']!r} does not match its condition"))
    for other, codes in shown.items():
        answers = before.get(other)
        if answers is None or not isinstance(codes, list) or not all(_is_code(it, answers) for it in codes):
            raise InputError(_BAD.format(f"{entry['name']!r} depends on an answer that does not precede it"))
    return {other: tuple(codes) for other, codes in shown.items()}, not_asked


def _is_code(value: object, size: int) -> bool:
    return type(value) is int and 0 <= value < size
