"""No secret of a known shape reaches the disk, and what is no secret is left alone."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from em import Memory, Settings
from em.errors import UsageError
from em.log.event import Draft
from em.redaction import redactor as redactor_module
from em.redaction.linear import compiled
from em.redaction.redactor import Redactor
from em.settings import RedactSettings
from em.store import Commit
from em.store.protocol import ArtefactDraft, Record, RequestOutcome
from em.store.sqlite import SqliteStore

R32 = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"
HEX = "0123456789abcdef" * 2

SECRETS = {
    "anthropic": f"sk-ant-api03-{R32}-{R32}",
    "openai": f"sk-{R32}{R32}",
    "openai project": f"sk-proj-{R32}_{R32}",
    "openrouter": f"sk-or-v1-{HEX}{HEX}",
    "github": f"ghp_{R32}abcd",
    "github oauth": f"gho_{R32}abcd",
    "github fine-grained": f"github_pat_11AAAAAAA0{R32}_{R32}",
    "gitlab": "glpat-abcDEF123_4567890abc",
    "aws key id": "AKIAIOSFODNN7EXAMPLE",
    "aws session key id": "ASIAIOSFODNN7EXAMPLE",
    "google": "AIza" + "SyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY"[:35],
    "google oauth": f"ya29.a0Af_{R32}",
    "google client": f"GOCSPX-{R32}",
    "slack bot": "xoxb-123456789012-123456789012-abcDEFghiJKL",
    "slack app": "xapp-1-A0123-4567890-abcdef0123456789",
    "stripe": "sk_live_" + R32,
    "stripe restricted": "rk_test_" + R32,
    "stripe webhook": "whsec_" + R32,
    "sendgrid": f"SG.{R32[:22]}.{R32}{R32[:11]}",
    "hugging face": f"hf_{R32}ab",
    "npm": f"npm_{R32}abcd",
    "pypi": f"pypi-AgEIcHlwaS5vcmc{R32}{R32}",
    "groq": f"gsk_{R32}{R32}",
    "xai": f"xai-{R32}{R32}",
    "perplexity": f"pplx-{R32}{R32}",
    "replicate": f"r8_{R32}abcde",
    "databricks": f"dapi{HEX}",
    "digitalocean": f"dop_v1_{HEX}{HEX}",
    "telegram": f"123456789:AA{R32}x",
    "langsmith": f"lsv2_pt_{R32}_abc",
    "tavily": f"tvly-dev-{R32}",
    "pinecone": f"pcsk_{R32}",
    "nvidia": f"nvapi-{R32}",
    "notion": f"ntn_{R32}{R32}",
    "linear": f"lin_api_{R32}{R32}",
    "supabase": f"sbp_{HEX}",
    "vault": f"hvs.{R32}",
    "docker": f"dckr_pat_{R32}",
    "atlassian": f"ATATT3xFfGF0{R32}=A1",
    "grafana": f"glsa_{R32}",
    "shopify": f"shpat_{HEX}",
    "figma": f"figd_{R32}",
    "firecrawl": f"fc-{HEX}",
    "gitlab runner": f"glrt-{R32}",
    "age": "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQ",
    "base64 pem": "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlFcEFJQkFBS0NBUUVB",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVPmB92K27uhbUJU1p1r",
}

IN_CONTEXT = {
    "bearer": ("Authorization: Bearer {}", f"opaque-{R32}"),
    "bearer alone": ("curl -H 'X: bearer {}'", f"{R32}=="),
    "basic": ("authorization: Basic {}", "dXNlcjpwYXNzd29yZA=="),
    "url password": ("postgresql://ana:{}@db.example.com/app", "hunter2"),
    "url password with an at": ("https://ana:{}@example.com", "p@ss:w0rd"),
    "redis url": ("redis://:{}@localhost:6379", "swordfish"),
    "slack webhook": ("https://hooks.slack.com/services/{}", "T00000000/B00000000/XXXXXXXXXX1234"),
    "shell variable": ("export OPENAI_API_KEY={}", "abc123def456ghi"),
    "password=": ("mysql --password={} -u root", "hunter2!"),
    "query string": ("https://x.example/?api_key={}&q=1", "0a1b2c3d4e5f"),
    "quoted": ("password = '{}'", "correct horse battery"),
    "json in a string": ('{{"password": "{}", "user": "ana"}}', "swordfish"),
    "json in a json string": ('{{\\"client_secret\\": \\"{}\\"}}', "swordfish"),
    "aws secret": ("aws_secret_access_key = {}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    "telegram url": ("https://api.telegram.org/bot{}/sendMessage", f"123456789:AA{R32}x"),
    "joined name": ("PGPASSWORD={} psql", "hunter2x"),
    "SMTP_PASS": ("SMTP_PASS={}", "hunter2x"),
    "words as a setting": ("DB_PASSWORD={}", "correcthorse"),
    "signs": ("DB_PASSWORD={}", "!Abc12345"),
    "camel case": ('dbPassword: "{}"', "hunter2x"),
    "connection string": ("Server=db;User Id=sa;Password={};Encrypt=yes", "My$ecret12"),
    "account key": ("AccountName=x;AccountKey={};", "Zm9vYmFyZm9vYmFy1=="),
    "environ": ('os.environ["TAVILY_API_KEY"] = "{}"', "qwertyuiop"),
    "annotated": ('password: str = "{}"', "hunter2x"),
    "arrow": ("'password' => '{}'", "hunter2x"),
    "element": ("<password>{}</password>", "hunter2x"),
    "option": ("mysql --password {} -u root", "hunter2x"),
    "curl": ("curl -sS -u admin:{} https://x.example", "hunter2x"),
    "tab": ('vault_token\t= "{}"', "qwerty123456"),
    "another quote inside": ('{{"password": "{}"}}', "p'ssw0rd12"),
    "an escaped quote inside": ('{{"password": "{}"}}', 'abc\\"def12345'),
    "api-key scheme": ("Authorization: Api-Key {}", R32),
    "negotiate scheme": ("Authorization: Negotiate {}", R32),
    "cookie header": ("Cookie: {}", "sessionid=a1b2c3d4; theme=dark"),
    "beside a marker": ('password="{} [redacted:foo]"', "hunter2x"),
    "discord webhook": ("https://discord.com/api/webhooks/{}", f"123456789012345678/{R32}"),
    "private key": (
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----\nafter",
        "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn",
    ),
    "private key, cut off": ("-----BEGIN PRIVATE KEY-----\n{}", "MIIEvQIBADANBgkqhkiG9w0BAQ"),
}

HARMLESS = [
    "The task-based risk-averse desk-bound approach",
    "password: required",
    "Please reset my password, I forgot it.",
    "basic authentication is used; bearer authentication too",
    "next_token: page 2 of the tokens",
    "https://example.com:8080/path@v1",
    "api_key = os.environ['API_KEY']",
    "token = get_token(user, 3)",
    "password={{ secret.password }}",
    "secret: ${VAULT_SECRET1}",
    "sk-learn is a library; sk-some-hyphenated-name-without-numbers",
    "SELECT * FROM users WHERE token IS NULL",
    "ASIA, AKIA and other places",
    "order #W5744371, card ending in 4242",
    "2025-04-07T09:30:00Z",
    'if pem.startswith("-----BEGIN PRIVATE KEY-----"):\n    load(pem)  # and the rest',
    '<div class="sk-estimator-doc-link-container-1 sk-toggleable__label-arrow-1">',
    "http://localhost:5173?email=a@b.com",
    "SyntaxError: Unexpected token: '}'",
    'next_page_token: "CAUQAA"',
    "eos_token='[EOS]'",
    "password = user1.password",
    "token = self.tokens1.next",
    "Authorization: required for all requests",
    "xoxo-love-you-all",
    "pwd: /home/ana/project",
    "3 passed, 1 failed; pass: 75%",
    'unk_token: Union[str, AddedToken] = "[UNK]"',
    'if info.vcs == "git" and user_pass == "git":',
    "pass-through and bypass: 9f2b6c1d3e4f",
    "fix net.connect() as of [joyent/node#8551](https://github.com/joyent/node/pull/8551)",
    "new URL('https://abc:xyz@example.com')",
    'OpenAI(api_key="hf_...")',
    "cache_key: 9f2b6c1d3e4f5a6b7c8d9e0f1a2b3c4d",
    '["MLKEM768X25519PrivateKey", "MLKEM1024P384PrivateKey"]',
    "toolu_01A09q90qw90lq917835lq9 and chatcmpl-9aBcDeFgHiJkLmNoPqRsTuVwXyZ01",
    "git commit 9f2b6c1d3e4f5a6b7c8d9e0f1a2b3c4d5e6f7a8b",
    "123e4567-e89b-12d3-a456-426614174000",
]


@pytest.mark.parametrize("name", SECRETS)
def test_known_keys_are_redacted_wherever_they_stand(name: str) -> None:
    secret = SECRETS[name]
    redactor = Redactor()
    for text in (
        secret,
        f"key is {secret}.",
        f'{{"a":"{secret}"}}',
        f"x={secret}\n",
        f"({secret})",
    ):
        clean = redactor.text(text)
        assert secret not in clean
        assert "[redacted:" in clean


@pytest.mark.parametrize("name", IN_CONTEXT)
def test_secrets_are_recognised_by_what_stands_around_them(name: str) -> None:
    template, secret = IN_CONTEXT[name]
    clean = Redactor().text(template.format(secret))
    assert secret not in clean
    assert "[redacted:" in clean
    assert Redactor().text(clean) == clean


def test_what_stands_around_a_secret_stays() -> None:
    redactor = Redactor()
    assert redactor.text("postgresql://ana:hunter2@db/app") == (
        "postgresql://ana:[redacted:url-password]@db/app"
    )
    assert redactor.text('{"password": "x y", "user": "ana"}') == (
        '{"password": "[redacted:password]", "user": "ana"}'
    )


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert Redactor().text(text) == text


def test_fields_are_redacted_by_their_name() -> None:
    clean = Redactor().value(
        {
            "user": "ana",
            "password": "short",
            "DB_PASSWORD": 12345,
            "apiKey": "abc",
            "headers": {"Authorization": "Basic abc", "Cookie": "id=1", "Accept": "*/*"},
            "list": [{"name": "X-Api-Key", "value": "abc"}, {"name": "Accept", "value": "*/*"}],
            "client_secret": ["a", "b"],
        }
    )
    assert clean == {
        "user": "ana",
        "password": "[redacted:password]",
        "DB_PASSWORD": "[redacted:DB_PASSWORD]",
        "apiKey": "[redacted:apiKey]",
        "headers": {
            "Authorization": "[redacted:Authorization]",
            "Cookie": "[redacted:Cookie]",
            "Accept": "*/*",
        },
        "list": [
            {"name": "X-Api-Key", "value": "[redacted:X-Api-Key]"},
            {"name": "Accept", "value": "*/*"},
        ],
        "client_secret": ["[redacted:client_secret]", "[redacted:client_secret]"],
    }


def test_names_of_secrets_in_other_dress() -> None:
    secrets = {
        "env": {"GITHUB_TOKEN": "hunter2xhunter2x", "SECRET_KEY_BASE": "a"},
        "headers": {"X-Vault-Token": "s.abc", "Ocp-Apim-Subscription-Key": "abc"},
        "api.key": "abc",
        "passwords": ["one", "two"],
        "credentials": {"user": "ana", "pass": "hunter2x"},
        "password": {"value": "hunter2x"},
        "pairs": [{"key": "X-Api-Key", "value": "abc"}, {"Name": "DB_PASSWORD", "Value": "abc"}],
        "auths": {"ghcr.io": {"auth": "dXNlcjpwYXNzd29yZA=="}},
        "dollar": {"password": "$uperSecret1", "db_password": "<hunter2x>"},
    }
    clean = str(Redactor().value(secrets))
    for secret in ("hunter2x", "s.abc", "'abc'", "one", "two", "dXNl", "uperSecret"):
        assert secret not in clean


def test_what_only_sounds_like_a_secret_stays() -> None:
    value = {
        "logprobs": [{"token": "Hello", "logprob": -0.1}, {"token": "eos"}, {"token": 12}],
        "pwd": "/home/ana/project",
        "env": {"PWD": "/home/ana"},
        "errors": {"password": ["is too short", "needs a digit"]},
        "pad_token": "<pad>",
        "pass": True,
    }
    assert Redactor().value(value) == value


def test_a_record_with_secrets_is_clean_in_the_file_and_in_the_search(tmp_path: Path) -> None:
    settings = Settings(redact=RedactSettings(fields=["iban"]))
    key = SECRETS["anthropic"]
    pem = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n" * 50
    with Memory(tmp_path / "em.db", settings=settings) as memory:
        memory.observe("ana", {"password": "correct horse", "iban": "DE89 3704", "note": "x"})
        memory.observe("ana", "x" * 99_985 + " " + key)
        memory.observe("ana", "y" * 99_800 + " " + pem)
        raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert memory.recall("note")[0].text == (
            "iban: [redacted:iban] note: x password: [redacted:password]"
        )
    for secret in (
        "correct horse",
        "DE89",
        key[:14],
        key[-20:],
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
    ):
        assert secret.encode() not in raw


def test_a_stored_response_is_redacted_as_the_json_it_is(tmp_path: Path) -> None:
    from datetime import timedelta

    minute = timedelta(minutes=1)
    with SqliteStore(tmp_path / "em.db", redactor=Redactor(fields=["iban"])) as store:
        for key, response, kept in (
            ("a", b'{"iban":"DE00"}', b'{"iban":"[redacted:iban]"}'),
            ("b", b'{ "x" : 1 }', b'{ "x" : 1 }'),
            ("c", b"\xff password='hunter2'", b"\xff password='[redacted:password]'"),
        ):
            owner = store.claim(key, "f", lease=minute, keep=minute).owner
            outcome = RequestOutcome(key=key, owner=owner, response=response)
            store.commit(Commit(request=outcome))
            assert store.claim(key, "f", lease=minute, keep=minute).response == kept


def test_many_secrets_as_keys_take_no_quadratic_time() -> None:
    keys = {f"sk-ant-api03-{n:032}": n for n in range(20_000)}
    assert len(Redactor().value(keys)) == 20_000


def test_schemas_references_and_counts_are_no_secrets() -> None:
    value = {
        "properties": {"password": {"type": "string"}},
        "args": {"password": "{{ secret.password }}", "token": "$TOKEN", "api_key": ""},
        "usage": {"tokens": 12, "max_tokens": 100},
        "has_password": True,
        "password": None,
        "next_token": "page-2",
    }
    assert Redactor().value(value) == value


def test_a_secret_as_a_key_is_redacted_and_no_entry_is_lost() -> None:
    keys = [SECRETS["github"], SECRETS["github oauth"], "plain"]
    clean = Redactor().value(dict.fromkeys(keys, 1))
    assert list(clean) == ["[redacted:github-token]", "[redacted:github-token]#2", "plain"]


def test_a_users_own_patterns_fields_and_tool_arguments() -> None:
    redactor = Redactor(
        patterns={"badge": r"BADGE-(?P<secret>\d+)"},
        fields=["iban"],
        tool_args={"login": ["pin", "user"]},
    )
    call = {"tool": "login", "args": {"pin": 1234, "user": {"id": 1}, "city": "Porto"}}
    assert redactor.value({"call": call, "IBAN": "PT50", "text": "my BADGE-77"}) == {
        "call": {
            "tool": "login",
            "args": {"pin": "[redacted:pin]", "user": "[redacted:user]", "city": "Porto"},
        },
        "IBAN": "[redacted:IBAN]",
        "text": "my BADGE-[redacted:badge]",
    }
    assert redactor.value({"tool": "other", "args": {"pin": 1}}) == {
        "tool": "other",
        "args": {"pin": 1},
    }


def test_a_broken_pattern_is_refused_with_its_place() -> None:
    with pytest.raises(UsageError) as caught:
        Redactor(patterns={"mine": "("})
    assert caught.value.place == "redact.patterns.mine"


@pytest.mark.parametrize(
    "pattern", ["(((a{100}){100}){100}){100}", "(a{99999999})", "a" * 2_001, "(?=a)", r"(a)\1"]
)
def test_a_pattern_that_is_too_large_or_needs_backtracking_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError) as caught:
        Redactor(patterns={"mine": pattern})
    assert caught.value.place == "redact.patterns.mine"


@pytest.mark.parametrize(
    ("pattern", "text", "clean"),
    [
        ("token{i}", "a token{i} and a tokan", "a [redacted:mine] and a tokan"),
        ("x{e}", "x{e} y", "[redacted:mine] y"),
        (r"k\{\d{2,3}}", "k{123} k{1}", "[redacted:mine] k{1}"),
        (r"key{}\d", "a key{}5 b", "a [redacted:mine] b"),
        (r"•\d+", "\u202255 b", "[redacted:mine] b"),
        ("[{}]a", "{a b", "[redacted:mine] b"),
    ],
)
def test_braces_of_a_pattern_that_count_nothing_are_signs(
    pattern: str, text: str, clean: str
) -> None:
    assert Redactor(patterns={"mine": pattern}).value(text) == clean


def test_no_known_secret_survives_in_the_bytes_of_the_database(tmp_path: Path) -> None:
    whole = [*SECRETS.values(), *(text.format(s) for text, s in IN_CONTEXT.values())]
    hidden = [*SECRETS.values(), *(secret for _, secret in IN_CONTEXT.values())]
    with SqliteStore(tmp_path / "em.db") as store:
        for n, text in enumerate(whole):
            nested = {"deep": [{"x": text, "json": msgspec.json.encode({"x": text}).decode()}]}
            store.commit(
                Commit(
                    events=[
                        Draft(stream="s", kind="message", body={"role": "user", "text": text}),
                        Draft(stream="s", kind="tool_call", body={"tool": "t", "result": nested}),
                        Draft(stream="l", kind="note", body={"text": text}, id=f"lesson {n}"),
                    ],
                    artefacts=[ArtefactDraft(kind="routine", name=f"r{n}", body={"x": text})],
                    records=[Record(subject="ana", type="T", id=str(n), body={"x": text})],
                    lessons={"l": f"lesson {n}"},
                )
            )
        raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert len(raw) > 100_000
    survivors = [secret for secret in hidden if secret.encode() in raw]
    assert survivors == []


leaves = st.one_of(
    st.text(max_size=30),
    st.sampled_from([*SECRETS.values(), *(t.format(s) for t, s in IN_CONTEXT.values()), *HARMLESS]),
    st.integers(),
    st.none(),
    st.booleans(),
)
names = st.one_of(
    st.text(max_size=8), st.sampled_from(["password", "apiKey", "name", "value", "tool", "args"])
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4)
)


@given(st.lists(values, max_size=4))
def test_what_the_quick_test_passes_over_holds_no_secret(bodies: list[Any]) -> None:
    redactor = Redactor()
    texts = [msgspec.json.encode(body) for body in bodies]
    suspects = set(redactor.suspects(texts))
    for n, body in enumerate(bodies):
        assert n in suspects or redactor.value(body) == body


@given(values)
def test_redacting_twice_is_redacting_once(value: Any) -> None:
    redactor = Redactor()
    once = redactor.value(value)
    assert redactor.value(once) == once


@given(st.text(alphabet="pasword=\"': \\{}[]sk-_AIKbearer1x/@.\n", max_size=80))
def test_redacting_text_twice_is_redacting_it_once(text: str) -> None:
    redactor = Redactor()
    once = redactor.text(text)
    assert redactor.text(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PRIVATE KEY-----" * 20_000,
        "password=" * 50_000,
        "://" + "a" * 500_000,
        "bearer " * 50_000,
        "sk-" * 100_000,
        "eyJ" + "a" * 300_000,
        "eyJ-" * 75_000,
        "-eyJ" * 75_000,
        "a.password" * 50_000,
        "password: str " * 50_000,
        "<password>" * 50_000,
        "curl " * 50_000,
        "--token " * 50_000,
        'token="' + "\\\\" * 100_000,
        "a_" * 200_000 + "password='" + "x" * 200_000,
        "authorization:" * 50_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_texts_take_no_quadratic_time(text: str) -> None:
    Redactor().text(text)


def calls_to_redact(text: str) -> int:
    calls = 0

    def count(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    redactor = Redactor()
    redactor.text(text)
    sys.setprofile(count)
    try:
        redactor.text(text)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    "part",
    [
        "password=hunter2x1\n",
        "my token is here; ",
        "password, token, secret\n1, 2, 3\n",
        "| password | token |\n|---|---|\n| a1b2c3 | d4e5f6 |\n",
        "password: |\n  a1b2c3d4\n",
        "password.password_password ",
        "\x1b[1mpassword\x1b[0m ",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n",
        "https://a:b@c ",
    ],
)
def test_the_work_for_a_text_grows_with_its_length_alone(part: str) -> None:
    """The engine of expressions is linear by its make; this counts what is done around it."""
    assert calls_to_redact(part * 500) < 13 * calls_to_redact(part * 50)


@pytest.mark.parametrize("part", ["authorization:", "<password>", "--token ", "password "])
def test_names_that_follow_each_other_are_not_looked_at_behind_each_of_them(part: str) -> None:
    assert calls_to_redact(part * 500) < 500 * 1_000


def test_no_expression_of_redaction_can_go_back_on_a_text() -> None:
    """Those of markers have no choice: each repeats what can't stand behind it."""
    room = Path(redactor_module.__file__).parent
    for path in room.glob("*.py"):
        found = re.findall(r"re\.compile\((.*)", path.read_text(encoding="utf-8"))
        own = [one for one in found if "redacted:" not in one and "<private:" not in one]
        assert own == [], path.name


@pytest.mark.parametrize(
    "value",
    [
        {"SECRET:": None, "private": "x"},
        {"password:": [1, {"a": 2.5e3}], "b": True},
        {"note": 'password: hunter2xyz"q', "k": 1},
    ],
)
def test_a_text_that_is_json_stays_json(value: object) -> None:
    text = Redactor().text(json.dumps(value))
    assert "hunter2xyz" not in text
    json.loads(text)


FORKS = """
import os, sys, threading
from em.redaction.masker import Masker
from em.redaction.redactor import Redactor
redactor, masker, over = Redactor({"mine": "BADGE-(?P<secret>[0-9]+)"}), Masker(), False
masker.add("hunter2xyz", "[redacted:x]")
text = "password=hunter2xyz BADGE-12 and more words; " * 60
def work():
    while not over:
        masker.mask(redactor.text(text))
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
codes = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        clean = masker.mask(redactor.text(text) + " hunter2xyz")
        os._exit("hunter2xyz" in clean or "BADGE-12" in clean)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
over = True
for thread in threads: thread.join()
sys.exit(any(codes))
"""


def test_a_child_forked_while_threads_search_searches_by_itself() -> None:
    """A search holds locks of its pattern; a child that used the same one would wait for ever."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], check=True, timeout=120)


def test_no_pattern_of_a_parent_is_used_in_its_child() -> None:
    """RE2's own cache outlives a fork, and hands out what the parent's threads have locked."""
    mine = compiled("a+b")
    child = os.fork()
    if child == 0:
        os._exit(compiled("a+b") is mine or compiled("a+b").search(b"aab") is None)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert compiled("a+b") is mine
