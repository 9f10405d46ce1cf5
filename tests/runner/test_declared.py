"""Tools that a routine declares: commands and requests, used only as far as the user allows."""

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from em import Memory
from em.errors import InvalidRoutine, NotAllowed
from em.runner.engine import arun_routine, run_routine
from em.runner.run import RunResult
from em.runner.tools import command, http
from em.runner.validation import validate
from em.settings import AllowSettings, Settings
from strategies import examples

Run = Callable[..., RunResult]
COMMANDS = AllowSettings(commands=["printf", "sh", "sleep", "false", "env", "cat"])


@pytest.fixture(params=["plain", "asyncio"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run one call of a declared tool with these arguments: with both drivers."""

    def go(tool: str, more: str = "", /, allow: AllowSettings = COMMANDS, **args: Any) -> RunResult:
        folder = one_call(tmp_path, tool, args, more)
        if request.param == "plain":
            return run_routine(folder, args, allow=allow)
        return asyncio.run(arun_routine(folder, args, allow=allow))

    return go


def one_call(tmp_path: Path, tool: str, args: dict[str, Any], more: str = "") -> Path:
    folder = tmp_path / "routine"
    folder.mkdir(exist_ok=True)
    given_args = ", ".join(f'{name}: "{{{{ {name} }}}}"' for name in args)
    (folder / "routine.yaml").write_text(
        f"name: x\ntools: [{{name: t, {tool}}}]\nsteps:\n"
        f"  - {{id: a, type: tool.call, tool: t, args: {{{given_args}}}, save_as: r{more}}}\n"
        '  - {id: b, type: return, value: "{{ r }}"}\n'
    )
    return folder


def message(result: RunResult) -> str:
    assert result.failure is not None, result
    return result.failure.message


def test_a_command_gets_each_value_as_one_argument(run: Run) -> None:
    tool = 'command: [printf, "<%s>", "{{ x }}", "--name={{ y }}"], output: text'
    assert run(tool, x="a b; $(id) `id`", y="{{ x }}").output == "<a b; $(id) `id`><--name={{ x }}>"
    assert run(tool, x=[1, {"a": True}], y=1.5).output == '<[1,{"a":true}]><--name=1.5>'
    assert run(tool, x="", y=True).output == "<><--name=True>"


@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")))
@settings(max_examples=examples(40), deadline=None)
def test_any_value_reaches_a_program_as_it_is(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = one_call(Path(name), 'command: [printf, "%s", --, "{{ x }}"]', {"x": text})
        # printf takes the first -- for itself.
        assert run_routine(folder, {"x": text}, allow=COMMANDS).output == f"--{text}"


def test_a_value_never_becomes_an_option(run: Run) -> None:
    refused = message(run('command: [cat, "{{ x }}"]', x="--help"))
    assert "begins with '-' and would be an option" in refused
    assert "tool t, field command[1]" in refused
    assert run('command: [printf, "%s", "a{{ x }}"]', x="-n").output == "a-n"
    assert "No such file" in message(run('command: [cat, --, "{{ x }}"]', x="-n"))


def test_output_comes_as_text_lines_or_json(run: Run) -> None:
    assert run("command: [printf, 'a\\nb\\n']", "").output == "a\nb\n"
    assert run("command: [printf, 'a\\nb\\n'], output: lines").output == ["a", "b"]
    assert run("""command: [printf, '{"n": 1}'], output: json""").output == {"n": 1}
    assert "the output is not JSON" in message(run("command: [printf, 'no'], output: json"))


def test_a_command_that_fails_says_why(run: Run) -> None:
    failed = run('command: [sh, -c, "echo reason >&2; exit 3"]')
    assert message(failed) == "sh ended with exit code 3: reason"
    assert failed.failure is not None
    assert failed.failure.error_type == "CommandFailed"
    assert message(run("command: ['false']")) == "false ended with exit code 1"
    assert "by signal 9" in message(run('command: [sh, -c, "kill -9 $$"]'))


def test_time_is_limited_and_nothing_stays_behind(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    hangs = f'command: [sh, -c, "sleep 60 & echo $! > {file}; wait"], timeout: 0.3'
    assert "took longer than 0.3 s" in message(run(hangs))
    assert not alive(int(file.read_text()))
    leaves = f'command: [sh, -c, "sleep 60 & echo $! > {file}"]'
    assert run(leaves).status == "ok", "what holds its output is not waited for"
    assert not alive(int(file.read_text()))
    assert run("command: [sleep, '60']", ", timeout: 0.2").status == "failed"


def alive(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return False
        if state == "Z":
            return False
        time.sleep(0.02)
    return True


def test_output_is_limited(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MAX_OUTPUT", 10_000)
    assert "more than 10,000 bytes" in message(run('command: [sh, -c, "yes"]'))
    loud = 'command: [sh, -c, "yes no | head -c 100000 >&2; echo last >&2; exit 1"]'
    assert message(run(loud)).endswith("last")
    assert len(message(run(loud))) < 3000


@pytest.mark.parametrize(
    ("tool", "allow", "says"),
    [
        ("command: [ls]", AllowSettings(), "--allow-command ls"),
        ("command: [/bin/ls]", AllowSettings(commands=["ls"]), "'/bin/ls' is not allowed"),
        ("command: [./ls]", AllowSettings(commands=["ls", "./ls"]), "relative path"),
        ("command: [sub/../ls]", AllowSettings(commands=["ls"]), "is not allowed"),
        ("command: [LS]", AllowSettings(commands=["ls"]), "is not allowed"),
        ("command: [no-such-program]", AllowSettings(commands=["no-such-program"]), "on the PATH"),
        ('http: {url: "http://127.0.0.1:8/x"}', AllowSettings(), "--allow-host 127.0.0.1:8"),
        ('http: {url: "http://127.0.0.1:8/x"}', AllowSettings(hosts=["127.0.0.1"]), "not allowed"),
        ('http: {url: "http://localhost/"}', AllowSettings(hosts=["127.0.0.1"]), "not allowed"),
        ('http: {url: "http://169.254.169.254/"}', AllowSettings(), "not allowed"),
        ('http: {url: "https://a.example.com/"}', AllowSettings(hosts=["example.com"]), "allowed"),
        (
            'command: [printf, "{{ env.SECRET_WORD }}"]',
            AllowSettings(commands=["printf"]),
            "--allow-env SECRET_WORD",
        ),
        (
            "command: [env], env: [SECRET_WORD]",
            AllowSettings(commands=["env"]),
            "--allow-env SECRET_WORD",
        ),
        (
            'command: [printf, "{{ env.NOT_SET }}"]',
            AllowSettings(commands=["printf"], env=["NOT_SET"]),
            "is not set",
        ),
    ],
)
def test_what_is_not_allowed_is_refused_before_the_first_step(
    run: Run, tool: str, allow: AllowSettings, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_WORD", "sesame open")
    monkeypatch.delenv("NOT_SET", raising=False)
    result = run(tool, allow=allow)
    assert result.steps == []
    assert result.failure is not None
    assert result.failure.error_type == "NotAllowed"
    assert says in result.failure.message


def test_a_program_in_the_current_folder_is_not_found_by_a_relative_path(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "printf"
    fake.write_text("#!/bin/sh\necho fake\n")
    fake.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    assert run("command: [printf, real]").output == "real"


def test_the_environment_is_not_passed_on_but_for_what_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_WORD", "sesame open")
    monkeypatch.setenv("OTHER_WORD", "other")
    allow = AllowSettings(commands=["env"], env=["SECRET_WORD", "OTHER_WORD"])
    lines = run("command: [env], env: [SECRET_WORD], output: lines", allow=allow).output
    assert "SECRET_WORD=sesame open" in lines
    assert not [line for line in lines if "OTHER_WORD" in line]


@pytest.mark.parametrize(
    "tool",
    [
        "command: []",
        'command: ["{{ x }}"]',
        "command: ls",
        "command: [ls], http: {url: 'http://x/'}",
        "output: json",
        "command: [ls], output: xml",
        "command: [ls], timeout: -1",
        "http: {url: 'ftp://x/'}",
        "http: {url: '/x'}",
        "http: {url: 'http://{{ host }}/'}",
        "http: {url: 'http://x{{ y }}/'}",
        "http: {url: 'http://x:{{ y }}/'}",
        "http: {url: 'http://x?{{ y }}'}",
        "http: {url: 'http://user:word@x/'}",
        "http: {url: 'http://x:port/'}",
        "http: {url: 'http://x/', method: BREW}",
        "http: {url: 'http://x/', json: {}, body: x}",
        "http: {url: 'http://x/{% if y %}{% endif %}'}",
    ],
)
def test_a_declaration_that_is_none_is_refused(tmp_path: Path, tool: str) -> None:
    folder = one_call(tmp_path, tool, {})
    with pytest.raises(InvalidRoutine):
        run_routine(folder, allow=COMMANDS)
    assert [found for found in validate(folder) if found.line == 2]


class Server(BaseHTTPRequestHandler):
    """Answers as its path says, and remembers what it was asked."""

    seen: list[tuple[str, str, dict[str, str], bytes]]
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        headers["peer"] = str(self.client_address)
        self.seen.append((self.command, self.path, headers, self.rfile.read(length)))
        path = urlsplit(self.path).path
        if path.startswith("/status/"):
            self.reply(int(path.rpartition("/")[2]), b"sorry, " + headers.get("x", "").encode())
        elif path.startswith("/to/"):
            self.reply(302, b"", Location=unquote(path.removeprefix("/to/")))
        elif path == "/slow":
            time.sleep(0.6)  # then nobody listens any more
            self.close_connection = True
        elif path == "/loop":
            self.reply(302, b"", Location="/loop")
        elif path == "/cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            self.close_connection = True
        elif path == "/cookie":
            self.reply(200, b"{}", **{"Set-Cookie": "a=b"})
        elif path == "/nothing":
            self.reply(204, b"")
        else:
            said = {"path": self.path, "auth": headers.get("authorization")}
            self.reply(200, json.dumps(said).encode())

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - http.server asks for these names

    def reply(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    Server.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


@pytest.fixture
def host(server: ThreadingHTTPServer) -> str:
    return f"127.0.0.1:{server.server_port}"


def test_a_request_is_made_as_it_is_declared(
    run: Run, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "tok en/+1")
    allow = AllowSettings(hosts=[host], env=["API_TOKEN"])
    tool = (
        f'http: {{method: POST, url: "http://{host}/users/{{{{ id }}}}?v=1",'
        ' query: {q: "{{ q }}", many: [1, "{{ id }}"], none: null},'
        ' headers: {Authorization: "Bearer {{ env.API_TOKEN }}"},'
        ' json: {id: "{{ id }}", text: "is {{ q }}", raw: "{{ n }}"}}'
    )
    result = run(tool, allow=allow, id="a/b?c=d#e&é", q="x y&z", n=[1, {"k": "{{ id }}"}])
    assert result.status == "ok", result.failure
    ((method, path, headers, body),) = Server.seen
    assert method == "POST"
    assert path == (
        "/users/a%2Fb%3Fc%3Dd%23e%26%C3%A9?v=1&q=x+y%26z&many=1&many=a%2Fb%3Fc%3Dd%23e%26%C3%A9"
    )
    assert headers["authorization"] == "Bearer tok en/+1"
    assert headers["content-type"] == "application/json"
    assert json.loads(body) == {
        "id": "a/b?c=d#e&é", "text": "is x y&z", "raw": [1, {"k": "{{ id }}"}]
    }  # fmt: skip


@pytest.mark.parametrize("bad", ["..", "."])
def test_a_value_does_not_lead_elsewhere(run: Run, host: str, bad: str) -> None:
    tool = f'http: {{url: "http://{host}/users/{{{{ id }}}}"}}'
    assert "would change the path" in message(run(tool, allow=AllowSettings(hosts=[host]), id=bad))
    assert Server.seen == []


def test_a_header_replaces_ours_in_any_case_and_may_have_latin_letters(run: Run, host: str) -> None:
    tool = f'http: {{url: "http://{host}/", headers: {{user-agent: mine, X-Name: "{{{{ x }}}}"}}}}'
    assert run(tool, allow=AllowSettings(hosts=[host]), x="Zoé").status == "ok"
    ((_, _, headers, _),) = Server.seen
    assert headers["user-agent"] == "mine"
    assert headers["x-name"] == "Zoé"


def test_a_write_has_a_connection_of_its_own(run: Run, host: str) -> None:
    tool = f'http: {{method: POST, url: "http://{host}/"}}'
    for _ in range(2):
        assert run(tool, allow=AllowSettings(hosts=[host])).status == "ok"
    assert len({headers["peer"] for _, _, headers, _ in Server.seen}) == 2


def test_a_name_in_punycode_is_the_host_that_was_allowed() -> None:
    assert http._address("http://xn--bcher-kva.example/").host == "bücher.example"
    with pytest.raises(NotAllowed, match="ambiguous") as refused:
        http._address("http://user:hunter2@api.example/")
    assert "hunter2" not in str(refused.value)


def test_headers_are_one_line_and_not_the_connections_own(run: Run, host: str) -> None:
    allow = AllowSettings(hosts=[host])
    split = f'http: {{url: "http://{host}/", headers: {{X: "{{{{ x }}}}"}}}}'
    assert "one line" in message(run(split, allow=allow, x="a\r\nHost: evil"))
    own = f'http: {{url: "http://{host}/", headers: {{Host: evil}}}}'
    assert "can't be set" in message(run(own, allow=allow))
    assert Server.seen == []


def test_failures_of_a_request_say_why(
    run: Run, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "s3cr3t-word")
    allow = AllowSettings(hosts=[host, "127.0.0.1:1"], env=["API_TOKEN"])

    def get(path: str, more: str = "", at: str = host) -> str:
        header = '{x: "{{ env.API_TOKEN }}"}'
        return message(
            run(f'http: {{url: "http://{at}{path}", headers: {header}}}{more}', allow=allow)
        )

    assert get("/status/404") == "status 404 Not Found: sorry, [redacted:API_TOKEN]"
    assert get("/status/500").startswith("status 500")
    assert "no answer from" in get("/slow", ", timeout: 0.2")
    assert "broke off" in get("/cut")
    assert "refused" in get("/", at="127.0.0.1:1")
    monkeypatch.setattr(http, "MAX_ANSWER", 10)
    assert "more than 10 bytes" in get("/x")


def test_a_write_whose_connection_breaks_is_asked_about_and_never_repeated(
    tmp_path: Path, host: str
) -> None:
    tool = f'http: {{method: POST, url: "http://{host}/cut"}}'
    folder = one_call(tmp_path, tool, {}, more=", retry: {attempts: 3, backoff: 0}")
    with Memory(tmp_path / "em.db") as memory:
        result = memory.run(folder, allow=AllowSettings(hosts=[host]))
    assert result.status == "needs_input"
    assert result.pending_prompt is not None
    assert "broke off" in result.pending_prompt.message
    assert [asked[:2] for asked in Server.seen] == [("POST", "/cut")]


def test_a_read_whose_connection_breaks_is_tried_again(tmp_path: Path, host: str) -> None:
    tool = f'http: {{url: "http://{host}/cut"}}'
    folder = one_call(tmp_path, tool, {}, more=", retry: {attempts: 3, backoff: 0}")
    result = run_routine(folder, allow=AllowSettings(hosts=[host]))
    assert "broke off" in message(result)
    assert len(Server.seen) == 3


def test_requests_share_a_connection_and_no_cookies(run: Run, host: str) -> None:
    allow = AllowSettings(hosts=[host])
    for _ in range(3):
        assert run(f'http: {{url: "http://{host}/cookie"}}', allow=allow).status == "ok"
    assert len({asked[2]["peer"] for asked in Server.seen}) == 1
    assert not any("cookie" in asked[2] for asked in Server.seen)


def test_redirects_stay_on_their_host(run: Run, host: str) -> None:
    allow = AllowSettings(hosts=[host, "localhost:" + host.rpartition(":")[2]])

    def get(target: str, method: str = "GET") -> RunResult:
        return run(f'http: {{method: {method}, url: "http://{host}/to/{target}"}}', allow=allow)

    assert get("%2Fhere").output["path"] == "/here"
    other = "localhost:" + host.rpartition(":")[2]
    assert "redirects to another place" in message(get(f"http:%2F%2F{other}%2Fx"))
    assert "redirects to another place" in message(get("file:%2F%2F%2Fetc%2Fpasswd"))
    assert "a POST is not repeated" in message(get("%2Fhere", "POST"))
    assert "redirects without end" in message(get("%2Floop"))


def test_no_content_is_nothing_and_text_stays_text(run: Run, host: str) -> None:
    allow = AllowSettings(hosts=[host])
    assert (
        run(f'http: {{url: "http://{host}/nothing", method: DELETE}}', allow=allow).output is None
    )
    text = run(f'http: {{url: "http://{host}/x"}}, output: text', allow=allow).output
    assert text == '{"path": "/x", "auth": null}'


def test_schemas_of_tools_hold_at_run_time(run: Run, tmp_path: Path) -> None:
    args = "args_schema: {type: object, properties: {x: {type: integer}}}"
    tool = 'command: [printf, "%s", "{{ x }}"], output: json'
    assert run(f"{tool}, {args}", x=5).output == 5
    assert "the arguments do not fit their schema: x:" in message(run(f"{tool}, {args}", x="5"))
    result = f"{tool}, result_schema: {{type: string}}"
    assert "the result does not fit its schema" in message(run(result, x=5))
    folder = one_call(tmp_path, args, {"x": "a"})
    wrong = run_routine(folder, {"x": "a"}, {"t": lambda x: x})
    assert "the arguments do not fit their schema" in message(wrong)


def test_arguments_are_checked_and_a_registered_tool_comes_first(run: Run, tmp_path: Path) -> None:
    tool = 'command: [printf, "{{ x }}"]'
    assert "the tool takes no argument 'y'" in message(run(tool, x=1, y=2))
    folder = one_call(tmp_path, tool, {"y": 2})
    found = [(problem.line, problem.message) for problem in validate(folder)]
    assert (4, "the argument 'x' is missing") in found
    assert (4, "the tool takes no argument 'y'") in found
    assert run_routine(folder, {"y": 2}, {"t": lambda y: y}).output == 2


def test_a_secret_of_the_environment_is_never_journalled(
    tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "a plain word nobody knows")
    header = '{Authorization: "{{ env.API_TOKEN }}"}'
    folder = one_call(tmp_path, f'http: {{url: "http://{host}/x", headers: {header}}}', {})
    allow = AllowSettings(hosts=[host], env=["API_TOKEN"])
    with Memory(tmp_path / "em.db", settings=Settings(allow=allow)) as memory:
        result = memory.run(folder)
        assert result.output["auth"] == "a plain word nobody knows"
    for file in tmp_path.glob("em.db*"):
        assert b"nobody knows" not in file.read_bytes()


def test_em_yaml_allows_unless_it_came_with_the_routine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = one_call(tmp_path, "command: [printf, hi]", {})
    monkeypatch.chdir(tmp_path)
    assert run_routine(folder).status == "failed"
    (tmp_path / "em.yaml").write_text("allow: {commands: [printf]}")
    assert run_routine(folder).output == "hi"
    (folder / "em.yaml").write_text("allow: {commands: [printf]}")
    monkeypatch.chdir(folder)
    assert "is not allowed" in message(run_routine("."))


def test_a_get_is_a_read_and_what_was_under_way_is_done_again(tmp_path: Path, host: str) -> None:
    folder = one_call(tmp_path, f'http: {{url: "http://{host}/x"}}', {})
    allow = AllowSettings(hosts=[host])
    with Memory(tmp_path / "em.db") as memory:
        assert memory.run(folder, allow=allow).status == "ok"
        assert not list(memory.log.read(kinds=["step_started"])), "a read has no intent"


@pytest.mark.parametrize(
    "text",
    [
        '{{ env["API_" ~ "TOKEN"] }}',
        "{% set t = env.API_TOKEN %}{{ t }}",
        "{{ env|dictsort }}",
        "{{ env.API_TOKEN|urlencode }}",
    ],
)
def test_a_variable_is_a_secret_however_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("API_TOKEN", "tok SUPER/SECRET+99")
    monkeypatch.setenv("NOT_ALLOWED_WORD", "never seen")
    folder = one_call(tmp_path, f"command: [printf, '%s', {json.dumps(text)}]", {})
    allow = AllowSettings(commands=["printf"], env=["API_TOKEN"])
    with Memory(tmp_path / "em.db") as memory:
        result = memory.run(folder, {}, {}, allow=allow)
        told = repr([event.body for event in memory.log.read()])
    assert "SECRET" not in told
    assert "never seen" not in repr(result) + told
    if result.status == "ok":
        assert "SECRET" in repr(result.output)


def test_everything_that_is_not_allowed_is_listed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_KEY", "sesame open")
    (tmp_path / "routine.yaml").write_text(
        'version: "1"\nname: ship\nsecrets: [{name: key, env: CLOUD_KEY}]\ntools:\n'
        "  - {name: list, effect: read, command: [ls]}\n"
        '  - {name: ask, http: {url: "http://127.0.0.1:8/x"}}\n'
        "  - {name: pack, shell: tar --create order, effect: write}\nsteps:\n"
        "  - {id: a, type: tool.call, tool: list}\n"
        "  - {id: b, type: tool.call, tool: ask}\n"
        "  - {id: c, type: tool.call, tool: pack}\n"
    )
    with pytest.raises(NotAllowed) as refused:
        Memory(":memory:").run(tmp_path, allow=AllowSettings(hosts=["127.0.0.1:8"]))
    for option in ("--allow-command ls", "--allow-command tar", "--allow-env CLOUD_KEY"):
        assert option in refused.value.fix
    assert f"--allow-folder {Path.cwd()}" in refused.value.fix
    assert "--allow-host" not in refused.value.fix
