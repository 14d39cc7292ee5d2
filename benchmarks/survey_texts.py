"""Readability of the texts that survey pages ship with, by language.

    python -m benchmarks.survey_texts [--before FOLDER]

prints sentence length and a readability index of each language, and writes
benchmarks/results/survey_texts.json: for the texts of the page, the letter and the sheets ("page"), of the
team's page and the report ("team"), of the dossier, and of the survey that `masquerade survey init` writes
("example"). `--before` names a folder with other versions of the word files
(`git show COMMIT:src/masquerade/survey/page/words/de.json`) and of the survey (example.yaml), which are
measured in the same way; without it the kept figures of the earlier texts stay.

Formulas, with w words, s sentences and y syllables: Flesch (English) 206.835 − 1.015 w/s − 84.6 y/w;
Amstad (German) 180 − w/s − 58.5 y/w; Kandel & Moles (French) 207 − 1.015 w/s − 73.6 y/w; Szigriszt (Spanish)
206.835 − w/s − 62.3 y/w; 60 to 70 is plain text for ages 13 to 15, more is easier. LIX = w/s + 100 · (words
of more than six letters)/w; below 40 is easy. Syllables are groups of vowels, and a colon ends a sentence:
the figures compare texts and do not grade them.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import yaml

from masquerade.survey.collector.example import SURVEY

WORDS = Path(__file__).parents[1] / "src" / "masquerade" / "survey" / "page" / "words"
KEPT = Path(__file__).parent / "results" / "survey_texts.json"
LANGUAGES = ("de", "en", "es", "fr")
VOWELS = {
    "de": r"ei|ai|au|eu|äu|ie|[aeiouäöüy]",
    "en": r"[aeiouy]+",
    "es": r"[iuü]?[aeoáéó][iuüy]?|[iuíúü]",
    "fr": r"eau|oeu|œu|[aeiouyàâäéèêëïîôöùûüœ]+",
}
INDEX = {
    "de": (180.0, 1.0, 58.5),
    "en": (206.835, 1.015, 84.6),
    "es": (206.835, 1.0, 62.3),
    "fr": (207.0, 1.015, 73.6),
}
FILLED = {"{b}": "5", "{p}": "50", "{k}": "19", "{m}": "30", "{n}": "3", "{i}": "2", "{day}": "Monday"}
PARTS = {"page": "", "team": "team-", "dossier": "dossier-"}
PLACEHOLDERS = ("Write here", "Schreiben Sie hier")  # nobody reads them: `masquerade survey build` warns
LEAST_WORDS = 4  # shorter texts are labels
OTHER = ("date_months", "date_style", "noscript", "check")  # not for reading, or for those who check the page


def sentences_of(words: dict[str, str]) -> list[list[str]]:
    """Return the sentences of all texts that people read, as lists of words."""
    found = []
    for key, template in words.items():
        if key.startswith(OTHER):
            continue
        text = re.sub(r"\{\w+\}", lambda mark: FILLED.get(mark[0], "x"), template)
        if len(text.split()) < LEAST_WORDS:
            continue
        for part in re.split(r"(?<=[.!?…:;])\s+", text):
            letters = re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", part)
            if letters:
                found.append(letters)
    return found


def syllables(word: str, language: str) -> int:
    """Return the number of syllables, by groups of vowels."""
    plain = word.lower()
    number = len(re.findall(VOWELS[language], plain))
    if language == "en" and plain.endswith("e") and not plain.endswith("le"):
        number -= 1
    if language == "fr" and re.search(r"[^aeiouyéèê](?:e|es|ent)$", plain):
        number -= 1
    return max(1, number)


def measure(words: dict[str, str], language: str) -> dict[str, Any]:
    """Return the figures of one language's texts."""
    sentences = sentences_of(words)
    flat = [word for sentence in sentences for word in sentence]
    per_sentence = len(flat) / len(sentences)
    per_word = sum(syllables(word, language) for word in flat) / len(flat)
    start, by_length, by_syllables = INDEX[language]
    return {
        "sentences": len(sentences),
        "words_per_sentence": round(per_sentence, 1),
        "sentences_above_20_words": sum(len(sentence) > 20 for sentence in sentences),
        "longest_sentence": max(map(len, sentences)),
        "index": round(start - by_length * per_sentence - by_syllables * per_word, 1),
        "lix": round(per_sentence + 100 * sum(len(word) > 6 for word in flat) / len(flat), 1),
    }


def measure_folder(folder: Path) -> dict[str, Any]:
    """Return the figures of all parts and languages of which a folder has word files."""
    found: dict[str, Any] = {}
    for part, prefix in PARTS.items():
        for language in LANGUAGES:
            place = folder / f"{prefix}{language}.json"
            if place.exists():
                words = json.loads(place.read_text(encoding="utf-8"))
                found.setdefault(part, {})[language] = measure(words, language)
    return found


def measure_survey(text: str) -> dict[str, Any]:
    """Return the figures of the texts of a survey file, by language."""
    values = yaml.safe_load(text)
    by_language: dict[str, dict[str, str]] = {language: {} for language in values["languages"]}
    waiting = [("", values)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{place}.{key}", inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{place}.{i}", inner) for i, inner in enumerate(value)]
        elif place.rpartition(".")[2] in by_language and not str(value).startswith(PLACEHOLDERS):
            by_language[place.rpartition(".")[2]][place] = value
    return {language: measure(words, language) for language, words in by_language.items()}


def measure_all() -> dict[str, Any]:
    """Return the figures of all texts that are shipped."""
    example = SURVEY.format(address="http://127.0.0.1:8765", issuer="")
    return measure_folder(WORDS) | {"example": measure_survey(example)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path)
    chosen = parser.parse_args()
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    before = kept.get("before")
    if chosen.before:
        example = (chosen.before / "example.yaml").read_text(encoding="utf-8")
        before = measure_folder(chosen.before) | {"example": measure_survey(example)}
    found = {"before": before, "after": measure_all()}
    KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name, parts in found.items():
        for part, figures in (parts or {}).items():
            for language, one in figures.items():
                print(name, part, language, one)


if __name__ == "__main__":
    main()
