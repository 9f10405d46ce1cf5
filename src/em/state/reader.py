"""The reader of free text: a model, chunk by chunk. `statements` reads without one."""

from em.errors import BadAnswer, LlmRefused
from em.llm.client import LlmClient, ask_struct
from em.state.extraction import SYSTEM, Chunk, Reading, chunks
from em.state.fold import Material
from em.state.judgement import judged
from em.state.knowledge import Knowledge
from em.state.schema import Extraction

MAX_TOKENS = 16_000


def read_by_model(
    material: Material, known: Knowledge, client: LlmClient
) -> tuple[list[Extraction], list[str]]:
    """Let a model read texts chunk by chunk; return its readings, and problems with them.

    A chunk without a usable answer stays unstructured, with the reason. A model that can't be
    reached raises LlmError: the texts stay unread.
    """
    extractions, problems = [], []
    for portion in chunks(material.texts):
        chunk = Chunk(portion, known)
        try:
            reading, _ = ask_struct(
                client,
                Reading,
                chunk.prompt(),
                choices={"events": list(chunk.texts)},
                system=SYSTEM,
                name="facts",
                max_tokens=MAX_TOKENS,
            )
        except (BadAnswer, LlmRefused) as error:
            ids = list(dict.fromkeys(text.event for text in portion))
            reason = f"the model's answer could not be used: {error.message}"[:500]
            extractions.append(
                Extraction(from_events=ids, method="model", model=client.model, failed=reason)
            )
            problems.append(reason)
            continue
        extraction, refused = judged(reading, chunk, client.model)
        known.add_reading(extraction, material)
        extractions.append(extraction)
        problems += refused
    return extractions, problems
