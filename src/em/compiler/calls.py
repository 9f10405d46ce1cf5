"""The calls of a trace: their effects, which ones a routine needs, and names for their results."""

import bisect
import itertools
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from em.compiler.commands import Commands, Taken, is_bookkeeping
from em.runner.expressions.functions import SELECTIONS
from em.traces.trace import Approval, Message, ToolCall, Trace, UdfCall
from em.values.call import Effect
from em.values.canonical import Json

if TYPE_CHECKING:
    from em.runner.routine import ToolSpec

# Words that may mean either (open, resolve, check in, load, run) are in neither list: a call counts
# as a write unless its name clearly says that it reads.
_READS = frozenset(
    "get list find search fetch read query lookup look count show describe calculate compute"
    " parse think view head exists is has inspect browse scan peek summarize extract"
    " compare download stat ls cat grep glob".split()
)
_WRITES = frozenset(
    "create update delete cancel modify send post put patch write set add remove insert exchange"
    " return transfer pay book submit approve upload move rename execute edit save store".split()
)
_THINGS = frozenset(
    "list read query count view look show head stat scan cat compare extract download"
    " summarize is has exists find inspect browse think parse compute".split()
)
_JOINS = frozenset({"and", "or", "then", "n"})
_UNKNOWN_EFFECT = re.compile(
    r"time[d]?[ -]?out|connection|reset by peer|broken pipe|\b5\d\d\b", re.IGNORECASE
)


class TracedCall(msgspec.Struct):
    """One call. `said` is the text of all user messages before it."""

    index: int
    name: str
    is_udf: bool
    args: Json
    result: Any
    error: Any
    effect: Effect
    effect_inferred: bool
    said: str
    shell: str = ""
    """The form of a shell command, whose values are the arguments."""
    via: str = ""
    """The tool that ran the shell command."""
    fixed: Json = {}
    """The values of a shell command that can't be others."""
    creates: tuple[str, ...] = ()
    """The files that a shell command wrote with `>`, if nothing shows that they were there."""
    is_test: bool = False
    """Whether it ran tests, of a shell command of a session."""
    exit_code: int = 0
    """How a shell command ended whose result is what it printed all the same."""

    @property
    def title(self) -> str:
        """The name of the tool; for a shell command its programs."""
        return self.name.rpartition("_")[0] if self.shell else self.name

    @property
    def failed(self) -> bool:
        """Whether the call ended in an error."""
        return self.error is not None

    @property
    def effect_unknown(self) -> bool:
        """Whether this is a write that failed in a way that leaves its effect unknown."""
        return (
            self.failed and self.effect == "write" and bool(_UNKNOWN_EFFECT.search(str(self.error)))
        )


class TracedApproval(msgspec.Struct):
    """A question to a person, asked before the call with this index."""

    index: int
    prompt: str
    answer: Any


def calls_of(
    trace: Trace, declared: Mapping[str, Effect | None], *, as_made: bool = False
) -> tuple[list[TracedCall], list[TracedApproval]]:
    """Return the calls and approvals of a trace, in their order.

    Shell commands are calls of their forms; with `as_made` all calls are as the agent made them.
    """
    commands = Commands(trace)
    calls: list[TracedCall] = []
    approvals: list[TracedApproval] = []
    said: list[str] = []
    for event in trace.events:
        if isinstance(event, Message):
            if event.role == "user":
                said.append(event.text)
        elif isinstance(event, Approval):
            approvals.append(TracedApproval(len(calls), event.prompt, event.answer))
        else:
            call = _call(event, len(calls), "\n".join(said), declared)
            taken = commands.taken(event) if isinstance(event, ToolCall) else None
            calls.append(call if taken is None else _taken_apart(call, taken, as_made=as_made))
    return calls, approvals


def _taken_apart(call: TracedCall, taken: Taken, *, as_made: bool) -> TracedCall:
    known: Json = {"effect": taken.effect or infer_effect(taken.name)}
    if taken.effect is not None:
        known["effect_inferred"] = False
    if as_made:
        return msgspec.structs.replace(call, **known)
    return msgspec.structs.replace(
        call,
        name=taken.name,
        args=taken.args,
        shell=taken.shell,
        via=taken.via,
        fixed=taken.fixed,
        creates=taken.creates,
        **known,
    )


def specs_of(calls: Iterable[TracedCall]) -> "dict[str, ToolSpec]":
    """Return the declaration of each tool that was called, by its name."""
    from em.runner.routine import ToolSpec

    made = [call for call in calls if not call.is_udf]
    overwriting = {call.name for call in made if not call.creates}
    return {
        call.name: ToolSpec(
            name=call.name,
            effect=call.effect,
            effect_inferred=call.effect_inferred,
            shell=call.shell or None,
            via=call.via,
            exit_codes=(call.exit_code,) if call.exit_code else (),
            args_schema={"properties": {name: {"const": text} for name, text in call.fixed.items()}}
            if call.fixed
            else None,
            only_new=call.name not in overwriting,
        )
        for call in made
    }


def _call(
    event: ToolCall | UdfCall, index: int, said: str, declared: Mapping[str, Effect | None]
) -> TracedCall:
    is_udf = isinstance(event, UdfCall)
    name = event.function if isinstance(event, UdfCall) else event.tool
    known = declared.get(name) or (event.effect if isinstance(event, ToolCall) else "read")
    if known is None and is_bookkeeping(name):
        known = "read"
    return TracedCall(
        index=index,
        name=name,
        is_udf=is_udf,
        args=event.args,
        result=event.result,
        error=event.error,
        effect=known or infer_effect(name),
        effect_inferred=known is None,
        said=said,
    )


def infer_effect(name: str) -> Effect:
    """Infer a tool's effect from its name; in doubt it is a write."""
    words = words_of(name)
    if not words or not _WRITES.isdisjoint(words):
        return "write"
    # A name with two verbs reads only if both read: find_and_replace.
    if any(one in _JOINS and other not in _READS for one, other in itertools.pairwise(words)):
        return "write"
    # Some verbs are also nouns: purge_list, drop_view, run_query.
    reads = words[0] in _READS or not (_READS - _THINGS).isdisjoint(words)
    return "read" if reads else "write"


def is_named_write(name: str) -> bool:
    """Return whether a tool's name says that it writes; `infer_effect` also assumes it in doubt."""
    return not _WRITES.isdisjoint(words_of(name))


READING_VERBS = frozenset(
    "get list find search fetch read query lookup look check show describe view load select"
    " calculate compute parse extract resolve retrieve download".split()
)
_CUTS = frozenset("by with for from in of using via".split())
_RESERVED = frozenset(
    {*SELECTIONS, "len", "sum", "str", "int", "float", "nth", "true", "false", "none"}
)
"""Functions of compiled expressions, and words that Jinja reads as values."""
_NOISE = frozenset("details detail info information data all the".split())


def words_of(name: str) -> list[str]:
    """Split a name into lower-case words, whatever its style."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)]


def result_name(tool: str, *, is_write: bool) -> str:
    """Name the result of a call: `get_order_details` gives `order`."""
    words = words_of(tool)
    if is_write or not words or words[0] not in READING_VERBS:
        return identifier(f"{tool}_result")
    rest = words[1:]
    for cut, word in enumerate(rest):
        if word in _CUTS and cut > 0:
            rest = rest[:cut]
            break
    kept = [word for word in rest if word not in _NOISE]
    return identifier("_".join(kept) or f"{tool}_result")


def read_name(tool: str, calls: Iterable["TracedCall"]) -> str:
    """Name a read in expressions. An argument of the same name would hide it: `van(van)`."""
    name = result_name(tool, is_write=False)
    is_taken = any(name == identifier(argument) for call in calls for argument in call.args)
    return f"{name}_read" if is_taken else name


def identifier(text: str) -> str:
    """Turn a text into a name that expressions can use."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower() or "value"
    if name[0].isdigit() or keyword.iskeyword(name) or name in _RESERVED:
        name = f"the_{name}"
    return name


class Names:
    """Gives each name once: `order`, `order_2`, …"""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def free(self, name: str) -> str:
        """Return the name, or the first numbered one that is free."""
        free, number = name, self._taken.get(name, 1)
        while free in self._taken:
            number += 1
            free = f"{name}_{number}"
        self._taken.setdefault(free, 1)
        self._taken[name] = number
        return free


def tried_in_vain(calls: Sequence[TracedCall]) -> TracedCall | None:
    """Return the last write of a trace, if every one failed: it did nothing of what it tried."""
    writes = [call for call in calls if call.effect == "write" and not is_bookkeeping(call.name)]
    in_vain = all(call.failed and not call.effect_unknown for call in writes)
    return writes[-1] if writes and in_vain else None


class Verdict(NamedTuple):
    """Whether a routine keeps a call, and the reason."""

    keep: bool
    reason: str


def judge(calls: Sequence[TracedCall]) -> list[Verdict]:
    """Judge each call before it is known which results are used."""
    verdicts: list[Verdict] = []
    later = Later(calls)
    # The reads since the last effect, by what they were called with and what they returned.
    reads: dict[bytes, int] = {}
    for call in calls:
        if is_bookkeeping(call.name) and call.effect == "read":
            verdicts.append(Verdict(False, "the agent's own notes: no effect"))
        elif call.failed:
            verdicts.append(_judge_failed(call, later))
        elif call.effect == "write":
            verdicts.append(Verdict(True, "it has an effect"))
        else:
            key = msgspec.json.encode((_key(call), call.result), order="sorted")
            first = reads.setdefault(key, call.index)
            again = first != call.index
            reason = f"repeats call {first + 1}" if again else "its result is used"
            verdicts.append(Verdict(not again, reason))
        if call.effect == "write" and not (call.failed and not call.effect_unknown):
            reads.clear()
    return verdicts


def judged_reads(calls: Sequence[TracedCall]) -> list[int]:
    """Return the numbers of the reads that a routine may keep."""
    judged = zip(calls, judge(calls), strict=True)
    return [call.index for call, verdict in judged if verdict.keep and call.effect == "read"]


class Later:
    """The calls that succeeded, by what they did, to find the one that replaced a failed one."""

    def __init__(self, calls: Sequence[TracedCall]) -> None:
        self._same: dict[bytes, list[int]] = {}
        self._named: dict[str, list[int]] = {}
        self._kinds: dict[str, list[int]] = {}
        for call in calls:
            if not call.failed:
                self._same.setdefault(_key(call), []).append(call.index)
                self._named.setdefault(call.name, []).append(call.index)
                self._kinds.setdefault(kind_of_result(call.name), []).append(call.index)

    def same(self, call: TracedCall) -> int | None:
        """Return the next call that did exactly the same."""
        return _after(self._same.get(_key(call), []), call.index)

    def replacing(self, call: TracedCall) -> int | None:
        """Return the next call of the same tool, or of one with the same kind of result.

        `find_user_id_by_name_zip` replaces `find_user_id_by_email`.
        """
        named = _after(self._named.get(call.name, []), call.index)
        alike = _after(self._kinds.get(kind_of_result(call.name), []), call.index)
        return min((one for one in (named, alike) if one is not None), default=None)


def _after(indexes: list[int], index: int) -> int | None:
    at = bisect.bisect_right(indexes, index)
    return indexes[at] if at < len(indexes) else None


def _judge_failed(call: TracedCall, later: Later) -> Verdict:
    if call.effect_unknown:
        again = later.same(call)
        if again is None:
            return Verdict(True, "failed; it is unknown whether it took effect")
        # Keeping both would do it twice on every run that works.
        return Verdict(False, f"failed, effect unknown; call {again + 1} did the same")
    retry = later.replacing(call)
    if retry is not None:
        return Verdict(False, f"failed; retried successfully in call {retry + 1}")
    return Verdict(False, "failed; no later call replaced it")


def unused(verdict: Verdict) -> Verdict:
    """Return the verdict on a read whose result nothing uses."""
    return Verdict(False, "nothing uses its result") if verdict.keep else verdict


def kind_of_result(tool: str) -> str:
    """Return the kind of a tool's result: its name up to `by`, `with` and the like."""
    words = words_of(tool)
    for cut, word in enumerate(words):
        if word in ("by", "with", "using", "via", "from") and cut > 0:
            return " ".join(words[:cut])
    return " ".join(words)


def _key(call: TracedCall) -> bytes:
    return msgspec.json.encode((call.is_udf, call.name, call.args), order="sorted")
