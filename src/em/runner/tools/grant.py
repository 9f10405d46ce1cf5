"""A grant: what a routine needs that the em.yaml of its folder does not allow yet.

What it needs is found by asking the checks that a run asks, for every call that it made in its
recordings: what they refuse is needed, and nothing else is. A person sees all of it at once before
it is written and trusted.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from typing import Any

import msgspec

from em.errors import EmError, InputError, NotAllowed, UsageError
from em.runner.history import RECORDING
from em.runner.package import ROUTINE, Package, parse_yaml, read_routine
from em.runner.routine import Routine
from em.runner.tools.coding import (
    SHELLS,
    command_of,
    is_coding_tool,
    renamed_arguments,
)
from em.runner.tools.declarations import check_made
from em.runner.tools.permissions import FIELDS, all_refused, beyond, check_path, enough
from em.runner.tools.shell import check_paths, check_programs, template_of
from em.settings import (
    FILE,
    AllowSettings,
    Settings,
    folder_hash,
    is_folder_trusted,
    memory_folder,
    named_settings,
)
from em.shell.programs import doing_of
from em.store.protocol import Store
from em.traces.catalogue import get_traces
from em.trust import trust
from em.values.strict_yaml import with_items


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What to add to the em.yaml of a folder.

    lists: the new elements of the lists of `allow`. servers: MCP servers that it calls, which only
    a person can describe in em.yaml.
    """

    file: Path
    lists: Mapping[str, Sequence[str]]
    servers: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.lists)

    @property
    def lines(self) -> list[str]:
        """What it allows, a line for each list, and where that is written."""
        lines = [f"  {name}: {', '.join(items)}" for name, items in self.lists.items()]
        found = [f"it needs, in {self.file}:", *lines] if lines else []
        return [*found, *(f"name the MCP server {one!r} in {self.file}" for one in self.servers)]

    def apply(self) -> None:
        """Write em.yaml, and trust it."""
        folder = self.file.parent
        text = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
        self.refuse_untrusted()
        for name, items in self.lists.items():
            try:
                text = with_items(text, ("allow", name), items)
            except InputError as error:
                raise UsageError(
                    error.message,
                    place=f"{self.file}, allow.{name}",
                    fix=f"add {', '.join(items)} by hand, then run: em trust --folder {folder}",
                ) from None
        self.file.write_text(text, encoding="utf-8")
        trust(folder_hash(folder), self.file, self.file.stat().st_size)

    def refuse_untrusted(self) -> None:
        """Raise UsageError if trusting the file would trust what nobody has read."""
        folder = self.file.parent
        if self.file.exists() and named_settings(folder) and not is_folder_trusted(folder):
            raise UsageError(
                "it has settings that you have not trusted",
                place=str(self.file),
                fix=f"read it, then run: em trust --folder {folder}",
            )


def grant_for(store: Store, files: Mapping[str, str]) -> Grant:
    """Return what a routine lacks in the folder that its recordings worked in, else in this one."""
    routine = read_routine(parse_yaml(files[ROUTINE].encode(), ROUTINE), ROUTINE)
    recordings = _recordings(files)
    folder = _folder_of(store, [str(one.get("name")) for one in recordings])
    given = _allowed_in(folder)
    allow = _needed(routine, routine.called_tools, recordings, given)
    new = beyond(allow, given)
    lists = {name: list(getattr(new, name)) for name in FIELDS.values()}
    lists["folders"] = _as_shown(new.folders, folder)
    named = {one[5:].partition("__")[0] for one in routine.called_tools if one[:5] == "mcp__"}
    return Grant(
        file=folder / FILE,
        lists={name: items for name, items in lists.items() if items},
        servers=sorted(named - given.mcp.keys()),
    )


def all_lacking(
    error: NotAllowed,
    package: Package,
    names: Collection[str],
    given: AllowSettings,
    variables: list[str],
) -> NotAllowed:
    """Return an error for all that a run lacks, so that nobody adds one by one.

    names: the tools that need permissions. variables: those of secrets, which it lacks.
    """
    found = package.folder / RECORDING
    recordings = _recordings(
        {RECORDING: found.read_text("utf-8", "replace")} if found.is_file() else {}
    )
    allow = _needed(package.routine, names, recordings, given)
    lacking = beyond(allow + AllowSettings(env=variables), given)
    count = sum(len(getattr(lacking, field)) for field in FIELDS.values())
    return all_refused(lacking) if count > 1 else error


def _needed(
    routine: Routine,
    names: Collection[str],
    recordings: Sequence[Mapping[str, Any]],
    given: AllowSettings,
) -> AllowSettings:
    """Return what is allowed, and what tools need beyond that, also for their recorded calls."""
    checks = [partial(check_made, routine, name) for name in sorted(names)]
    checks += [
        partial(_call, routine, call["tool"], call.get("args") or {})
        for one in recordings
        for call in one["calls"]
        if call.get("tool") in names
    ]
    return reduce(lambda allow, check: enough(check, allow), checks, given)


def _recordings(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the recordings of a package; a package of an agent's hand may have any text there."""
    try:
        found = msgspec.json.decode(files.get(RECORDING, "{}"))
    except msgspec.DecodeError:
        return []
    listed = found.get("recordings") if isinstance(found, dict) else None
    return [one for one in listed or () if isinstance(one, dict) and "calls" in one]


def _folder_of(store: Store, traces: Sequence[str]) -> Path:
    """Return the folder whose em.yaml counts where all of these sessions worked."""
    found = set()
    for trace in traces:
        with suppress(EmError):  # it was forgotten
            (known,) = get_traces(store, [trace])
            cwd = known.trace.app.get("cwd")
            if isinstance(cwd, str) and os.path.isdir(cwd):
                found.add(memory_folder(Path(cwd)).resolve())
    return found.pop() if len(found) == 1 else memory_folder().resolve()


def _allowed_in(folder: Path) -> AllowSettings:
    """Return what a folder allows. Relative paths count from there, wherever we are."""
    given = Settings.load(folder, tells=False).allow
    places = [str((folder / Path(one).expanduser()).resolve()) for one in given.folders]
    here = [str(Path.cwd())] if str(folder) in places else []
    return msgspec.structs.replace(given, folders=[*places, *here])


def _call(routine: Routine, name: str, args: Mapping[str, Any], allow: AllowSettings) -> None:
    """Check a recorded call, as a run does."""
    spec = routine.says_how(name)
    if spec is not None and spec.shell is not None:
        check_paths(template_of(spec).filled(args), allow)
    elif name in SHELLS:
        command = command_of(name, dict(args))
        if command is not None:
            check_programs(doing_of(command.text), allow)
            check_paths(command.text, allow)
    elif is_coding_tool(name):
        path = renamed_arguments(args).get("file_path")
        if isinstance(path, str):
            check_path(path, allow)


def _as_shown(folders: Sequence[str], folder: Path) -> list[str]:
    """Return folders as em.yaml names them: `.` for those in its own folder, or in this one."""
    own = (folder, Path.cwd())
    shown = ("." if any(Path(one).is_relative_to(at) for at in own) else one for one in folders)
    return [*dict.fromkeys(shown)]
