"""Twelve kinds of chores that recur in a repository, each asked for in five wordings.

Each kind has one repository, which grows from chore to chore. The agent does not work straight on:
it looks around, finds a file in this way or that, and runs what checks its work. No two chores of a
kind share their values, and nothing here is known to em.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bench.series.claude import Agent
from bench.series.projects import Files

Values = Mapping[str, str]
Do = Callable[[Agent, Values, int], None]


class Kind(NamedTuple):
    """A kind of chore: the repository before the first one, and how a chore is done.

    wordings: how people ask, with the names of values. chores: the values of each, the first six
    to learn from.
    """

    name: str
    files: Files
    wordings: Sequence[str]
    chores: Sequence[Values]
    do: Do


LEARNT = 6
"""Chores of a kind that are learnt from; the others are new."""


def rows(names: str, *rows: str) -> list[Values]:
    """Return chores by their names: one row of values, separated by `|`, for each."""
    return [dict(zip(names.split(), map(str.strip, row.split("|")), strict=True)) for row in rows]


def looked(agent: Agent, path: str, seed: int) -> str:
    """Read a file by one tool or another, and return its text."""
    if seed % 2:
        agent.bash(f"cat {path}", "Read it")
    else:
        agent.read(path)
    return (agent.folder / path).read_text()


def wander(agent: Agent, seed: int) -> None:
    draw = random.Random(seed)
    for command in draw.sample(["ls", "ls -la", "cat README.md", "find . -name '*.md'"], 2):
        agent.bash(command, "Look around")


def _insert(agent: Agent, path: str, before: str, line: str, seed: int) -> None:
    """Put lines before a line, by an edit or by writing the whole file."""
    text = (agent.folder / path).read_text()
    if seed % 3 == 2:
        agent.write(path, text.replace(before, line + before, 1))
    else:
        agent.edit(path, before, line + before)


def sorted_in(text: str, start: str, line: str) -> str:
    """Return a text with a line at its place among those that begin alike."""
    rows = text.splitlines(keepends=True)
    own = [number for number, row in enumerate(rows) if row.startswith(start)]
    at = next((number for number in own if rows[number] > line), own[-1] + 1)
    return "".join([*rows[:at], line, *rows[at:]])


def _words(name: str) -> list[str]:
    """Return the words of a name in camel case."""
    found = "".join(f" {sign}" if sign.isupper() else sign for sign in name)
    return found.split()


# --- version and changelog ------------------------------------------------------------------------


def _bump(agent: Agent, value: Values, seed: int) -> None:
    wander(agent, seed)
    text = looked(agent, "pyproject.toml", seed)
    old = text.partition('version = "')[2].partition('"')[0]
    agent.edit("pyproject.toml", f'version = "{old}"', f'version = "{value["version"]}"')
    looked(agent, "src/kiln/__init__.py", seed + 1)
    agent.edit("src/kiln/__init__.py", f'"{old}"', f'"{value["version"]}"')
    text = looked(agent, "CHANGELOG.md", seed)
    entry = f"## {value['version']} - {agent.day}\n\n- {value['note']}\n\n"
    _insert(agent, "CHANGELOG.md", text[text.index("## ") :].partition("\n")[0], entry, seed)
    agent.bash("python3 check.py", "Check")


_BUMP = Kind(
    "version and changelog",
    {
        "README.md": "# kiln\n",
        "check.py": "print('ok')\n",
        "pyproject.toml": '[project]\nname = "kiln"\nversion = "0.3.1"\n\n[tool.ruff]\n'
        'target-version = "py311"\n',
        "src/kiln/__init__.py": '"""Kiln."""\n\n__version__ = "0.3.1"\n',
        "CHANGELOG.md": "# Changelog\n\n## 0.3.1 - 2025-11-02\n\n- Fire slower\n",
    },
    [
        "Release {version}: {note}",
        'bump to {version}, changelog "{note}"',
        "we need {version} today. {note}",
        "please set the version to {version} and note: {note}",
        "{version} is due ({note})",
    ],
    rows(
        "version note",
        "0.4.0 | Glaze in two layers", "0.4.1 | Fix the door sensor", "0.5.0 | Read cone charts",
        "0.5.1 | Stop at 1300 degrees", "0.6.0 | Log each firing", "1.0.0 | Drop the old panel",
        "1.0.1 | Cool down in steps", "1.1.0 | Show the curve", "1.2.0 | Bisque by night",
    ),
    _bump,
)  # fmt: skip

# --- rename a key in three files ------------------------------------------------------------------

_KEYS = "ttl retries depth color mail_host page_size locale burst workers".split()


def _rename(agent: Agent, value: Values, seed: int) -> None:
    old, new = value["old"], value["new"]
    if seed % 2:
        wander(agent, seed)
    agent.bash(f"grep -rnw {old} .", "Find it")
    for path in ("config.yaml", "src/settings.py", "docs/keys.md"):
        text = looked(agent, path, seed)
        line = next(row for row in text.split("\n") if old in row)
        agent.edit(path, line, line.replace(old, new))
    agent.bash("git diff --stat || true", "Look at it")


_RENAME = Kind(
    "rename a key in three files",
    {
        "README.md": "# relay\n",
        "config.yaml": "debug: no\n" + "".join(f"{key}: 1\n" for key in _KEYS),
        "src/settings.py": "".join(f'CONFIG["{key}"] = load("{n}")\n' for n, key in
                                   enumerate(_KEYS)),
        "docs/keys.md": "# Keys\n\n" + "".join(f"- `{key}`: see the guide\n" for key in _KEYS),
    },
    [
        "Rename the key {old} to {new}.",
        "{old} should be called {new} everywhere",
        "the setting {old} is now {new}",
        "please change {old} into {new} in config, code and docs",
        "{old} -> {new}",
    ],
    rows(
        "old new",
        "ttl | lifetime", "retries | attempts", "depth | max_depth", "color | accent",
        "mail_host | smtp_server", "page_size | rows", "locale | language", "burst | peak",
        "workers | threads",
    ),
    _rename,
)  # fmt: skip

# --- add a route ----------------------------------------------------------------------------------


def _route(agent: Agent, value: Values, seed: int) -> None:
    name = value["name"]
    wander(agent, seed)
    looked(agent, "app/routes.py", seed)
    page = f'from app.http import page\n\n\n@page\ndef {name}(request):\n    """Show {name}."""\n'
    page += f'    return request.render("{name}.html")\n'
    agent.create(f"app/views/{name}.py", page)
    _insert(agent, "app/routes.py", "\nROUTES = [", f"from app.views.{name} import {name}\n", seed)
    _insert(agent, "app/routes.py", "]\n", f'    ("/{name}", {name}),\n', seed + 1)
    agent.bash("python3 -m compileall -q app && rm -rf app/__pycache__ app/views/__pycache__",
               "Check")  # fmt: skip


_ROUTE = Kind(
    "add a route",
    {
        "README.md": "# shop\n",
        "app/routes.py": "from app.views.home import home\n\nROUTES = [\n"
        '    ("/home", home),\n]\n',
        "app/views/home.py": "def home(request):\n    return request\n",
    },
    [
        "Add a route for {name}.",
        "we need a page at /{name}",
        "new route: {name}",
        "please add {name} to the routes, with a view",
        "{name} gets its own page",
    ],
    rows("name", "orders", "returns", "coupons", "wishlist", "invoices", "refunds", "stores",
          "gifts", "stock"),
    _route,
)  # fmt: skip

# --- a dependency in two sorted lists -------------------------------------------------------------


def _depend(agent: Agent, value: Values, seed: int) -> None:
    line = f"{value['name']}>={value['version']}"
    wander(agent, seed)
    text = looked(agent, "requirements.txt", seed)
    agent.write("requirements.txt", sorted_in(text, "", f"{line}\n"))
    text = looked(agent, "pyproject.toml", seed + 1)
    agent.write("pyproject.toml", sorted_in(text, '    "', f'    "{line}",\n'))


_DEPEND = Kind(
    "add a dependency to two sorted lists",
    {
        "README.md": "# survey\n",
        "requirements.txt": "attrs>=23.1\nhttpx>=0.27\nrich>=13.0\n",
        "pyproject.toml": '[project]\nname = "survey"\ndependencies = [\n    "attrs>=23.1",\n'
        '    "httpx>=0.27",\n    "rich>=13.0",\n]\n',
    },
    [
        "Add {name} {version} to the dependencies.",
        "we now need {name}, at least {version}",
        "depend on {name} (>= {version})",
        "please put {name} {version} into both lists",
        "new dependency: {name}, version {version}",
    ],
    rows(
        "name version",
        "msgspec | 0.18", "click | 8.1", "pyyaml | 6.0", "jinja2 | 3.1", "boto3 | 1.34",
        "tenacity | 8.2", "numpy | 1.26", "duckdb | 0.10", "orjson | 3.9",
    ),
    _depend,
)  # fmt: skip

# --- a component with its test and export ---------------------------------------------------------


def _component(agent: Agent, value: Values, seed: int) -> None:
    name = value["name"]
    dashed = "-".join(_words(name)).lower()
    wander(agent, seed)
    looked(agent, "src/components/index.ts", seed)
    agent.create(
        f"src/components/{name}.tsx",
        f'import "./{dashed}.css";\n\nexport function {name}() {{\n'
        f'  return <div className="{dashed}" />;\n}}\n',
    )
    agent.create(
        f"src/components/{name}.test.tsx",
        f'import {{ {name} }} from "./{name}";\n\ntest("{name}", () => {{\n  render(<{name} />);\n'
        "});\n",
    )
    text = (agent.folder / "src/components/index.ts").read_text()
    line = f'export {{ {name} }} from "./{name}";\n'
    agent.write("src/components/index.ts", sorted_in(text, "export", line))


_COMPONENT = Kind(
    "component with test and export",
    {
        "README.md": "# ui\n",
        "src/components/index.ts": 'export { AppBar } from "./AppBar";\n'
        'export { Modal } from "./Modal";\n',
    },
    [
        "Add a component {name}.",
        "we need {name} in the components",
        "create {name} with a test and export it",
        "new component: {name}",
        "please make {name}",
    ],
    rows("name", "DatePicker", "TabList", "FileTree", "ColorSwatch", "ZoomSlider", "HelpMenu",
          "LogViewer", "UserBadge", "BreadCrumb"),
    _component,
)  # fmt: skip

# --- release with a tag ---------------------------------------------------------------------------


def _tag(agent: Agent, value: Values, seed: int) -> None:
    text = looked(agent, "package.json", seed)
    old = text.partition('"version": "')[2].partition('"')[0]
    agent.edit("package.json", f'"{old}"', f'"{value["version"]}"')
    agent.bash("make test" if seed % 2 else "make test 2>&1 | tail -2", "Run the tests")
    if seed % 3:
        agent.bash(f'git commit -qam "Release {value["version"]}"', "Commit")
        agent.bash(f"git tag v{value['version']}", "Tag")
    else:
        version = value["version"]
        agent.bash(f'git commit -qam "Release {version}" && git tag v{version}', "Commit and tag")


_TAG = Kind(
    "release with a tag",
    {
        "README.md": "# wick\n",
        "Makefile": "test:\n\t@test -f package.json\n",
        "package.json": '{\n  "name": "wick",\n  "version": "2.0.0"\n}\n',
    },
    [
        "Release {version}.",
        "cut {version} please",
        "tag {version}",
        "we ship {version} now",
        "version {version}: commit and tag it",
    ],
    rows("version", "2.0.1", "2.1.0", "2.1.1", "2.2.0", "3.0.0", "3.0.1", "3.1.0", "3.2.0",
          "4.0.0"),
    _tag,
)  # fmt: skip

# --- csv to json ----------------------------------------------------------------------------------

_TABLES = "orders tugs berths crews lamps tides buoys locks piers".split()


def _convert(agent: Agent, value: Values, seed: int) -> None:
    path = value["path"]
    stem = path.rpartition("/")[2].partition(".")[0]
    if seed % 2:
        agent.bash(f"head -2 {path}", "Look at it")
    agent.bash(f"python3 tools/to_json.py {path} > json/{stem}.json", "Convert it")
    looked(agent, "json/index.md", seed)
    text = (agent.folder / "json/index.md").read_text()
    agent.write("json/index.md", f"{text}- [{stem}]({stem}.json)\n")


_CONVERT = Kind(
    "csv to json by file stem",
    {
        "README.md": "# harbour\n",
        "tools/to_json.py": "import csv, json, sys\n"
        "print(json.dumps([*csv.DictReader(open(sys.argv[1]))]))\n",
        "json/index.md": "# Tables\n\n- [ships](ships.json)\n",
        **{f"data/{name}.csv": f"id,name\n{n},{name}-a\n" for n, name in enumerate(_TABLES)},
    },
    [
        "Convert {path} to JSON.",
        "we need {path} as json",
        "please make a json file of {path}",
        "{path} -> json, and list it",
        "turn {path} into JSON and add it to the index",
    ],
    rows("path", *(f"data/{name}.csv" for name in _TABLES)),
    _convert,
)

# --- a post from a template -----------------------------------------------------------------------


def _post(agent: Agent, value: Values, seed: int) -> None:
    title = value["title"]
    slug = title.lower().replace(" ", "-")
    wander(agent, seed)
    text = looked(agent, "templates/post.md", seed)
    text = text.replace("TITLE", title).replace("DATE", agent.day).replace("SLUG", slug)
    agent.create(f"posts/{agent.day}-{slug}.md", text)


_POST = Kind(
    "post from a template",
    {
        "README.md": "# blog\n",
        "templates/post.md": "---\ntitle: TITLE\ndate: DATE\npermalink: /SLUG/\n---\n\n# TITLE\n\n"
        "Write here.\n",
    },
    [
        'Write a post "{title}".',
        "new post: {title}",
        "start a post called {title}",
        "we want a post about {title}",
        "{title} (post, from the template)",
    ],
    rows("title", "Spring Cleaning", "Why We Moved", "Ten Small Tools", "Notes On Tides",
          "A Week Offline", "The Blue Door", "Letters From Oslo", "Fixing The Boat",
          "Hello Again"),
    _post,
)  # fmt: skip

# --- a count in logs ------------------------------------------------------------------------------

_SERVICES = "gateway billing search mailer auth imports reports cron proxy".split()


def _count(agent: Agent, value: Values, seed: int) -> None:
    name = value["service"]
    if seed % 2:
        agent.bash("ls logs", "Look")
    found = agent.bash(f"grep -c ERROR logs/{name}.log", "Count")
    text = looked(agent, "report.md", seed)
    agent.write("report.md", f"{text}- {name}: {found} errors\n")


_COUNT = Kind(
    "count in logs",
    {
        "README.md": "# ops\n",
        "report.md": "# Errors\n\n- web: 3 errors\n",
        **{f"logs/{name}.log": "INFO up\n" + "ERROR x\n" * (4 + 7 * n) + "INFO down\n"
           for n, name in enumerate(_SERVICES)},
    },
    [
        "How many errors has {service}? Put it into the report.",
        "count the errors of {service}",
        "add {service} to the error report",
        "errors in {service} please, into report.md",
        "{service}: errors?",
    ],
    rows("service", *_SERVICES),
    _count,
)  # fmt: skip

# --- a migration with the next number -------------------------------------------------------------


def _migrate(agent: Agent, value: Values, seed: int) -> None:
    table, column = value["table"], value["column"]
    agent.bash("ls migrations" if seed % 3 else "ls migrations/", "Look at the migrations")
    names = sorted(path.name for path in (agent.folder / "migrations").iterdir())
    number = int(names[-1].partition("_")[0]) + 1
    if seed % 2:
        agent.read(f"migrations/{names[-1]}")
    agent.create(
        f"migrations/{number:04}_add_{column}_to_{table}.sql",
        f"ALTER TABLE {table} ADD COLUMN {column} TEXT;\n",
    )


_MIGRATE = Kind(
    "migration with the next number",
    {
        "README.md": "# ledger\n",
        "migrations/0001_create_users.sql": "CREATE TABLE users (id INT);\n",
        "migrations/0002_create_books.sql": "CREATE TABLE books (id INT);\n",
    },
    [
        "Add a column {column} to {table}.",
        "{table} needs a {column}",
        "write a migration: {column} on {table}",
        "please add {column} to the table {table}",
        "migration for {table}, new column {column}",
    ],
    rows(
        "table column",
        "users | email", "books | isbn", "loans | due_on", "users | phone", "shelves | label",
        "books | year", "loans | fee", "users | locale", "shelves | floor",
    ),
    _migrate,
)  # fmt: skip

# --- a translation in three languages -------------------------------------------------------------


def _translate(agent: Agent, value: Values, seed: int) -> None:
    wander(agent, seed)
    for language in ("en", "de", "fr"):
        path = f"locales/{language}.json"
        text = looked(agent, path, seed)
        line = f'  "{value["key"]}": "{value[language]}",\n'
        agent.write(path, sorted_in(text, '  "', line))


_TRANSLATE = Kind(
    "translation key in three languages",
    {
        "README.md": "# cart\n",
        "locales/en.json": '{\n  "cart.empty": "Empty",\n  "user.name": "Name",\n'
        '  "zoom.in": "Closer"\n}\n',
        "locales/de.json": '{\n  "cart.empty": "Leer",\n  "user.name": "Name",\n'
        '  "zoom.in": "Näher"\n}\n',
        "locales/fr.json": '{\n  "cart.empty": "Vide",\n  "user.name": "Nom",\n'
        '  "zoom.in": "Plus près"\n}\n',
    },
    [
        'Add the text {key}: "{en}", German "{de}", French "{fr}".',
        '{key} = "{en}" / "{de}" / "{fr}" (en, de, fr)',
        'we need {key}. en "{en}", de "{de}", fr "{fr}"',
        'new key {key}, in English "{en}", in German "{de}" and in French "{fr}"',
        'translate {key}: "{en}" is "{de}" and "{fr}"',
    ],
    rows(
        "key en de fr",
        "cart.pay | Pay | Zahlen | Payer", "user.mail | Mail | Post | Courriel",
        "app.title | Shop | Laden | Boutique", "help.title | Help | Hilfe | Aide",
        "user.city | City | Stadt | Ville", "menu.open | Open | Auf | Ouvrir",
        "menu.close | Close | Zu | Fermer", "cart.gift | Gift | Geschenk | Cadeau",
        "help.call | Call | Anruf | Appel",
    ),
    _translate,
)  # fmt: skip

# --- a licence header -----------------------------------------------------------------------------

_MODULES = "parse store fetch merge render export check plan solve".split()


def _header(agent: Agent, value: Values, seed: int) -> None:
    path = value["path"]
    text = looked(agent, path, seed)
    head = f"# Copyright {agent.day[:4]} Ana Ruiz\n# SPDX-License-Identifier: MIT\n\n"
    first = text.partition("\n")[0]
    if seed % 2:
        agent.edit(path, first, head + first)
    else:
        agent.write(path, head + text)


_HEADER = Kind(
    "licence header",
    {
        "README.md": "# maze\n",
        **{f"src/{name}.py": f'"""{name.title()}."""\n\n\ndef {name}():\n    pass\n'
           for name in _MODULES},
    },
    [
        "Add the licence header to {path}.",
        "{path} has no header yet",
        "please put our licence on top of {path}",
        "licence for {path}",
        "the header is missing in {path}",
    ],
    rows("path", *(f"src/{name}.py" for name in _MODULES)),
    _header,
)  # fmt: skip

KINDS = [
    _BUMP, _RENAME, _ROUTE, _DEPEND, _COMPONENT, _TAG, _CONVERT, _POST, _COUNT, _MIGRATE,
    _TRANSLATE, _HEADER,
]  # fmt: skip
