"""How many random secrets redaction finds by where they stand, and what it takes for one."""

import base64
import json
import os
import random
import string
import sysconfig
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.figure import Figure

SAMPLES = 10_000
LEFT_OVER = 6
"""A secret has leaked if that many of its characters stand together in what is left."""

_Kind = Callable[[random.Random], str]


def _of(alphabet: str, shortest: int, longest: int) -> _Kind:
    return lambda chance: "".join(chance.choices(alphabet, k=chance.randint(shortest, longest)))


def _base64(chance: random.Random) -> str:
    return base64.b64encode(chance.randbytes(chance.randint(15, 40))).decode()


def _url_safe(chance: random.Random) -> str:
    return base64.urlsafe_b64encode(chance.randbytes(chance.randint(15, 40))).decode().rstrip("=")


_ALPHANUMERIC = string.ascii_letters + string.digits
KINDS: dict[str, _Kind] = {
    "base62": _of(_ALPHANUMERIC, 12, 48),
    "hex": _of("0123456789abcdef", 16, 64),
    "lower and digits": _of(string.ascii_lowercase + string.digits, 12, 32),
    "upper and digits": _of(string.ascii_uppercase + "234567", 16, 32),
    "base64": _base64,
    "base64 for URLs": _url_safe,
    "letters": _of(string.ascii_letters, 16, 32),
    "uuid": lambda chance: str(uuid.UUID(bytes=chance.randbytes(16), version=4)),
    "short password": _of(_ALPHANUMERIC, 8, 11),
    "password with signs": _of(_ALPHANUMERIC + "!#%+-_.:@^~*", 10, 20),
}

SHAPES = {
    "key=value": "token={}",
    "password=": "password={}",
    "access_token=": "the server said access_token={} and closed",
    "secret:": "secret: {}",
    "api key header": "X-API-Key: {}",
    "auth token header": "> X-Auth-Token: {}",
    "private token header": "PRIVATE-TOKEN: {}",
    "bearer": "Authorization: Bearer {}",
    "token scheme": "Authorization: token {}",
    "apikey header": "apikey: {}",
    "environment line": "HOME=/root\nDATABASE_PASSWORD={}\nSHELL=/bin/sh",
    "export": "export STRIPE_SECRET={}",
    "declare": 'declare -x NPM_TOKEN="{}"',
    "PowerShell": '$env:GITHUB_TOKEN = "{}"',
    "set": "set AZURE_CLIENT_SECRET={}",
    "docker -e": "docker run -e POSTGRES_PASSWORD={} -p 5432:5432 postgres",
    "option": "mysql --user root --password {} shop",
    "option with =": "tool login --api-key={} --verbose",
    "token option": "gh auth login --token {}",
    "short option": "docker login -u ana -p {} registry.example.com",
    "sshpass": "sshpass -p {} ssh ana@host.example.com",
    "mysql -p": "mysql -u root -p{} shop",
    "redis-cli -a": "redis-cli -h cache.example.com -a {} ping",
    "curl -u": "curl -u ana:{} https://example.com/api",
    "curl -H": "curl -s -H 'X-Api-Key: {}' https://example.com/api",
    "curl -H bearer": 'curl -H "Authorization: Bearer {}" https://example.com',
    "query": "GET https://example.com/v1/items?api_key={}&page=2 200",
    "query at the end": "https://example.com/callback?access_token={}",
    "URL password": "postgresql://ana:{}@db.example.com:5432/shop",
    "JSON in text": 'sent {{"user": "ana", "password": "{}"}} to the server',
    "JSON in JSON": '{{"body": "{{\\"client_secret\\": \\"{}\\"}}"}}',
    "Python dictionary": "{{'api_key': '{}', 'debug': True}}",
    "YAML": "database:\n  user: ana\n  password: {}\n  port: 5432",
    "INI": "[aws]\naws_secret_access_key = {}\nregion = eu-west-1",
    "properties": "spring.datasource.password={}",
    "netrc": "machine example.com login ana password {}",
    "npmrc": "//registry.npmjs.org/:_authToken={}",
    "XML": "<credentials><password>{}</password></credentials>",
    "in words": "My password is {} and I can't log in",
    "Kubernetes": '- name: API_TOKEN\n  value: "{}"',
    "escaped colours": "\x1b[1mpassword\x1b[0m: \x1b[32m{}\x1b[0m\n",
    "full-width colon": "password：{}",
    "no-break spaces": "password\xa0=\xa0{}",
    "ideographic spaces": "password\u3000=\u3000{}",
    "Spanish": "contraseña: {}",
    "Russian": "пароль: {}",
    "Chinese": "密码：{}",
    "Japanese": "パスワード: {}",
    "French": "mot de passe : {}",
    "Korean": "비밀번호: {}",
    "setter": 'user.setPassword("{}");',
    "call": "client.withSecret('{}')",
    "Go": 'password := "{}"',
    "Go with a type": 'var apiKey string = "{}"',
    "Kotlin": 'val secret: String = "{}"',
    "Rust": 'let api_key: &str = "{}";',
    "Java": 'private static final String PASSWORD = "{}";',
    "PHP": "define('DB_PASSWORD', '{}');",
    "header pairs": 'headers = [["X-Api-Key", "{}"], ["Accept", "*/*"]]',
    "Oracle": "sqlplus scott/{}@orcl",
    "pgpass": "localhost:5432:*:ana:{}",
    "YAML block": "db:\n  user: ana\n  password: |\n    {}\n  port: 5",
    "YAML folded": "password: >-\n  {}\nother: 1",
    "CSV": "user,password,age\nana,{},3\nbob,hunter22x,4",
    "Markdown table": "| user | password |\n|---|---|\n| ana | {} |\n",
    "tab-separated": "user\tpassword\nana\t{}",
    "key and value in a table": "| setting | value |\n|---|---|\n| DB_PASSWORD | {} |\n",
    "table with lines": "│ password │ {} │",
    "bold Markdown": "**Password:** {}",
    "code in Markdown": "Password: `{}`",
    "encoded query": "https://a.example/?next=x%26password%3D{}",
    "HTML input": '<input type="password" value="{}">',
    "property list": "<key>password</key><string>{}</string>",
    "Android": '<string name="api_key">{}</string>',
    "XML attribute": '<user name="a" password="{}"/>',
    "wpa_supplicant": 'psk="{}"',
    "PowerShell secure string": 'ConvertTo-SecureString "{}" -AsPlainText -Force',
    "fish": "set -x API_SECRET {}",
    "value in an object": '{{"password":{{"value":"{}"}}}}',
    "TOML multi-line": "password = '''{}'''",
    "Read of a coding agent": "     1→DEBUG=1\n     2→DB_PASSWORD={}\n",
    "cat -n": "     1\tuser: ana\n     2\tpassword: {}\n",
    "login": 'server.login("ana", "{}")',
    "credentials": 'new NetworkCredential("ana", "{}")',
    "constructor": 'password = SecretStr("{}")',
    "default of an option": 'add_argument("--password", default="{}")',
    "default of an environment": 'const pw = process.env.DB_PASSWORD ?? "{}"',
    "value first": '- value: "{}"\n  name: API_KEY\n',
    "member further on": '[{{"name": "app_secret", "secure": true, "value": "{}"}}]',
    "state of Terraform": '"db_password": {{\n  "value": "{}",\n  "type": "string"\n}}',
    "columns of a shell": "NAME     USERNAME   PASSWORD\nmain     ana        {}\n",
    "psql": " id | user | password \n----+------+----------\n  1 | ana | {}\n",
    "mysql": "+------+----------+\n| user | password |\n+------+----------+\n| ana | {} |\n+---",
    "the line below": "$ echo $DB_PASSWORD\n{}\n$ ls",
    "an answer": "bob: what's the password?\nana: {}\nbob: thanks",
    "Chinese sentence": "数据库密码是{}，请保存。",
    "Russian sentence": "пароль от базы — {}, никому",
    "German sentence": "Das Passwort für den Server: {}",
    "Italian": "La parola d'ordine è {} e basta.",
    "Turkish": "Sunucu şifresi: {}",
    "wide signs": "ｐａｓｓｗｏｒｄ：{}",
    "quotes of HTML": "&quot;password&quot;:&quot;{}&quot;",
    "quotes of a URL": "%7B%22password%22%3A%20%22{}%22%7D",
    "quoted-printable": "Password=3D{}\nbye",
    "user and password options": "tool -h host -u ana -P {} ls",
    "arguments": '["tool", "--password", "{}", "-v"]',
}


def found() -> Iterator[Figure]:
    """Of 10,000 random values in 40 places, how many are gone from the text."""
    from em.redaction.redactor import Redactor

    chance = random.Random(int(os.environ.get("EM_BENCH_SEED", "1")))
    redactor = Redactor()
    leaks: Counter[str] = Counter()
    for number in range(SAMPLES):
        shape = list(SHAPES)[number % len(SHAPES)]
        kind = chance.choice(list(KINDS))
        secret = KINDS[kind](chance)
        if leaked(secret, redactor.text(SHAPES[shape].format(secret))):
            leaks[f"place {shape}"] += 1
            leaks[f"kind {kind}"] += 1
    for what, count in leaks.most_common():
        print(f"    leaked: {count:4} {what}")
    lost = sum(count for what, count in leaks.items() if what.startswith("place"))
    yield Figure(
        f"random secrets in {len(SHAPES)} places that were found",
        SAMPLES - lost,
        "all",
        SAMPLES,
        "",
        (SAMPLES - lost) / SAMPLES,
        0.995,
        True,
    )


def ordinary() -> Iterator[Figure]:
    """What redaction takes out of text without secrets, for each megabyte."""
    from em.redaction.redactor import MARKER, Redactor

    redactor = Redactor()
    for what, files, bar in _corpora():
        size = taken = 0
        for path in files:
            text = path.read_bytes().decode(errors="replace")
            size += len(text)
            for part in _texts(path, text):
                clean = redactor.text(part)
                for mark in MARKER.finditer(clean) if clean != part else ():
                    if mark.group() not in part:
                        taken += 1
                        around = clean[max(0, mark.start() - 60) : mark.end() + 20]
                        print(f"    {path.name[:24]:24} {around!r}")
        if size:
            rate = taken / (size / 1e6)
            yield Figure(f"taken out of {what}, for 1 MB", rate, "", 0, "", rate, bar, False)


def _corpora() -> Iterator[tuple[str, list[Path], float | None]]:
    data = Path(os.environ.get("EM_BENCH_DATA", "../shared/data"))
    if data.is_dir():
        files = [path for path in data.rglob("*") if path.is_file()]
        yield "real transcripts and conversations", files, 1
    else:
        print(f"    no transcripts: there is no folder {data}")
    # Code that logs in is full of tokens and passwords, of which some are examples: no bar.
    code = [p for p in Path(sysconfig.get_path("purelib")).rglob("*.py") if p.is_file()]
    yield "installed Python code", sorted(code)[::5], None


def _texts(path: Path, text: str) -> Iterator[str]:
    """The texts in a file: of JSON, each by itself, as they are stored."""
    from em.values.leaves import texts

    lines = {".json": [text], ".jsonl": text.splitlines()}.get(path.suffix)
    for line in lines or ():
        try:
            yield from texts(json.loads(line), names=True)
        except ValueError:
            yield line
    if lines is None:
        yield text


def leaked(secret: str, text: str) -> bool:
    """Whether a part of a secret that could be of use still stands in a text."""
    from em.redaction.redactor import MARKER

    text = MARKER.sub("", text)
    ends = range(LEFT_OVER, len(secret) + 1)
    return any(secret[end - LEFT_OVER : end] in text for end in ends)
