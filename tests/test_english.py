"""The word list of CONTRIBUTING.md, applied to every sentence that a person reads."""

import re

import pytest

from prose import ROOT, Text, texts

UNITS = (
    r"(?:nats?|bytes?|numbers?|values?|entries|entry|ms|seconds?|tries|times|lines?|rows?|runs?)"
)
EACH = r"(?:weight|epoch|step|row|loss|patch|fold|second|machine|run|draw|scale|column|trial)"
# What a sentence must not say, and an example of it that the pattern must find.
WORDS = {
    rf"\b{UNITS} an? {EACH}\b(?! of\b)": "one value a weight",
    r"\bat most [\d.]+ an? (?:weight|row)\b": "at most 1 a weight",
    r"\btold\b(?!:|,? anything)": "where the others are told",
    r"\btells\b": "the log tells it",
    r"\b(?:not|cannot|files) tell\b(?! \w+ from\b)": "the paper does not tell",
    r"\bof (?:yours|ours)\b(?! and)": "a network of yours",
    r"\ban? [\w-]+(?: [\w-]+)? of (?:its|their|your|his) own\b": "a posterior of its own",
    r"\b(?:goes|went|gone|go) on\b(?! a\b)": "the search goes on",
    r"\b(?:anew|afresh)\b": "trains anew",
    r"\bin the place of\b": "in the place of JSG",
    r"\bat hand\b": "as the data at hand allow",
    r"\buntil (?:it|the \w+ \w+) stands\b": "refined until it stands",
    r"\bstands? to (?:the|its|theirs)\b": "how it stands to the paper",
    r"\bmend(?:s|ed|ing)?\b": "that is mended",
    r"\bparted\b(?!\(|,| \()": "parted by commas",
    r"\bparts the (?:rows|fields)\b": "what parts the fields",
    r"\bis no (?:file|input|number|date|product|network|sum|YAML|text|divergence|promise)\b": (
        "it is no file"
    ),
    r"\bto begin with\b": "a scale to begin with",
    r"\bnobody foresaw\b": "what nobody foresaw",
    r"\b(?:go|goes) round\b": "it goes round the table",
    r"\bknows? least\b": "the row it knows least of",
    r"\bworth having\b": "runs that are worth having",
    r"\b(?:laid|lays?) out\b": "nodes laid out",
    r"\beqs?\. [a-z]": "eq. js_waddmod",
}
QUOTES_THE_LIST = "CONTRIBUTING.md"


def found(pattern: str, read: list[Text]) -> list[str]:
    told = re.compile(pattern, re.IGNORECASE)
    return [
        f"{text.place}: …{text.words[max(0, hit.start() - 60) : hit.end() + 40]}…"
        for text in read
        if not excepted(text)
        for hit in told.finditer(text.words)
    ]


def excepted(text: Text) -> bool:
    return QUOTES_THE_LIST in text.place and "| write | not |" in text.words


@pytest.fixture(scope="module")
def everything() -> list[Text]:
    return texts()


def test_pages_docstrings_and_messages_are_read(everything):
    places = {text.place.partition(":")[0] for text in everything}
    assert {"README.md", "docs/index.md", "src/bayesdiv/app/options.py"} <= places
    assert any("alpha must lie in" in text.words for text in everything)
    assert len(everything) > 3000


@pytest.mark.parametrize("pattern", WORDS, ids=WORDS.get)
def test_no_sentence_says_it(pattern, everything):
    assert found(pattern, everything) == []


@pytest.mark.parametrize("pattern", WORDS, ids=WORDS.get)
def test_a_pattern_finds_its_example(pattern):
    assert found(pattern, [Text("page.md:1", WORDS[pattern])])


def test_contributing_lists_what_the_patterns_forbid():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("| write | not |")[2].partition("\n\n")[0]
    phrases = [phrase for row in table.splitlines() for phrase in re.findall(r"\*([^*]+)\*", row)]
    assert len(phrases) > 20
    for phrase in phrases:
        row = next(line for line in table.splitlines() if f"*{phrase}*" in line)
        said = row.rpartition(" | ")[2].strip("| ").replace("*", "")
        assert any(re.search(p, said, re.IGNORECASE) for p in WORDS), phrase
