"""Recordings: traces of one kind of task as examples, and what some of them teach.

Sessions of a coding agent are examples too: their tools are edits and shell commands, and what they
changed in files is their effect.

Few recordings show few values, so limits of inputs that are learnt from them are a guess. Where a
tool declares what it takes, its word counts for an input that goes into its argument as it is. An
input that decides anything else of the routine keeps its learnt limits.
"""

import copy
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import msgspec

from em.compiler.calls import TracedCall, calls_of, identifier, plain_name, specs_of
from em.compiler.checks import checks_of_reason, walked, with_struck
from em.compiler.confirmations import with_confirmations
from em.compiler.evidence import BY_PERSON, CONSTANTS_SHOWN, Caution, is_small
from em.compiler.example import APPROVAL, Call, Example, example_of
from em.compiler.file_changes import session_of
from em.compiler.learner import Learnt, learn, question, tools_of, with_ids
from em.compiler.places import Missing
from em.compiler.replay_world import Recording, as_recorded, program_of
from em.compiler.request_templates import cut_out, request_templates
from em.compiler.requested import with_requested
from em.compiler.session_routine import learn_sessions
from em.compiler.sessions import FILES, Sessions, UnseenEnd, is_session, sessions_of
from em.compiler.steps import literal_value
from em.errors import NotFound, RoutineError
from em.redaction.redactor import MARKER
from em.runner.expressions.language import acting
from em.runner.routine import NO_REVIEW, Review
from em.runner.tools.coding import CREATE, FILE_THERE
from em.traces.trace import KeptTrace
from em.values.call import Effect
from em.values.canonical import Json, same, short
from em.values.json_schema import problems, properties_of, schema_problem
from em.values.leaves import texts

MOST_REFUTED = 20
"""Checks that one recording may refute; then something else is wrong."""
VALUES_SHOWN = 5
_AS_INPUT = "leave it an input"
FEWEST_SESSIONS = 2
"""Sessions from which on what they changed in files is compared."""


class Recordings:
    """Recordings of one kind of task.

    review, struck: what a person said.
    before: what was said about a stored version, as far as it names something in these recordings;
    `review` has precedence.
    """

    def __init__(
        self,
        name: str,
        traces: Sequence[KeptTrace],
        declared: Mapping[str, Effect | None] | None = None,
        *,
        keep_all: bool = False,
        review: Review = NO_REVIEW,
        before: Review = NO_REVIEW,
        struck: Sequence[str] = (),
        inputs_before: Mapping[str, Json] | None = None,
    ) -> None:
        self._inputs_before = inputs_before or {}
        self.name, self._traces, self._declared = name, traces, declared or {}
        self._review, self._struck = review, struck
        self._secrets: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        self._session_inputs: Mapping[str, Sequence[Any]] = {}
        self._is_session = (
            len(traces) >= FEWEST_SESSIONS
            and not keep_all
            and all(is_session(kept.trace) for kept in traces)
        )
        if self._is_session:
            self._take_sessions()
        if not self._is_session:
            made = [example_of(kept, declared, keep_all=keep_all) for kept in traces]
            made = [self._with_secrets(self._with_names(one)) for one in made]
            self.examples = with_requested(made)
        self._review = self._joined(before, review)
        self._check_constants()
        if not self._is_session:
            self.examples = [self._reviewed(one) for one in self.examples]

    def with_inputs(self, names: Sequence[str]) -> Self:
        """Return the same recordings, in which these arguments are inputs too."""
        inputs = tuple(dict.fromkeys([*self._review.inputs, *names]))
        other = copy.copy(self)
        other._review = msgspec.structs.replace(self._review, inputs=inputs)
        other.examples = [other._reviewed(one) for one in self.examples]
        return other

    def learnt(self, numbers: Sequence[int] | None = None) -> Learnt:
        """Return what all recordings teach, or those with these numbers."""
        chosen = [*range(len(self.examples))] if numbers is None else [*numbers]
        is_compared = self._is_session and len(chosen) >= FEWEST_SESSIONS
        if is_compared:
            found = self._learnt_sessions(chosen)
        else:
            examples = [self.examples[number] for number in chosen]
            found = learn(self.name, examples, caution=self._caution(len(chosen)))
            found = self._with_contracts(found, examples)
            if numbers is None:
                # What some of them teach is tried with typed inputs, not with requests.
                found = self._with_templates(found, examples)
        for name, one in found.routine["input_schema"].get("properties", {}).items():
            if name in self._titles:
                one["title"] = self._titles[name]
        return self._as_said(found._replace(routine=self._unrefuted(found, chosen)))

    def _learnt_sessions(self, chosen: Sequence[int]) -> Learnt:
        traces = [self._traces[number].trace for number in chosen]
        # What some sessions say may give an input another name than what all say.
        named = {
            tuple(values[number] for number in chosen): name
            for name, values in self._session_inputs.items()
        }
        return learn_sessions(self.name, traces, self._declared, named)

    def _as_said(self, found: Learnt) -> Learnt:
        """Return what was learnt with what a person said about it."""
        document = with_struck(self._with_specs(found.routine), self._struck)
        if self._review != NO_REVIEW:
            document = {**document, "review": msgspec.to_builtins(self._review)}
        return found._replace(routine=document)

    def document(self, numbers: Sequence[int]) -> Json:
        """Return the routine that the recordings with these numbers teach."""
        return self.learnt(numbers).routine

    def _caution(self, count: int) -> Caution:
        """Return how much must be known: a person sees the one recording, and what is assumed."""
        chosen = BY_PERSON if count == 1 else CONSTANTS_SHOWN
        return msgspec.structs.replace(chosen, constants=self._constants())

    # ---- what a person said

    def _joined(self, before: Review, now: Review) -> Review:
        """Return what was said before and now; the latter has precedence."""
        told = {_bare(name) for name in (*now.inputs, *now.constants)}

        def join(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
            kept = (name for name in old if _bare(name) not in told and any(self._recorded(name)))
            return tuple(dict.fromkeys([*kept, *new]))

        return Review(
            inputs=join(before.inputs, now.inputs), constants=join(before.constants, now.constants)
        )

    def _recorded(self, wanted: str) -> list[list[Any]]:
        """Return, by recording, the values of an input, else those of the arguments of a name."""
        if any(wanted in example.inputs for example in self.examples):
            return [
                [example.inputs[wanted]] if wanted in example.inputs else []
                for example in self.examples
            ]
        return [[*_arguments(example, wanted)] for example in self.examples]

    def _check_constants(self) -> None:
        """Raise if a constant was not the same in all recordings, or is a secret."""
        for wanted in self._review.constants:
            recorded = self._recorded(wanted)
            if not any(recorded):
                raise self._unknown(wanted, "--constant", "input or argument")
            every = [one for found in recorded for one in found]
            values = {msgspec.json.encode(one, order="sorted"): one for one in every}
            if any(MARKER.search(text) for text in texts([*values.values()])):
                raise RoutineError(f"{wanted!r} is a secret", place="--constant", fix=_AS_INPUT)
            if len(values) > 1 or not all(recorded):
                shown = " and ".join(short(one) for one in [*values.values()][:VALUES_SHOWN])
                raise RoutineError(
                    f"{wanted!r} was not the same in all recordings: {shown}"
                    + ("" if all(recorded) else ", or not given"),
                    place="--constant",
                    fix=_AS_INPUT,
                )

    def _constants(self) -> frozenset[str]:
        """Return the constants; where an input gave an argument that is one, the input is one."""
        found = {*self._review.constants}
        for wanted in self._review.constants:
            value = next(one for values in self._recorded(wanted) for one in values)
            found |= {
                name
                for name in self.examples[0].inputs
                if name == _bare(wanted) or not is_small(value)
                if all(same(one.inputs.get(name), value) for one in self.examples)
            }
        return frozenset(found)

    def require_said(self, learnt: Learnt) -> None:
        """Raise if a routine does not have the inputs and constants that a person wants."""
        given = learnt.routine["input_schema"].get("properties", {})
        stays = [name for name in sorted(self._constants()) if name in given]
        if stays:
            raise RoutineError(
                f"{stays[0]!r} can't be made a constant of this routine",
                place="--constant",
                fix=_AS_INPUT,
            )
        lacks = [name for name in self._review.inputs if _bare(name) not in given]
        if lacks:
            raise RoutineError(
                f"{lacks[0]!r} can't be made an input of this routine",
                place="--input",
                fix="leave it a constant",
            )

    def _reviewed(self, example: Example) -> Example:
        """Return an example with the inputs that a person wants."""
        inputs = dict(example.inputs)
        for wanted in self._review.inputs:
            if _bare(wanted) not in inputs:
                found = [*_arguments(example, wanted)]
                if not found:
                    raise self._unknown(wanted, "--input", "argument")
                inputs[_bare(wanted)] = found[0]
        return example if same(inputs, example.inputs) else example.with_inputs(inputs)

    def _unknown(self, wanted: str, option: str, what: str) -> NotFound:
        known = {
            f"{call.tool}.{name}"
            for example in self.examples
            for call in example.calls
            for name in call.args
        }
        known |= {name for example in self.examples for name in example.inputs}
        return NotFound(
            f"the recordings have no {what} {wanted!r}",
            place=option,
            fix=f"name one of: {', '.join(sorted(known))[:600]}",
        )

    def _with_names(self, example: Example) -> Example:
        """Return an example whose inputs have names that expressions can use.

        A caller may still give them under the names that were recorded.
        """
        named = {name: plain_name(name) for name in example.inputs}
        if all(name == own for name, own in named.items()):
            return example
        self._titles |= {own: name for name, own in named.items() if own != name}
        return example.with_inputs({named[name]: one for name, one in example.inputs.items()})

    # ---- secrets

    def _with_secrets(self, example: Example) -> Example:
        """Return an example in which each secret that no read returned is an input."""
        known: list[str] = []
        given: Json = {}
        for call in example.calls:
            if call.error is not None:
                continue
            for text in texts(call.args):
                for marker in MARKER.findall(text):
                    if not any(marker in one for one in known):
                        given[self._secret_name(example, marker)] = marker
            known += texts(call.result)
        return example.with_inputs({**example.inputs, **given}) if given else example

    def _secret_name(self, example: Example, marker: str) -> str:
        if marker not in self._secrets:
            own = [name for name, value in example.inputs.items() if value == marker]
            bare = re.sub(r"^\[redacted:|\]$", "", marker)
            self._secrets[marker] = own[0] if own else identifier(bare)
        return self._secrets[marker]

    @property
    def secrets(self) -> dict[str, str]:
        """The markers of secrets that a caller must give, by name."""
        return {name: marker for marker, name in self._secrets.items()}

    # ---- the document

    def _unrefuted(self, learnt: Learnt, chosen: Sequence[int]) -> Json:
        """Return a routine without the checks that its own recordings refute."""
        document = learnt.routine
        program = program_of(document)
        asked = self.asked(learnt, len(chosen))
        for number, more in zip(chosen, asked, strict=True):
            for _ in range(MOST_REFUTED):
                world = as_recorded(Recording.of(self.examples[number], document, more), {})
                world.run(program)
                checks = checks_of_reason(document, world.reason) if world.reason else []
                if not checks:
                    break
                struck = with_struck(document, [check.text for check in checks])
                document = {name: one for name, one in struck.items() if name != "struck"}
                program = program_of(document)
        return document

    def _with_contracts(self, found: Learnt, examples: Sequence[Example]) -> Learnt:
        """Return a routine whose inputs may be what the tools declare that they take."""
        tools = {name: one for kept in self._traces for name, one in kept.trace.tools.items()}
        if not tools:
            return found
        document = found.routine
        asked = self.asked(found, len(examples))
        inputs = [{**one.inputs, **more} for one, more in zip(examples, asked, strict=True)]
        schema = with_contracts(document["input_schema"], document["steps"], tools, inputs)
        return found._replace(routine={**document, "input_schema": schema})

    def _with_templates(self, found: Learnt, examples: Sequence[Example]) -> Learnt:
        """Return a routine with the wordings in which recordings asked for it."""
        document = found.routine
        complete = [
            one.with_inputs({**one.inputs, **_said(more, one, document["input_schema"])})
            for one, more in zip(examples, self.asked(found, len(examples)), strict=True)
        ]
        program, saved = program_of(document), list[Json]()
        for one in complete:
            world = as_recorded(Recording(one.inputs, one.calls), {})
            world.run(program)
            saved.append(world.saved)
        document, said, names = with_confirmations(document, complete, saved)
        templates = request_templates(said, document["input_schema"], names)
        if not templates:
            return found
        head = {name: document[name] for name in ("version", "name", "checks", "input_schema")}
        return found._replace(routine={**head, "requests": templates, **document})

    def _with_specs(self, document: Json) -> Json:
        """Return a routine whose shell commands are declared by their forms."""
        if self._is_session:
            return document
        calls: dict[str, TracedCall] = {}
        for kept in self._traces:
            for call in calls_of(kept.trace, self._declared)[0]:
                calls.setdefault(call.name, call)
        specs = specs_of(calls.values())
        tools = []
        for tool in document["tools"]:
            spec = specs.get(tool["name"])
            if spec is None:
                tools.append(tool)
                continue
            spec = msgspec.structs.replace(spec, effect=None, effect_inferred=False)
            more = msgspec.to_builtins(spec)
            tools.append({**tool, **{name: one for name, one in more.items() if name != "name"}})
        return {**document, "tools": tools}

    def with_secrets(self, document: Json) -> Json:
        """Return a routine that takes its secrets from the environment, not from its caller."""
        schema = document["input_schema"]
        names = [name for name in self.secrets if name in schema.get("properties", {})]
        if not names:
            return document
        kept = {key: one for key, one in schema["properties"].items() if key not in names}
        required = [name for name in schema.get("required", ()) if name not in names]
        made = {**schema, "properties": kept, "required": required}
        if not required:
            del made["required"]
        first = ("version", "name", "checks")
        head: Json = {name: document[name] for name in first if name in document}
        secrets = [{"name": name} for name in names]
        return {
            **head,
            "input_schema": made,
            "secrets": secrets,
            **{name: one for name, one in document.items() if name not in (*head, "input_schema")},
        }

    # ---- sessions

    def _take_sessions(self) -> None:
        """Take the recordings as sessions, if they changed files in ways that can be compared."""
        try:
            self.examples = [*self._sessions()]
        except UnseenEnd:
            raise
        except RoutineError:
            self._is_session = False

    def _sessions(self) -> Iterator[Example]:
        """Yield sessions as examples: how files were before, what was changed, and test runs."""
        found = sessions_of([kept.trace for kept in self._traces], self._declared)
        if not found.checks and not any(call.name in FILES for call in found.effects[0]):
            # Commands have arguments with names of their own, as other calls do.
            raise RoutineError("the sessions changed no file but by commands", place="traces")
        learnt = self._learnt_sessions(range(len(self._traces)))
        if self._inputs_before:
            self._session_inputs = {
                self._name_before(*one): one[1] for one in learnt.values.items()
            }
            learnt = self._learnt_sessions(range(len(self._traces)))
        self._session_inputs = learnt.values
        said = {name: one for name, one in learnt.values.items() if name not in learnt.asked}
        for number, kept in enumerate(self._traces):
            session = session_of(kept.trace, self._declared)
            assert session is not None, "sessions_of took it"
            effects = found.effects[number]
            first = min(call.index for call in effects)
            # Files that are changed in a row may be changed in any order: all have the first one's.
            reads = [call for call in session.calls if call.effect == "read"]
            looks = [one.calls[number] for one in found.every_look]
            early = [call for call in reads if call.index < first or call in looks]
            calls = [*self._looks(found, number), *map(_call, (*early, *effects))]
            given = found.inputs[number] | {name: one[number] for name, one in said.items()}
            about = {"name": kept.id, "subject": kept.subject or ""}
            yield Example(given, calls, request=found.prompts[number], **about)

    def _name_before(self, name: str, values: Sequence[Any]) -> str:
        """Return the name that an input had in an earlier version, by its values there."""
        pairs = zip(self._traces, values, strict=True)
        known = {kept.id: value for kept, value in pairs if kept.id in self._inputs_before}
        before = [(self._inputs_before[one], value) for one, value in known.items()]
        every = before[0][0] if before else {}
        alike = [one for one in every if all(own.get(one) == value for own, value in before)]
        return alike[0] if len(alike) == 1 else name

    @staticmethod
    def _looks(found: Sessions, number: int) -> Iterator[Call]:
        for look in found.looks:
            call = look.calls[number]
            if call is not None and call.index < 0:
                yield _call(call)
        for effect in found.effects[number]:
            if effect.name == CREATE:
                path = {"file_path": effect.args["file_path"]}
                yield Call(FILE_THERE, path, result=False)
        for check in found.checks:
            made = check.look.calls
            yield _call(made[number] or next(call for call in made if call is not None))

    def asked(self, learnt: Learnt, count: int = 0) -> list[Json]:
        """Return, by recording, what inputs were that nothing explains.

        count: how many recordings it was learnt from; all unless it is given.
        """
        count = count or len(self.examples)
        return [
            {
                name: values[number]
                for name, values in learnt.values.items()
                if len(values) == count
                and not any(isinstance(one, Missing) for one in _parts(values[number]))
            }
            for number in range(count)
        ]

    def flat(self) -> "Recordings":
        """Return the same without loops: every write is one of its own."""
        made = copy.copy(self)
        made.examples = [one.flat() for one in self.examples]
        return made

    def verbatim(self) -> Learnt:
        """Return the calls of the one recording as they are: every value is a constant."""
        (example,) = self.examples
        calls = [call for call in example.calls if call.error is None]
        steps: list[Json] = []
        for number, call in enumerate(calls, 1):
            args = literal_value(call.args)
            saved = {"args": args, "save_as": f"result_{number}"}
            if call.tool == APPROVAL:
                asked = {"id": f"approval_{number}", **saved, "save_as": f"approval_{number}"}
                steps += question(asked, [call.result["answer"]])
            elif call.is_udf:
                steps.append({"type": "udf.call", "function": call.tool, **saved})
            else:
                own = {"effect": call.effect} if call.effect == "write" else {}
                steps.append({"type": "tool.call", "tool": call.tool, **saved, **own})
        saved_names = [step["save_as"] for step in steps if step["type"].endswith(".call")]
        last = f"{{{{ {saved_names[-1]} }}}}" if saved_names else None
        value = last if example.output is None else literal_value(example.output)
        steps.append({"type": "return", "value": value})
        steps = [*with_ids(steps)]
        constants = [
            (f"{call.tool}.{name}", value)
            for call in calls
            for name, value in call.args.items()
            if call.tool != APPROVAL
        ]
        schema = {"type": "object", "properties": {}, "additionalProperties": False}
        document = {
            "version": "1",
            "name": self.name,
            "checks": "hand_over",
            "input_schema": schema,
            "tools": tools_of(steps),
            "steps": steps,
        }
        return self._as_said(Learnt(document, constants, []))


def _said(asked: Json, example: Example, schema: Json) -> Json:
    """Return the inputs that nothing explains as far as the request says them; or a yes or no."""
    return {
        name: value
        for name, value in asked.items()
        if value is None
        or isinstance(value, bool)
        or cut_out(example.with_inputs({name: value}), schema) is not None
    }


def _bare(name: str) -> str:
    """Return the name of an argument without its tool."""
    return name.rpartition(".")[2]


def _arguments(example: Example, wanted: str) -> Iterator[Any]:
    """Yield what an argument was: `subject`, `send_mail.subject` or `send_mail_subject`."""
    for call in example.calls if wanted else ():
        names = {wanted, *(wanted.removeprefix(f"{call.tool}{sign}") for sign in "._")}
        if call.error is None:
            yield from _fields(call.args, names)


def _fields(value: Any, names: set[str]) -> Iterator[Any]:
    """Yield the fields with these names, also those of records in records and lists."""
    if isinstance(value, list):
        for one in value:
            yield from _fields(one, names)
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from [one] if name in names else _fields(one, names)


def _parts(value: Any) -> Iterator[Any]:
    """Yield a value, and the elements of a list: one round may lack what others have."""
    yield value
    if isinstance(value, list):
        yield from value


def _call(call: TracedCall) -> Call:
    return Call(call.name, call.args, call.result, call.error, call.effect, call.is_udf)


_WHOLE = re.compile(r"\{\{ ([A-Za-z_]\w*)(?: if given\(\1\) else omitted)? \}\}")
_WORD = re.compile(r"[A-Za-z_]\w*")
_LOOKS = ("enum", "pattern", "format", "minLength", "minimum", "maximum", "exclusiveMinimum")
"""Limits that recordings suggest of a single value."""


def with_contracts(
    schema: Json, steps: Sequence[Json], tools: Mapping[str, Json], recorded: Sequence[Json]
) -> Json:
    """Return a schema of inputs with what tools declare of the arguments that inputs go into.

    tools: by name, the JSON Schema of each declared parameter. recorded: inputs of the recordings;
    a declaration that they don't fit is left.
    """
    own, declared = properties_of(schema), _declared(steps, tools)
    made = {}
    for name, one in own.items():
        values = [each[name] for each in recorded if name in each]
        joined = _joined(one, declared[name]) if name in declared else one
        is_true = schema_problem(joined) is None and not any(
            any(problems(joined, value)) for value in values
        )
        made[name] = joined if is_true else one
    return {**schema, "properties": made} if made != own else schema


def _declared(steps: Sequence[Json], tools: Mapping[str, Json]) -> Json:
    """Return what is declared of inputs that do nothing but go into arguments."""
    uses: dict[str, list[Any]] = defaultdict(list)
    elsewhere: set[str] = set()
    for step in walked(steps):
        parameters = tools.get(step.get("tool", ""), {})
        args = step.get("args", {})
        for name, value in args.items():
            whole = _WHOLE.fullmatch(value) if isinstance(value, str) else None
            if whole:
                uses[whole[1]].append(parameters.get(name))
        elsewhere.update(_words_elsewhere(step))
    return {
        name: found[0]
        for name, found in uses.items()
        if name not in elsewhere and isinstance(found[0], dict)
        if all(same(one, found[0]) for one in found)
    }


def _words_elsewhere(step: Json) -> Iterator[str]:
    """Yield the words of a step but for inputs that are an argument; a check decides nothing."""
    for text in texts([*acting(step)]) if step.get("type") != "assert" else ():
        if not _WHOLE.fullmatch(text):
            yield from _WORD.findall(text)


def _joined(learnt: Any, declared: Any) -> Any:
    """Return what was learnt of a value with what is declared of it."""
    if not isinstance(learnt, dict) or not isinstance(declared, dict):
        return learnt
    made = dict(learnt)
    if made.get("type") == declared.get("type") == "string" and _is_free(made, declared):
        made = {name: one for name, one in made.items() if name != "enum"} | {"minLength": 1}
    if declared.keys() & {"enum", "pattern", "minimum", "maximum", "exclusiveMinimum", "format"}:
        made = {name: one for name, one in made.items() if name not in _LOOKS}
    if (made.get("type"), declared.get("type")) == ("integer", "number"):
        made["type"] = "number"
    for word, one in declared.items():
        if word == "items":
            made["items"] = _joined(made.get("items", {}), one)
        elif word == "properties" and isinstance(one, dict):
            inner = properties_of(made)
            known = {name: _joined(inner.get(name, {}), each) for name, each in one.items()}
            made["properties"] = {**inner, **known}
        elif word not in ("type", "minItems"):
            made[word] = one
    return made


def _is_free(learnt: Json, declared: Json) -> bool:
    """Return whether recorded words are names, so that another name may stand in their place."""
    said = str(declared.get("description", "")).casefold()
    is_limited = declared.keys() & {"enum", "pattern", "format"}
    words = [str(one) for one in learnt.get("enum", ())]
    is_listed = all(one.casefold() in said for one in words)
    has_names = any(one != one.casefold() for one in words)
    return bool(said) and has_names and not is_limited and not is_listed
