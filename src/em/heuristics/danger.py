"""Danger: what is never proposed as a recovery, whatever it repaired.

A lesson is read by an agent that may act on it. So a step is left out if it destroys, if it gains
rights, if it switches a check off, or if it runs what a network sends. The same holds for failures
that are a refusal by a person or a policy: nothing that got around one is a recovery. Errors that
talk to their reader teach nothing.
"""

import re
from collections.abc import Iterable, Sequence

LONGEST = 20_000
"""Characters of a text that are looked at."""
_PROGRAMS = frozenset(
    "rm rmdir unlink shred dd mkfs fdisk parted sudo su doas chown chgrp chattr setfacl kill"
    " killall pkill reboot shutdown halt poweroff truncate eval iptables ufw visudo passwd"
    " useradd usermod crontab systemctl launchctl".split()
)
_COMMANDS = (
    "git reset", "git clean", "git restore", "git checkout", "git filter-branch", "git filter-repo",
    "git update-ref", "git gc", "git prune", "git stash drop", "git stash clear", "git rebase",
    "git config", "git rm", "docker rm", "docker rmi", "docker kill", "docker system",
    "docker volume rm", "docker volume prune", "docker image prune", "docker compose down",
    "docker-compose down", "kubectl delete", "kubectl drain", "terraform destroy",
    "terraform apply", "npm config", "npm uninstall", "npm publish", "npm unpublish",
    "pip uninstall", "pip3 uninstall", "pip config", "aws s3 rm", "gh repo delete",
    "redis-cli flushall",
)  # fmt: skip
_OPTIONS = re.compile(
    r"--(?:force\S*|hard|no-verify|no-gpg-sign|no-check\S*|delete|mirror|prune|privileged|insecure"
    r"|allow-\S+|trusted-host\S*|break-system-packages|no-preserve-root|skip\S*|no-tests?\S*"
    r"|deselect\S*|ignore\S*|exclude\S*|passWithNoTests|no-strict\S*|disable\S*|unsafe\S*|yolo"
    r"|dangerously\S*|no-sandbox|bypass\S*|override\S*|exit-zero|continue-on-\S+|nocheck|purge)"
    r"|-DskipTests\S*|-Dmaven\.test\.skip\S*"
)
_SHORT = {
    "git push": frozenset("fd"), "git branch": frozenset("Df"), "git commit": frozenset("n"),
    "git tag": frozenset("fd"), "curl": frozenset("k"), "pip install": frozenset(),
    "npm install": frozenset("f"), "docker run": frozenset(), "pytest": frozenset("k"),
    "cp": frozenset("f"), "mv": frozenset("f"), "ln": frozenset("f"),
}  # fmt: skip
_SHELLS = frozenset("sh bash zsh dash fish python python3 perl ruby node".split())
_VARIABLES = re.compile(
    r"(?:SKIP\w*|HUSKY|CI|NO_VERIFY|FORCE\w*|\w*INSECURE\w*|NODE_TLS_REJECT_UNAUTHORIZED"
    r"|GIT_SSL_NO_VERIFY|PYTHONHTTPSVERIFY|PIP_BREAK_SYSTEM_PACKAGES|LD_\w+|PATH)"
)
_VERBS = frozenset(
    "delete remove drop destroy purge wipe truncate erase disable force override bypass skip kill"
    " terminate revoke reset grant unlink uninstall shutdown cancel".split()
)
_FORCING = re.compile(
    r"force|overrid|bypass|skip|no_?verify|insecure|unsafe|danger|sudo|privileg|admin|confirm"
    r"|disable|ignore|allow|sandbox|escalat|approv|permission",
    re.IGNORECASE,
)
_TEXTS = re.compile(
    r"\brm\s+-\w*[rf]|\bsudo\b|\bchmod\s+(?:-\w+\s+)*(?:0?777|a\+|o\+)|\bgit\s+push\b.*(?:-f\b|--force)"
    r"|--no-verify|\breset\s+--hard|\b(?:curl|wget)\b[^|]*\|\s*(?:\w+\s+)*(?:ba|z|da)?sh\b"
    r"|\b(?:drop|truncate)\s+(?:table|database|schema|index|column)|\bdelete\s+from\b"
    r"|\bupdate\s+\w+\s+set\b|\bgrant\s+\w+.*\bon\b|foreign_key_checks|disable\s+trigger"
    r"|\bdrop\s+constraint|pragma\s+foreign_keys|session_replication_role"
    r"|pytest\.(?:mark\.)?(?:skip|xfail)|unittest\.(?:skip|expectedFailure)|@(?:Disabled|Ignore)\b"
    r"|\b(?:it|describe|test)\.(?:skip|only|todo)\b|\bx(?:it|describe|test)\(|#\[ignore"
    r"|t\.Skip\(|# *noqa|type: *ignore|eslint-disable|@ts-(?:ignore|nocheck|expect-error)"
    r"|pragma: *no cover|verify\s*=\s*False|assert True\b|\|\|\s*true\b|mkfs|:\(\)\s*\{",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"permission|\bdenied\b|forbidden|not (?:allowed|permitted|authori[sz]ed)|\bpolic(?:y|ies)\b"
    r"|\bapprov|haven't granted|\bblocked\b|sandbox|(?:user|human|operator|person)\b.{0,30}"
    r"\b(?:reject|declin|refus|doesn't want|does not want|interrupt)|rejected by|refused by"
    r"|\b(?:pre-commit|pre-push|pre-receive|commit-msg|hook)\b|protected branch",
    re.IGNORECASE,
)
_TALKS = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instruction|prompt|rule|guideline|user|above"
    r"|previous)|\bsystem prompt\b|\byou are now\b|\bnew instructions?\b|\bas an ai\b|<\|?\w*system"
    r"|\b(?:assistant|agent|model|ai)\b.{0,20}\b(?:must|should|shall|please)\b",
    re.IGNORECASE,
)


def is_refusal(printed: str) -> bool:
    """Tell whether an error is the refusal of a person, a policy or a check."""
    return bool(_REFUSED.search(printed))


def talks_to_reader(printed: str, said: str | None = None) -> bool:
    """Tell whether a text that a program printed asks its reader for something.

    said: the part of it that may be quoted, in which also dangerous commands are looked for.
    """
    looked_at = printed if said is None else said
    return bool(_TALKS.search(printed[:LONGEST]) or _TEXTS.search(looked_at[:LONGEST]))


def is_dangerous_command(
    programs: Iterable[str], label: str, words: Sequence[str], variables: Iterable[str] = ()
) -> bool:
    """Tell whether a program with these words must not be proposed. programs: all that it runs."""
    names = {name.rpartition("/")[2] for name in programs}
    return (
        not _PROGRAMS.isdisjoint(names)
        or any(name.startswith("mkfs") for name in names)
        or any(label == one or label.startswith(f"{one} ") for one in _COMMANDS)
        or any(_OPTIONS.fullmatch(part) for word in words for part in (word, word.split("=")[0]))
        or _has_short(label, words)
        or bool(_TEXTS.search(" ".join(words)))
        or (label == "chmod" and any(_loosens(word) for word in words[1:]))
        # `+branch` forces a push, `:branch` deletes one.
        or (label == "git push" and any(re.match(r"[+:]\S", word) for word in words))
        or any(_VARIABLES.fullmatch(name) for name in variables)
    )


def _has_short(label: str, words: Sequence[str]) -> bool:
    short = next((letters for name, letters in _SHORT.items() if label == name), frozenset())
    return any(
        not short.isdisjoint(word[1:]) for word in words if re.fullmatch(r"-[A-Za-z]+", word)
    )


def _loosens(word: str) -> bool:
    """Tell whether a mode gives everybody rights: `777`, `a+w`."""
    mode = re.fullmatch(r"[0-7]{3,4}", word)
    if mode:
        return word[-1] in "2367"
    return bool(re.match(r"[ugoa]*[ao][ugoa]*[+=]\w*[ws]|[+=]\w*w", word))


def runs_what_it_gets(programs: Sequence[str]) -> bool:
    """Tell whether the parts of a pipeline run what a network or another program sends."""
    return any(name.rpartition("/")[2] in _SHELLS for name in programs[1:])


def is_dangerous_call(tool: str, name_words: Sequence[str], texts: Iterable[str]) -> bool:
    """Tell whether a call of a tool must not be proposed. texts: its arguments as text."""
    return not _VERBS.isdisjoint(name_words) or any(map(_TEXTS.search, (tool, *texts)))


def is_forcing(name: str) -> bool:
    """Tell whether an argument by this name switches a check off, or gains rights."""
    return bool(_FORCING.search(name))
