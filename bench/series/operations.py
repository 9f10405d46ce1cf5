"""Six kinds of chores of people who run servers: written after em learnt those in `kinds`.

When first measured, 9 of 18 were right and none was wrong: three kinds were handed over.
"""

from bench.series.claude import Agent
from bench.series.kinds import Kind, Values, looked, rows, sorted_in, wander

# --- a record in a zone ---------------------------------------------------------------------------


def _record(agent: Agent, value: Values, seed: int) -> None:
    wander(agent, seed)
    text = looked(agent, "zones/example.org.zone", seed)
    line = f"{value['host']}\tIN A\t{value['address']}\n"
    agent.write("zones/example.org.zone", sorted_in(text, "", line))
    agent.bash("python3 tools/zone.py zones/example.org.zone || echo BROKEN", "Check the zone")
    agent.bash(f'git add -A && git commit -qm "dns: add {value["host"]}"', "Commit")


_RECORD = Kind(
    "a record in a zone",
    {
        "README.md": "# dns\n",
        "tools/zone.py": "import sys\nprint(len(open(sys.argv[1]).readlines()), 'records')\n",
        "zones/example.org.zone": "api\tIN A\t10.0.4.2\nmail\tIN A\t10.0.4.9\n"
        "www\tIN A\t10.0.4.3\n",
    },
    [
        "Point {host} to {address}.",
        "we need a DNS record: {host} is {address}",
        "{host} -> {address}",
        "please add {host} with the address {address} to the zone",
        "new host {host} at {address}",
    ],
    rows(
        "host address",
        "cache | 10.0.4.11", "db | 10.0.4.12", "grafana | 10.0.4.13", "ldap | 10.0.4.21",
        "ntp | 10.0.4.22", "queue | 10.0.4.25", "search | 10.0.4.31", "vpn | 10.0.7.1",
        "backup | 10.1.0.3",
    ),
    _record,
)  # fmt: skip

# --- a decision with the next number --------------------------------------------------------------


def _decide(agent: Agent, value: Values, seed: int) -> None:
    title = value["title"]
    shown = agent.bash("ls docs/adr", "Which are there")
    number = max(int(name[:4]) for name in shown.split() if name[:4].isdigit()) + 1
    slug = title.lower().replace(" ", "-")
    agent.create(
        f"docs/adr/{number:04}-{slug}.md",
        f"# {number}. {title}\n\nDate: {agent.day}\n\nStatus: proposed\n\n## Context\n\n"
        "## Decision\n",
    )
    text = looked(agent, "docs/adr/index.md", seed)
    agent.write(
        "docs/adr/index.md",
        f"{text}| {number} | [{title}]({number:04}-{slug}.md) | {agent.day} |\n",
    )


_DECIDE = Kind(
    "a decision with the next number",
    {
        "README.md": "# platform\n",
        "docs/adr/0001-use-records.md": "# 1. Use records\n",
        "docs/adr/index.md": "# Decisions\n\n| | title | day |\n|---|---|---|\n"
        "| 1 | [Use records](0001-use-records.md) | 2025-11-02 |\n",
    },
    [
        'Write a decision "{title}".',
        "new ADR: {title}",
        "we decided something: {title}",
        "please start the decision record {title}",
        "{title} needs an ADR",
    ],
    rows("title", "Run On Two Regions", "Keep Logs For A Year", "Drop The Proxy",
          "One Queue Per Team", "Rotate Keys Monthly", "Sign All Images", "Pin Base Images",
          "Move To Postgres", "Stop Using Cron"),
    _decide,
)  # fmt: skip

# --- a namespace ----------------------------------------------------------------------------------


def _namespace(agent: Agent, value: Values, seed: int) -> None:
    name, team = value["name"], value["team"]
    wander(agent, seed)
    agent.create(
        f"cluster/{name}/namespace.yaml",
        f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels:\n"
        f"    team: {team}\n    cost-centre: cc-{team}\n",
    )
    agent.create(
        f"cluster/{name}/quota.yaml",
        f"kind: ResourceQuota\nmetadata:\n  name: {name}-quota\n  namespace: {name}\n"
        "spec:\n  hard:\n    pods: 20\n",
    )
    text = looked(agent, "cluster/kustomization.yaml", seed)
    agent.write("cluster/kustomization.yaml", sorted_in(text, "  - ", f"  - {name}\n"))
    agent.bash("python3 tools/lint.py cluster | tail -1", "Lint")


_NAMESPACE = Kind(
    "a namespace",
    {
        "README.md": "# cluster\n",
        "tools/lint.py": "print('no problems')\n",
        "cluster/kustomization.yaml": "kind: Kustomization\nresources:\n  - default\n  - tools\n",
    },
    [
        "Create a namespace {name} for team {team}.",
        "{team} needs the namespace {name}",
        "namespace {name} please, owner is {team}",
        "set up {name} (team: {team})",
        "new namespace: {name} / {team}",
    ],
    rows(
        "name team",
        "billing | cash", "search | find", "checkout | cash", "reports | data", "ingest | data",
        "avatars | front", "mail | post", "ledger | cash", "sitemap | find",
    ),
    _namespace,
)  # fmt: skip

# --- a base image in three files ------------------------------------------------------------------


def _image(agent: Agent, value: Values, seed: int) -> None:
    new = f"python:{value['version']}-slim"
    agent.bash("grep -rn 'FROM python' --include=Dockerfile .", "Find them")
    for name in ("api", "worker", "web"):
        text = looked(agent, f"{name}/Dockerfile", seed)
        old = text.partition("FROM ")[2].partition("\n")[0]
        agent.edit(f"{name}/Dockerfile", f"FROM {old}", f"FROM {new}")
    agent.bash("make build && echo built || echo 'build failed'", "Build")
    agent.bash(f"git commit -qam 'Base images: {new}'", "Commit")


_IMAGE = Kind(
    "a base image in three files",
    {
        "README.md": "# images\n",
        "Makefile": "build:\n\t@test -f api/Dockerfile\n",
        **{f"{name}/Dockerfile": f"FROM python:3.10.1-slim\nWORKDIR /{name}\nCOPY . .\n"
           for name in ("api", "worker", "web")},
    },
    [
        "Use Python {version} in our images.",
        "images to python {version}",
        "bump the base images to {version}",
        "please build everything on python {version}",
        "we move to {version} (all Dockerfiles)",
    ],
    rows("version", "3.11.1", "3.11.2", "3.11.3", "3.11.4", "3.11.5", "3.11.6", "3.11.7", "3.12.0",
          "3.13.1"),
    _image,
)  # fmt: skip

# --- a flag with its day --------------------------------------------------------------------------


def _flag(agent: Agent, value: Values, seed: int) -> None:
    name = value["flag"]
    constant = name.replace("-", "_").upper()
    text = looked(agent, "flags.toml", seed)
    agent.write(
        "flags.toml",
        f'{text}\n[{name}]\nowner = "{value["owner"]}"\nadded = "{agent.day}"\ndefault = false\n',
    )
    text = looked(agent, "src/flags.py", seed + 1)
    line = f'{constant} = "{name}"\n'
    agent.edit("src/flags.py", "# end of flags\n", f"{line}# end of flags\n")
    agent.bash("python3 -m compileall -q src && rm -rf src/__pycache__", "Check")


_FLAG = Kind(
    "a flag with its day",
    {
        "README.md": "# flags\n",
        "flags.toml": '[dark-mode]\nowner = "ana@example.org"\nadded = "2025-11-02"\n'
        "default = false\n",
        "src/flags.py": 'DARK_MODE = "dark-mode"\n# end of flags\n',
    },
    [
        "Add the flag {flag}, owned by {owner}.",
        "feature flag {flag} for {owner}",
        "{owner} wants a flag {flag}",
        "please create {flag} ({owner})",
        "new flag: {flag}, owner {owner}",
    ],
    rows(
        "flag owner",
        "new-cart | bo@example.org", "fast-search | cy@example.org", "big-avatars | di@example.org",
        "two-columns | bo@example.org", "late-login | ed@example.org", "dry-run | cy@example.org",
        "no-banner | di@example.org", "wide-table | bo@example.org", "old-export | ed@example.org",
    ),
    _flag,
)  # fmt: skip

# --- somebody on call -----------------------------------------------------------------------------


def _on_call(agent: Agent, value: Values, seed: int) -> None:
    first, _, last = value["person"].partition(" ")
    handle = f"{first[0]}{last}".lower()
    wander(agent, seed)
    text = looked(agent, "rota.csv", seed)
    agent.write("rota.csv", f"{text}{value['week']},{value['person']},{handle}\n")
    agent.bash("python3 tools/rota.py; echo checked", "Check")


_ON_CALL = Kind(
    "somebody on call",
    {
        "README.md": "# rota\n",
        "tools/rota.py": "print(open('rota.csv').read().count('\\n'))\n",
        "rota.csv": "week,person,handle\n2026-W10,Ana Ruiz,aruiz\n",
    },
    [
        "{person} is on call in {week}.",
        "on call {week}: {person}",
        "put {person} on the rota for {week}",
        "please add {week} with {person}",
        "{week} goes to {person}",
    ],
    rows(
        "week person",
        "2026-W11 | Bo Lind", "2026-W12 | Cy Marsh", "2026-W13 | Di Okoro", "2026-W14 | Ed Pell",
        "2026-W15 | Flo Quist", "2026-W16 | Gil Roth", "2026-W17 | Hal Stein",
        "2026-W18 | Ida Thorn", "2026-W19 | Jo Underhill",
    ),
    _on_call,
)  # fmt: skip

OPERATIONS = [_RECORD, _DECIDE, _NAMESPACE, _IMAGE, _FLAG, _ON_CALL]
