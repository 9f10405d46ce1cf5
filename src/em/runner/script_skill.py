"""Script skill: a SKILL.md with a script that an agent wrote, stored in versions.

It was tried on recordings (`compiler/submission.py`), and is proposed until a person accepts it.
em never runs the script: an agent does, which em's own skill tells of those in use.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath

import msgspec

from em.errors import RoutineError, UsageError
from em.log.event import Draft, routine_stream
from em.log.kinds import event_body
from em.runner.card import retired_refs
from em.runner.package import PROOF, parse_yaml, proof_of
from em.runner.retirement import InUse, RoutineRetired
from em.runner.tools import one_line, tool_name
from em.runner.trial import AS_RECORDED, LEFT_OUT, Proof, Trials, render_proof
from em.store.protocol import Artefact, ArtefactDraft, Commit, Store
from em.values.canonical import Json

SKILL = "SKILL.md"
KIND = "skill"
PREFIX = "skill:"
"""What the name of a stored skill begins with, so that it is no routine's."""
LONGEST_ABOUT = 200


@event_body("skill_accepted")
class SkillAccepted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person accepted a version of a skill: it is in use."""

    skill: str
    by: str = ""


class ScriptSkill(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a skill.

    ref: `skill:NAME@VERSION`. name, about: as SKILL.md says. tried: how it did on recordings, in
    words, and `at` when. inputs: the names of what its script is given. from_events: how many
    recorded events it was made of.
    """

    ref: str
    name: str
    about: str
    state: str
    files: Mapping[str, str]
    tried: str = ""
    at: datetime | None = None
    inputs: Sequence[str] = ()
    from_events: int = 0

    @property
    def script(self) -> str:
        """The path of its script in its folder."""
        return script_in(self.files)


def script_in(files: Mapping[str, str]) -> str:
    """Return the script of a skill. Raise UsageError if files are no skill, or leave its folder."""
    scripts = [name for name in files if name.endswith(".py")]
    if SKILL not in files or len(scripts) != 1:
        raise UsageError(
            f"a skill has {SKILL} and one script in Python, got {', '.join(sorted(files)) or '-'}",
            place="files",
            fix="send routine.yaml and udf.py, or SKILL.md and scripts/NAME.py",
        )
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not name.isprintable():
            raise UsageError("a file must stay in the skill's folder", place=name)
    return scripts[0]


def about_of(files: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of a skill and what it does, as the head of SKILL.md says."""
    _, sign, rest = files[SKILL].partition("---\n")
    head, end, _ = rest.partition("\n---")
    said = parse_yaml(head.encode(), SKILL) if sign and end else None
    found = [said.get(name) for name in ("name", "description")] if isinstance(said, dict) else []
    if len(found) < 2 or not all(isinstance(one, str) and one.strip() for one in found):
        raise UsageError(
            f"{SKILL} has no name and description",
            place=SKILL,
            fix="begin it with ---, name: NAME, description: TEXT and ---",
        )
    return tool_name(str(found[0])), one_line(str(found[1]), LONGEST_ABOUT)


def keep_skill(
    store: Store,
    files: Mapping[str, str],
    proof: Proof,
    inputs: Sequence[str],
    from_events: Sequence[str],
) -> ScriptSkill:
    """Store a skill that was tried, out of use, as a new version."""
    name = f"{PREFIX}{about_of(files)[0]}"
    body: Json = {"files": {**files, PROOF: render_proof(proof)}, "inputs": [*inputs]}
    draft = ArtefactDraft(kind=KIND, name=name, body=body, from_events=from_events, retired=True)
    (artefact,) = store.commit(Commit(artefacts=[draft])).artefacts
    return _read(store, artefact)


def kept_skills(store: Store) -> Iterator[ScriptSkill]:
    """Return every version of every stored skill."""
    return (_read(store, one) for one in store.artefacts(KIND) if one.body is not None)


def skills_in_use(store: Store) -> list[ScriptSkill]:
    """Return the newest version in use of each skill."""
    newest = {one.name: one for one in kept_skills(store) if one.state == "in use"}
    return [newest[name] for name in sorted(newest)]


def find_skill(store: Store, ref: str) -> ScriptSkill | None:
    """Return `skill:NAME@VERSION`, or the newest version of `skill:NAME`; None if it is none."""
    if not ref.startswith(PREFIX):
        return None
    found = [one for one in kept_skills(store) if ref in (one.ref, one.ref.partition("@")[0])]
    return found[-1] if found else None


def accept_skill(store: Store, skill: ScriptSkill, *, by: str = "") -> InUse:
    """Put a version in use on a person's word."""
    changed = skill.state != "in use"
    if changed:
        _change(store, skill, "skill_accepted", SkillAccepted(skill=skill.ref, by=by))
    return InUse(routine=skill.ref, changed=changed, now=skill.ref)


def retire_skill(store: Store, skill: ScriptSkill, *, by: str = "") -> InUse:
    """Take a version out of use."""
    changed = skill.state == "in use"
    if changed:
        _change(store, skill, "routine_retired", RoutineRetired(routine=skill.ref, by=by))
    return InUse(routine=skill.ref, changed=changed)


def _change(
    store: Store, skill: ScriptSkill, kind: str, body: SkillAccepted | RoutineRetired
) -> None:
    name, _, number = skill.ref.partition("@")
    artefact = store.artefact(KIND, name, int(number))
    if artefact is None:
        raise RoutineError("it was forgotten just now", place=skill.ref)
    note = Draft(stream=routine_stream(name), kind=kind, body=msgspec.to_builtins(body))
    out, back = ([artefact.id], []) if kind == "routine_retired" else ([], [artefact.id])
    store.commit(Commit(events=[note], retire=out, restore=back))


def _read(store: Store, artefact: Artefact) -> ScriptSkill:
    body = artefact.body or {}
    files = {name: text for name, text in body["files"].items() if name != PROOF}
    name, about = about_of(files)
    proof = proof_of(body["files"])
    trials = () if proof is None else proof.trials.get(LEFT_OUT) or proof.trials[AS_RECORDED]
    out_of_use = "retired" if artefact.ref in retired_refs(store) else "proposed"
    return ScriptSkill(
        ref=artefact.ref,
        name=name,
        about=about,
        state="in use" if artefact.retired_at is None else out_of_use,
        files=files,
        tried=Trials(trials).summary,
        at=None if proof is None else proof.at,
        inputs=body["inputs"],
        from_events=len(artefact.from_events),
    )
