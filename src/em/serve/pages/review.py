"""What a person looks at before they keep or use a routine, and what is open about it."""

from collections.abc import Sequence

import msgspec

from em.compiler.checks import document_of, is_plain
from em.compiler.compile_trace import Compiled
from em.compiler.evidence import ENOUGH_ALIKE
from em.compiler.export.function import function_text
from em.compiler.outline import Constant, Outline, open_constants, outline_of
from em.errors import ExportError
from em.runner.package import ROUTINE, KeptRoutine, proof_of
from em.runner.trial import AS_RECORDED
from em.values.canonical import Json


class Reviewed(msgspec.Struct, frozen=True, kw_only=True):
    """A routine as a page shows it: its code, its inputs, checks and constants.

    recordings: how many it was learnt from; 0 if a person wrote it. open: the constants that so
    few recordings show. asked: inputs because nothing recorded explains their values. unchecked:
    numbers that nothing is compared with. python: the same as a function, if Python can say it.
    """

    code: str
    outline: Outline
    python: str = ""
    hands_over: bool = True
    recordings: int = 0
    open: Sequence[Constant] = ()
    asked: Sequence[str] = ()
    unchecked: Sequence[str] = ()
    enough: int = ENOUGH_ALIKE


def review_of(made: Compiled) -> Reviewed:
    """Return what to show of a routine that was compiled and is not stored yet."""
    outline = outline_of(made.draft.document)
    recordings = len(made.draft.recordings)
    return Reviewed(
        code=made.files[ROUTINE],
        outline=outline,
        python=_python(made.draft.document),
        recordings=recordings,
        open=open_constants(made.draft.document, recordings),
        asked=made.asked,
        unchecked=made.unchecked,
    )


def review_of_kept(routine: KeptRoutine, files: dict[str, str]) -> Reviewed:
    """Return what to show of a stored routine."""
    document, proof = document_of(files), proof_of(files)
    outline = outline_of(document)
    recordings = 0 if proof is None else len(proof.trials.get(AS_RECORDED, ()))
    return Reviewed(
        code=files[ROUTINE],
        outline=outline,
        python=_python(document) if is_plain(routine) else "",
        hands_over=is_plain(routine),
        recordings=recordings,
        open=open_constants(document, recordings) if recordings else (),
    )


def _python(document: Json) -> str:
    try:
        return function_text(document)
    except ExportError:
        return ""
