"""Each pattern finds its examples, and random secrets where they stand."""

import random
import re
import string
from collections.abc import Iterator

import pytest
from bench.redaction import KINDS, SHAPES, leaked

from em.redaction import signatures
from em.redaction.randomness import is_random
from em.redaction.redactor import Redactor

ENTRIES = [*signatures.KEYS, *signatures.SHAPES, *signatures.PLACES]
ALPHABETS = {
    "": string.ascii_letters + string.digits,
    "hex": "0123456789abcdef",
    "upper": string.ascii_uppercase + "234567",
}


def examples(entry: dict[str, list[str]], chance: random.Random) -> Iterator[tuple[str, str, str]]:
    """What stands before the secret, the secret, what stands behind it."""

    def fill(match: re.Match[str]) -> str:
        return "".join(chance.choices(ALPHABETS[match[1]], k=int(match[2])))

    for example in entry["examples"]:
        text = re.sub(r"\{(hex|upper|)(\d+)\}", fill, example)
        yield tuple(re.split("[«»]", text)) if "«" in text else ("", text, "")  # type: ignore[misc]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_each_pattern_finds_its_examples_and_leaves_what_is_around(
    entry: dict[str, list[str]],
) -> None:
    chance = random.Random(1)
    for _ in range(20):
        for before, secret, behind in examples(entry, chance):
            clean = Redactor().text(before + secret + behind)
            assert not leaked(secret, clean), before + secret + behind
            assert clean.startswith(before)
            assert clean.endswith(behind)


def test_each_pattern_names_its_source() -> None:
    assert [entry["name"] for entry in ENTRIES if not entry["source"]] == []


@pytest.mark.parametrize("place", SHAPES)
def test_random_secrets_are_found_by_where_they_stand(place: str) -> None:
    chance = random.Random(2)
    secrets = [make(chance) for make in KINDS.values() for _ in range(10)]
    left = [s for s in secrets if leaked(s, Redactor().text(SHAPES[place].format(s)))]
    assert len(left) <= 2, left


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("password=x$9&kL(2]v;Q8#z", "password=[redacted:password]"),
        ("password: hunter2", "password: [redacted:password]"),
        ("MYSQL_PASSWORD=a;b&c(d)e|f", "MYSQL_PASSWORD=[redacted:MYSQL_PASSWORD]"),
        ("https://a.b/?password=sun1shine&p=2", "https://a.b/?password=[redacted:password]&p=2"),
        ("my password is 12345678", "my password is [redacted:password]"),
    ],
)
def test_signs_that_separate_elsewhere_do_not_cut_a_secret(text: str, clean: str) -> None:
    assert Redactor().text(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "EMPTY_API_KEY=\nOTHER=value1",
        "type_token == 'string'",
        "Single pass: present in the language",
        '<a href="x.html" accesskey="n">',
        '_OPENAI_API_KEY = "OPENAI_API_KEY"',
        'api_key="your-api-key"',
        "account_key: Required[Annotated[str, PropertyInfo]]",
        "password = getpass.getpass('Password: ')",
        "mysql+pymysql://<username>:<password>@<host>/<dbname>",
        "my password is incorrect, and the token is still missing",
        "password=self.get_password(user, 2)",
        "secret=settings.SECRET_KEY, token=tok2vec",
    ],
)
def test_code_and_prose_about_secrets_are_left_alone(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('{"c": "A=1\\nDB_PASSWORD=correcthorse"}', "correcthorse"),
        ("password: hunter2Sommer!", "hunter2Sommer!"),
        ("db_password: s3cr3t", "s3cr3t"),
        ('export DB_PASSWORD="my pass phrase"', "my pass phrase"),
        ("redis:\n  auth: correct-horse-battery-42", "correct-horse-battery-42"),
        ("pw = Geheim123", "Geheim123"),
        ("Passwort: Geheim123", "Geheim123"),
        ("password=tR8xKq2v!", "tR8xKq2v!"),
    ],
)
def test_passwords_that_people_choose(text: str, secret: str) -> None:
    assert text.replace(secret, "") == re.sub(r"\[redacted:\w+\]", "", Redactor().text(text))


@pytest.mark.parametrize("name", ["get_access_token", "sha256_digest", "OAuth2PasswordBearer"])
def test_names_in_code_are_not_random(name: str) -> None:
    assert not is_random(name)
