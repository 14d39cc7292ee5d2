"""Allow-list of the commands that a project may run, with their options and values.

A project may come from an untrusted person. Its commands are checked against this table before any of them
is run, shown or written into a notebook. A command, option or value that is not in the table is refused.
`reach` decides which files and databases outside the project's folder a step may use.
"""

from __future__ import annotations

import math
import re
import shlex
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

from masquerade.core.errors import InputError
from masquerade.core.util.formatting import visible
from masquerade.learn.catalogue import LEARNERS
from masquerade.learn.learner_types import Learner

MOST_WORDS, MOST_LETTERS, MOST_STEPS, MOST_SHOWN = 60, 4000, 10_000, 200
MEMO = "people.memo"
RESULT = re.compile(r"[0-9a-f]{16}")
_NUMBER = re.compile(r"\d{1,15}(\.\d{0,15})?([eE][+-]?\d{1,3})?|\.\d{1,15}([eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,12}")
_HOST = r"([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])?(:[0-9]{1,5})?"
_WORD = r"[A-Za-z0-9._~%+-]"
ADDRESS = re.compile(
    rf"postgres(ql)?://({_WORD}{{1,100}}@)?{_HOST}(/{_WORD}{{0,100}})?(\?sslmode=[a-z-]{{1,20}})?"
)
LOCAL = "postgresql://"  # used if a command names no address
_HIDDEN = frozenset({"Cc", "Cs", "Zl", "Zp"})  # line ends and control characters

Role = Literal["value", "read", "written", "address"]


class Value(NamedTuple):
    """A type of value: its name in messages, a test of the text, and how a command uses it."""

    what: str
    fits: Callable[[str], bool]
    role: Role = "value"


def _is_text(text: str) -> bool:
    return not any(unicodedata.category(sign) in _HIDDEN for sign in text)


def _is_path(text: str) -> bool:
    parts = PurePosixPath(text).parts
    if not parts or ".." in parts or text.startswith("-"):
        return False
    # /proc/self/cwd and /dev/fd/0 are another file in the process that runs the step
    changes = text.startswith("/") and parts[1:2] in {("proc",), ("dev",)} and parts[1:3] != ("dev", "shm")
    return _is_text(text) and not changes


def _choice(*names: str) -> Value:
    return Value(f"one of {', '.join(names)}", names.__contains__)


def _place(pattern: str, what: str, role: Role = "written") -> Value:
    return Value(what, re.compile(pattern).fullmatch, role)  # type: ignore[arg-type]


NUMBER = Value("a number", lambda text: bool(_NUMBER.fullmatch(text)) and math.isfinite(float(text)))
ACCEPTED = Value("a number, or inf", lambda text: text == "inf" or NUMBER.fits(text))
WHOLE = Value("a whole number", lambda text: _WHOLE.fullmatch(text) is not None)
TEXT = Value("a text in one line", _is_text)
TABLE = Value("the name of a table", lambda text: _is_text(text) and not text.startswith("-"))
FILE = Value("the path of a file without '..', not in /proc or /dev", _is_path, "read")
POSTGRES = Value(
    "an address such as postgresql://user@host:5432/database, without a password or other settings",
    lambda text: ADDRESS.fullmatch(text) is not None,
    "address",
)
POLICY = _place("policy[.]yaml", "policy.yaml", "read")
LEDGER = _place("releases/releases[.]jsonl", "the project's ledger", "read")
RELEASE_POLICY = _place("releases/[0-9]{1,9}/policy[.]yaml", "the policy of a release", "read")
SURVEY = _place("survey/survey[.]yaml", "the project's survey", "read")
SURVEY_PAGE = _place("survey/page", "the folder survey/page")
DISGUISED = _place(r"releases/[0-9]{1,9}/disguised\.(csv|parquet)", "a file in the folder releases")
PACKAGE = _place("releases/([0-9]{1,9}/)?package", "a folder in the folder releases")
COLLECTED = _place("collected/[0-9]{1,9}[.]parquet", "a file in the folder collected")
DOWNLOAD = _place(rf"downloads/{RESULT.pattern}\.(csv|tex|md)", "a file in the folder downloads")
MEMO_FILE = _place(re.escape(MEMO), MEMO)
FLAG = None  # an option without a value

Options = Mapping[str, Value | None]


class Rule(NamedTuple):
    """The arguments and options of a command, and its required options."""

    arguments: tuple[Value, ...]
    options: Options
    needed: tuple[str, ...] = ()
    fewest: int | None = None  # least number of arguments, if the last is optional


JSON: Options = {"json": FLAG}
DOWNLOADED: Options = {"out": DOWNLOAD, "overwrite": FLAG}
SOURCE: Options = {"policy": FILE, "engine": _choice("postgres"), "url": POSTGRES, **JSON}
COUNTED: Options = {**SOURCE, **DOWNLOADED, "where": TEXT}
ANSWERED: Options = {"missing": _choice("answered", "category")}
COMPARED: Options = {**COUNTED, **ANSWERED, "outcome": TEXT, "group": TEXT, "level": NUMBER}
SHARED: Options = {
    **COUNTED,
    "of": TEXT,
    "by": TEXT,
    "level": NUMBER,
    "missing": _choice("answered", "category", "at-random", "bounds"),
    "given": TEXT,
}
AVERAGED: Options = {
    **COUNTED,
    "of": TEXT,
    "by": TEXT,
    "level": NUMBER,
    "missing": _choice("answered", "at-random", "bounds"),
    "given": TEXT,
}
MODELS = ("logistic", "multinomial", "proportional-odds", "poisson", "linear")
ESTIMATED: Options = {
    **COUNTED,
    "by": TEXT,
    "level": NUMBER,
    "kind": _choice("population", "given_records"),
    "nonnegative": _choice("mle", "simplex", "clip"),
    "simultaneous": _choice("bonferroni", "max-t"),
    "misfit": FLAG,
}
PLANNED: Options = {
    "epsilon": NUMBER,
    "n": WHOLE,
    "queries": TEXT,
    "per": _choice("record", "variable"),
    "clear": TEXT,
    "curve": FLAG,
    **JSON,
}
DRAFTED: Options = {
    **dict.fromkeys(("limit", "gamma", "epsilon", "sensitive", "clear", "count", "date"), TEXT),
    "people": WHOLE,
    **JSON,
}
DISGUISE: Options = {
    "policy": RELEASE_POLICY,
    "shuffle": FLAG,
    "memo": MEMO_FILE,
    "new-memo": FLAG,
    "id": TEXT,
    "out": DISGUISED,
    "accept-gamma": ACCEPTED,
    **JSON,
}
DESCRIBED: Options = dict.fromkeys(("title", "description", "creator", "licence"), TEXT)

# options of learners on the page Learn; other options and learners are for the command line only
LEARN_OPTIONS: Options = {
    "target": TEXT,
    "k": WHOLE,
    "names": TEXT,
    "structure": FILE,
    "max_parents": WHOLE,
    "method": _choice("counts", "likelihood", "composite"),
    "min_support": NUMBER,
    "min_confidence": NUMBER,
}
# built-in learners only: a received project must not run code of other packages
SHOWN_LEARNERS: Mapping[str, Learner] = {
    name: learner
    for name, learner in LEARNERS.items()
    if learner.command and all(LEARN_OPTIONS.keys() & set(names) for names in learner.needs)
}


def _learner_rule(learner: Learner) -> Rule:
    """Return the rule of a learner: the options that the page Learn offers."""
    options = {option.name: option.flag.removeprefix("--") for option in learner.options}
    written = {options[name]: value for name, value in LEARN_OPTIONS.items() if name in options}
    needed = tuple(options[names[0]] for names in learner.needs if len(names) == 1)
    return Rule((FILE,), {**SOURCE, **written}, needed)


RULES: Mapping[tuple[str, ...], Rule] = {
    ("policy", "init"): Rule((FILE,), DRAFTED),
    ("policy", "check"): Rule((POLICY, FILE), JSON, fewest=1),
    ("anonymize", "check"): Rule((FILE,), {"quasi": TEXT, **JSON}, ("quasi",)),
    ("privacy",): Rule((POLICY,), {"n": WHOLE, "ledger": LEDGER, **JSON}),
    ("plan",): Rule((POLICY,), PLANNED, ("epsilon", "n", "queries")),
    ("estimate",): Rule((FILE,), ESTIMATED),
    ("stats", "shares"): Rule((FILE,), SHARED, ("of",)),
    ("stats", "associations"): Rule((FILE,), {**COUNTED, **ANSWERED, "of": TEXT}),
    ("stats", "independence"): Rule((FILE,), {**COUNTED, **ANSWERED, "of": TEXT, "power": NUMBER}, ("of",)),
    ("stats", "difference"): Rule((FILE,), COMPARED, ("outcome", "group")),
    ("stats", "ratio"): Rule((FILE,), COMPARED, ("outcome", "group")),
    ("stats", "odds-ratio"): Rule((FILE,), COMPARED, ("outcome", "group")),
    ("stats", "mean"): Rule((FILE,), AVERAGED, ("of",)),
    ("stats", "quantile"): Rule((FILE,), {**AVERAGED, "q": NUMBER}, ("of",)),
    ("enough",): Rule((FILE,), {**SOURCE, **DOWNLOADED, "power": NUMBER}),
    ("predict",): Rule(
        (FILE,), {"policy": FILE, "model": FILE, "test": FLAG, "positive": TEXT, **JSON}, ("model", "test")
    ),
    ("stats", "regress"): Rule(
        (FILE,), {**COUNTED, "formula": TEXT, "model": _choice(*MODELS)}, ("formula",)
    ),
    **{("learn", name): _learner_rule(learner) for name, learner in SHOWN_LEARNERS.items()},
    ("show",): Rule((FILE,), {"table": FLAG, "query": TEXT, **JSON, **DOWNLOADED}),
    ("audit", "policy"): Rule((POLICY,), {"no-page": FLAG, **JSON}),
    ("audit", "release"): Rule((FILE,), {"policy": FILE, **JSON}, ("policy",)),
    ("disguise",): Rule((FILE,), DISGUISE, ("policy", "out")),
    ("release", "make"): Rule(
        (FILE,), {"policy": FILE, "out": PACKAGE, **DESCRIBED, **JSON}, ("policy", "out")
    ),
    ("party", "ledger"): Rule((LEDGER,), JSON),
    ("survey", "build"): Rule((SURVEY,), {"out": SURVEY_PAGE, "overwrite": FLAG, **JSON}, ("out",)),
    ("survey", "export"): Rule((FILE,), {"out": COLLECTED, **JSON}, ("out",)),
}
REPEATED = frozenset({"where", "clear"})
# commands whose results are stored; commands that only describe clear data are not among them
KEPT = frozenset(
    {"estimate", "stats", "enough", "learn", "predict", "plan", "audit", "show", "disguise", "release"}
)


@dataclass(frozen=True, slots=True)
class StudioStep:
    """An allowed command with its values, and the files and database that it uses."""

    command: tuple[str, ...]
    arguments: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    database: str | None

    def one(self, name: str) -> str | None:
        """Return the value of an option, None if it is not given."""
        return self.options[name][0] if name in self.options else None

    @property
    def draws(self) -> bool:
        """Return True if the result is random: a release, or attacks on a release."""
        return self.command[0] in {"disguise", "release"} or self.command == ("audit", "release")


class KeptStep(NamedTuple):
    """A step whose result is stored: its command, the name of the result, and its notes."""

    step: StudioStep
    command: list[str]
    result: str
    said: list[str]


def read_step(argv: Any) -> StudioStep:
    """Parse a command; raise InputError if it is not in the allow-list."""
    words = _checked_words(argv)
    name = next((tuple(words[:n]) for n in (2, 1) if tuple(words[:n]) in RULES), None)
    if name is None:
        raise InputError(f"`{_quote(words[:2])}` is not a command of the studio.")
    rule, title = RULES[name], " ".join(name)
    arguments, options = _split(words[len(name) :], rule, title)
    values = list(rule.arguments)
    if "engine" in options and len(values) == 1:  # the argument is then a table name
        values = [TABLE]
    if not (len(values) if rule.fewest is None else rule.fewest) <= len(arguments) <= len(values):
        raise InputError(f"`{title}` takes {len(values)} argument{'' if len(values) == 1 else 's'}.")
    if "url" in options and "engine" not in options:
        raise InputError("--url goes with --engine.")
    missing = [option for option in rule.needed if option not in options]
    if missing:
        raise InputError(f"`{title}` needs --{missing[0]}.")
    used: dict[Role, list[str]] = {"read": [], "written": [], "value": [], "address": []}
    for value, text in zip(values, arguments, strict=False):
        _check(value, text, f"`{title}` takes")
        used[value.role].append(text)
    for option, texts in options.items():
        kind = rule.options[option]
        if kind is None:
            continue
        for text in texts:
            _check(kind, text, f"--{option} of `{title}` takes")
            used[kind.role].append(text)
    database = (used["address"] or [LOCAL])[0] if "engine" in options else None
    return StudioStep(name, tuple(arguments), options, tuple(used["read"]), tuple(used["written"]), database)


def read_steps(values: Any) -> list[KeptStep]:
    """Parse the steps of a project; raise InputError with the number of the first that is not allowed."""
    if not isinstance(values, list) or len(values) > MOST_STEPS:
        raise InputError(f"steps.json: is not a list of at most {MOST_STEPS:,} steps.")
    return [_read_kept(number, value) for number, value in enumerate(values, start=1)]


def _read_kept(number: int, value: Any) -> KeptStep:
    if not isinstance(value, dict) or set(value) != {"command", "result", "said"}:
        raise InputError(f"Step {number} of steps.json must have command, result and said, and nothing else.")
    argv, result, notes = value["command"], value["result"], value["said"]
    try:
        step = read_step(argv)
    except InputError as error:
        raise InputError(f"Step {number} of steps.json, {describe(argv)}, is refused: {error}") from None
    reasons = (
        (step.command[0] not in KEPT, f"the result of `{' '.join(step.command)}` is never stored."),
        (step.writes and not step.draws, "a step does not write files."),
        (
            not isinstance(result, str) or not RESULT.fullmatch(result),
            "the name of its result is not 16 hexadecimal digits.",
        ),
        (
            not isinstance(notes, list) or not all(isinstance(line, str) for line in notes),
            "its notes are not a list of texts.",
        ),
    )
    for wrong, reason in reasons:
        if wrong:
            raise InputError(f"Step {number} of steps.json, {describe(argv)}, is refused: {reason}")
    return KeptStep(step, list(argv), result, list(notes))


def describe(argv: Any) -> str:
    """Format any value as a command for a message."""
    words = argv if isinstance(argv, (list, tuple)) else [argv]
    return f"`{_quote(words[:MOST_WORDS])}`"


def _quote(words: Sequence[Any]) -> str:
    text = visible(" ".join(shlex.quote(str(word)[:MOST_SHOWN]) for word in words)).replace("`", "'")
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} …"


def _checked_words(argv: Any) -> list[str]:
    if not isinstance(argv, (list, tuple)) or not 0 < len(argv) <= MOST_WORDS:
        raise InputError(f"a command is a list of at most {MOST_WORDS} words.")
    if not all(isinstance(word, str) and len(word) <= MOST_LETTERS for word in argv):
        raise InputError(f"the words of a command are texts of at most {MOST_LETTERS:,} characters.")
    return list(argv)


def _split(words: Sequence[str], rule: Rule, title: str) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """Split the words of a command into arguments and options, as the command line does."""
    arguments: list[str] = []
    options: dict[str, tuple[str, ...]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            arguments.append(word)
            continue
        name = word[2:]
        if not word.startswith("--") or name not in rule.options:
            raise InputError(f"{_quote([word])} is not an option of `{title}` in the studio.")
        if name in options and name not in REPEATED:
            raise InputError(f"--{name} is given twice.")
        if rule.options[name] is None:
            options[name] = ()
        elif rest:
            options[name] = (*options.get(name, ()), rest.pop(0))
        else:
            raise InputError(f"--{name} of `{title}` has no value.")
    return arguments, options


def _check(value: Value, text: str, who: str) -> None:
    if text.startswith("-") or not value.fits(text):
        got = "" if value.role == "address" else f" Got {_quote([text])} instead."  # it may hold a password
        raise InputError(f"{who} {value.what}.{got}")
