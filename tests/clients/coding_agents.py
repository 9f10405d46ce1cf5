"""The real coding agents, driven headless against the scripted model, in a home of their own."""

import json
import os
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from tests.cli.em_command import em

from em.testing import LoopbackModel, ModelCall, Turn
from em.testing.model_server import SeenRequest, calling

CLIENTS = Path(__file__).parents[2] / ".clients"
KEY = "sk-dummy"


def aside(seen: SeenRequest) -> str | None:
    """Reply to what an agent asks beside its task: such a request offers no tools."""
    return None if seen.body.get("tools") else "A title"


class CodingAgent(ABC):
    """A coding agent: its program, its home and the folder in which it works."""

    name: str
    program: str
    folder_of_program = "node_modules/.bin"
    own: tuple[str, ...] = ()
    """Where it keeps its sessions and statistics, which may name em."""

    def __init__(self, folder: Path, model: LoopbackModel) -> None:
        self.home, self.folder, self.model = folder / "home", folder / "work", model
        self.options: tuple[str, ...] = ()
        self.home.mkdir()
        self.folder.mkdir()
        self.environment = {
            "HOME": str(self.home),
            "PATH": f"{CLIENTS / self.folder_of_program}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "ANTHROPIC_API_KEY": KEY,
            "OPENAI_API_KEY": KEY,
        }

    def em(self, *args: str) -> None:
        """Run a command of em as the user of this home, where the agent is on the PATH."""
        ran = em(*args, HOME=str(self.home), PATH=self.environment["PATH"])
        assert ran.code == 0, ran.err

    @property
    def is_there(self) -> bool:
        """Whether `make setup-clients` installed the program."""
        return (CLIENTS / self.folder_of_program / self.program).exists()

    def run(self, prompt: str, *replies: Any) -> list[Any]:
        """Give the agent a task and the model its replies. Return what the agent printed."""
        assert self.is_there, "run `make setup-clients`"
        self.model.say(*replies)
        done = subprocess.run(
            [
                str(CLIENTS / self.folder_of_program / self.program),
                *self.command(prompt, self.options),
            ],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert not self.model.replies_left, "the agent did not ask for every reply"
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    @abstractmethod
    def command(self, prompt: str, options: tuple[str, ...]) -> list[str]:
        """Return the arguments of the program."""

    @abstractmethod
    def shell(self, command: str) -> Turn:
        """Return the reply with which the model runs a command."""

    def end(self, text: str) -> Any:
        """Return the reply with which the model ends the task."""
        return text

    @abstractmethod
    def tool_of_em(self, name: str, args: dict[str, Any]) -> Turn:
        """Return the reply with which the model calls a tool of em's MCP server."""

    def delegate(self, task: str) -> Turn:
        """Return the reply with which the model gives a task to a sub-agent."""
        raise NotImplementedError(f"{self.name} has no sub-agents here")

    @abstractmethod
    def sessions(self) -> list[Path]:
        """Return the transcripts in the agent's home, oldest first."""


class ClaudeCode(CodingAgent):
    """Claude Code: its settings and sessions are in `~/.claude`."""

    name, program = "claude-code", "claude"
    own = (".claude.json", ".claude/projects")

    def __init__(self, folder: Path, model: LoopbackModel) -> None:
        super().__init__(folder, model)
        self.environment |= {
            "ANTHROPIC_BASE_URL": model.base_url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def command(self, prompt: str, options: tuple[str, ...]) -> list[str]:
        stream = ("--output-format", "stream-json", "--verbose")
        return ["-p", prompt, *stream, *options, "--allowedTools", "Bash", "mcp__plugin_em_em"]

    def shell(self, command: str) -> Turn:
        return calling("Bash", {"command": command, "description": "as the task asks"})

    def tool_of_em(self, name: str, args: dict[str, Any]) -> Turn:
        return calling(f"mcp__plugin_em_em__{name}", args)

    def delegate(self, task: str) -> Turn:
        given = {"description": task, "prompt": task, "subagent_type": "general-purpose"}
        return calling("Agent", {**given, "run_in_background": False})

    def sessions(self) -> list[Path]:
        return _by_age(self.home / ".claude" / "projects")


class Codex(CodingAgent):
    """Codex: its settings and sessions are in `~/.codex`."""

    name, program = "codex", "codex"
    own = (".codex/sessions", ".codex/log", ".sqlite")

    def __init__(self, folder: Path, model: LoopbackModel) -> None:
        super().__init__(folder, model)
        self.config = self.home / ".codex" / "config.toml"
        self.config.parent.mkdir()
        self.config.write_text(
            'model = "scripted"\nmodel_provider = "loopback"\n\n'
            f'[model_providers.loopback]\nname = "loopback"\nbase_url = "{model.base_url}/v1"\n'
            'env_key = "OPENAI_API_KEY"\nwire_api = "responses"\nstream_max_retries = 2\n'
        )

    def command(self, prompt: str, options: tuple[str, ...]) -> list[str]:
        trusted = "--dangerously-bypass-approvals-and-sandbox"
        return ["exec", "--json", "--skip-git-repo-check", trusted, *options, prompt]

    def shell(self, command: str) -> Turn:
        return calling("exec_command", {"cmd": command})

    def tool_of_em(self, name: str, args: dict[str, Any]) -> Turn:
        return Turn(calls=[ModelCall(name, args, namespace="mcp__em")])

    def delegate(self, task: str) -> Turn:
        return Turn(calls=[ModelCall("spawn_agent", {"message": task}, namespace="multi_agent_v1")])

    def sessions(self) -> list[Path]:
        return _by_age(self.home / ".codex" / "sessions")


class Opencode(CodingAgent):
    """opencode: its settings are in `~/.config`, its sessions in a database."""

    name, program = "opencode", "opencode"
    own = (".local/share/opencode",)

    def __init__(self, folder: Path, model: LoopbackModel) -> None:
        super().__init__(folder, model)
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{model.base_url}/v1", "apiKey": KEY},
            "models": {"scripted": {"tool_call": True}},
        }
        settings = {
            "autoupdate": False,
            "share": "disabled",
            "permission": "allow",
            "model": "loopback/scripted",
            "small_model": "loopback/scripted",
            "provider": {"loopback": provider},
        }
        self.environment["OPENCODE_DISABLE_MODELS_FETCH"] = "1"
        config = self.home / ".config" / "opencode" / "opencode.json"
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps(settings))
        # It waits until this is installed, which takes a minute.
        for path in (CLIENTS / "opencode-config").glob("*"):
            (config.parent / path.name).symlink_to(path)

    def command(self, prompt: str, options: tuple[str, ...]) -> list[str]:
        # By words: opencode puts an argument with blanks in quotes.
        return ["run", "--format", "json", *options, *prompt.split()]

    def shell(self, command: str) -> Turn:
        return calling("bash", {"command": command, "description": "as the task asks"})

    def tool_of_em(self, name: str, args: dict[str, Any]) -> Turn:
        return calling(f"em_{name}", args)

    def delegate(self, task: str) -> Turn:
        given = {"description": task, "prompt": task, "subagent_type": "general"}
        return calling("task", given)

    def sessions(self) -> list[Path]:
        return [self.home / ".local" / "share" / "opencode" / "opencode.db"]


class MiniSweAgent(CodingAgent):
    """mini-swe-agent: it writes one trajectory, and asks for replies that are not streamed."""

    name, program, folder_of_program = "mini-swe-agent", "mini", "mini/bin"

    def __init__(self, folder: Path, model: LoopbackModel) -> None:
        super().__init__(folder, model)
        self.environment |= {
            "OPENAI_API_BASE": f"{model.base_url}/v1",
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }

    def command(self, prompt: str, options: tuple[str, ...]) -> list[str]:
        file = str(self.sessions()[0])
        how = ("-m", "openai/scripted", "-y", "--exit-immediately", "-l", "0")
        return ["-t", prompt, "-o", file, *how, *options]

    def shell(self, command: str) -> Turn:
        return calling("bash", {"command": command})

    def end(self, text: str) -> Turn:
        return self.shell(f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo {text!r}")

    def tool_of_em(self, name: str, args: dict[str, Any]) -> Turn:
        raise NotImplementedError("mini-swe-agent has only its shell")

    def sessions(self) -> list[Path]:
        return [self.home / "run.traj.json"]


def _by_age(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
