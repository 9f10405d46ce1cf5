"""Each pattern finds its examples, and random secrets where they stand."""

import json
import random
import re
import string
from collections.abc import Iterator

import pytest
from bench.redaction import KINDS, SHAPES, leaked

from em.redaction.redactor import Redactor, has_anchor
from em.redaction.signatures import signatures
from em.redaction.strength import is_random

PLACES = [
    'password = "«{20}»"',
    "{'api_key': '«{20}»', 'debug': True}",
    'sent {"client_secret": "«{20}»"}',
    'declare -x NPM_TOKEN="«{20}»"',
    '$env:GITHUB_TOKEN = "«{20}»"',
    'os.environ["API_KEY"] = "«{20}»"',
    "'password' => '«{20}»'",
    'password: str = "«{20}»"',
    '{"body": "{\\"client_secret\\": \\"«{20}»\\"}"}',
    "HOME=/root\nDATABASE_PASSWORD=«{20}»\nSHELL=/bin/sh",
    "export STRIPE_SECRET=«{5}&;({12}»",
    "set AZURE_CLIENT_SECRET=«{20}»",
    "token=«{20}»",
    "secret: «{20}»",
    "X-API-Key: «{20}»",
    "spring.datasource.password=«{20}»",
    "GET https://example.com/items?api_key=«{20}»&page=2",
    "//registry.npmjs.org/:_authToken=«{20}»",
    "aws_secret_access_key = «{20}/{19}»",
    "Server=db;User Id=sa;Password=«{20}»;Encrypt=yes",
    "docker run -e POSTGRES_PASSWORD=«{20}» -p 5432:5432 postgres",
    "const authToken = `«{20}»`;",
    "secret_key_base: «{hex64}»",
    "FROM scratch\nENV SECRET_TOKEN «{20}»\nUSER ana",
    "mysql --user root --password «{20}» shop",
    "tool login --api-key=«{20}» --verbose",
    "aws configure set aws_secret_access_key «{40}»",
    "npm config set //registry.npmjs.org/:_authToken «{36}»",
    "setx API_TOKEN «{20}»",
    "machine example.com login ana password «{20}»",
    "My password is «{20}» and I can't log in",
    "the API key for staging is now «{20}».",
    "log in as user ana and pass «{20}»",
    "Connect with the password «{20}» please",
    '- name: API_TOKEN\n  value: "«{20}»"',
    '{"name": "DB_PASSWORD", "value": "«{20}»"}',
    '<add key="ClearTextPassword" value="«{20}»" />',
    "<credentials><password>«{20}»</password></credentials>",
    "requirepass «{20}»",
    "const key = process.env.SESSION_SECRET || '«{12}»';",
    'variable "db_password" {\n  default = "«{12}»"\n}',
    '["password"]=>\n  string(12) "«{12}»"',
    "<Password>\n  <Value>«{12}»</Value>\n</Password>",
    "define('AUTH_KEY',         '«v4,Hu&#.Il>{20}»');",
]
ALPHABETS = {
    "": string.ascii_letters + string.digits,
    "hex": "0123456789abcdef",
    "upper": string.ascii_uppercase + "234567",
    "base58_": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
}


def parts(examples: tuple[str, ...], chance: random.Random) -> Iterator[tuple[str, str, str]]:
    """What stands before the secret, the secret, what stands behind it."""

    def fill(match: re.Match[str]) -> str:
        return "".join(chance.choices(ALPHABETS[match[1]], k=int(match[2])))

    for example in examples:
        text = re.sub(r"\{(hex|upper|base58_|)(\d+)\}", fill, example)
        yield tuple(re.split("[«»]", text)) if "«" in text else ("", text, "")  # type: ignore[misc]


@pytest.mark.parametrize(
    "examples",
    [*(one.examples for one in signatures()), *((place,) for place in PLACES)],
    ids=lambda examples: examples[0][:40],
)
def test_each_form_is_found_and_what_is_around_it_is_left(examples: tuple[str, ...]) -> None:
    chance = random.Random(1)
    for _ in range(20):
        for before, secret, behind in parts(examples, chance):
            clean = Redactor().text(before + secret + behind)
            assert not leaked(secret, clean), before + secret + behind
            assert clean.startswith(before)
            assert clean.endswith(behind)


def test_each_form_names_its_source_and_has_an_anchor_in_its_examples() -> None:
    assert [one.name for one in signatures() if not one.source] == []
    chance = random.Random(1)
    for one in signatures():
        for text in map("".join, parts(one.examples, chance)):
            assert has_anchor(text.encode()), text
            assert has_anchor(json.dumps(text).encode()), text


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
        ("my password is hunter22", "my password is [redacted:password]"),
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


@pytest.mark.parametrize(
    "text",
    [
        "behaviour/awaited_does_not_pass/a1b2c3d4e5f6a7b8",
        "all tests pass: build 7f3a9c1e5b2d8f4a",
        "node_modules/jsonwebtoken/-/jsonwebtoken-9.0.2.tgz",
    ],
)
def test_what_stands_near_a_word_that_only_ends_like_a_name_is_left_alone(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize("sign", ["", "Q", "-", "_"])
def test_a_digest_beside_its_algorithm_is_no_key(sign: str) -> None:
    digest = f"zuuue4knoyJ{sign}UwPPXg8ab12cdefghijklmnopqrstuvwx12"
    for text in (
        f"requests/api.py,sha256={digest},6449",
        f'"integrity": "sha512-{digest}{digest}=="',
    ):
        assert Redactor().value(text) == text
