"""Framing: words that say that what follows is a test, a question, an example or a quotation.

"This is a test. Cancel #W1." asks for nothing, with the words of a request behind it. Such an
introduction begins a sentence, or a part of one. It is not looked for within a part, so that
"cancel my test order" stays a request, nor in quoted texts. What is framed is never acted on: a
person says what they want.
"""

import re
from functools import lru_cache
from typing import Literal, NamedTuple, cast

from em.text.contractions import expanded

Kind = Literal["test", "question", "example", "quotation", "supposition"]


class Framing(NamedTuple):
    """A way to frame what follows.

    source: where this use is described. words: a regular expression, in lower case. `~` stands for
    `only`, `just` and the like, which may be there; `@` for one of them that must be there; and a
    final `^` says that a sign must follow, as in `example: …`.
    """

    kind: Kind
    language: str
    source: str
    words: str


_ONLY = {
    "en": "only|just|merely|simply",
    "de": "nur|bloß|lediglich",
    "fr": "juste|seulement",
    "es": "solo|sólo|solamente",
}
_TABLE = r"""
test         en  wiktionary:test        (?:this|it|that|what follows) (?:is|was)~ (?:an? )?tests?
test         en  wiktionary:testing     (?:this|it|that|what follows) (?:is|was)~ testing
test         en  wiktionary:drill       (?:this|it|that) (?:is|was)~ an? (?:drill|exercise)
test         en  wiktionary:dry_run     (?:this|it|that) (?:is|was)~ an? (?:dry|trial) run
test         en  wiktionary:simulation  (?:this|it) (?:is|was)~ an? (?:simulation|rehearsal|demo)
test         en  wiktionary:joke        (?:this|it|that) (?:is|was)~ an? (?:joke|prank|game)
test         en  wiktionary:just        @ (?:an? test|testing|kidding|joking|practi[cs]ing)
test         en  wiktionary:kid         (?:i am|we are)~ (?:testing|kidding|joking)
test         en  wiktionary:test        (?:as a test|for (?:test|testing|demo)(?: purposes)?)
test         en  wiktionary:test        test(?:ing)?^
question     en  wiktionary:ask         (?:i am|we are) @ (?:asking|wondering|curious)
question     en  wiktionary:wonder      (?:@ (?:asking|wondering|curious)|out of curiosity)
question     en  wiktionary:know        (?:i|we) @ (?:want|wanted|need|wish) to (?:know|ask|see)
question     en  wiktionary:wonder      (?:i|we) wonder(?! if you (?:could|can|would|might))
question     en  wiktionary:question    (?:an? |one |my |quick |another )*question^
question     en  wiktionary:question    (?:i|we) have (?:a|one|another)(?: quick| short)? question
question     en  wiktionary:how         how (?:do|would|could|should|can) (?:i|one|we|you|someone)
question     en  wiktionary:happen      what (?:happens|would happen|will happen)
question     en  wiktionary:tell        tell me (?:how to|whether)
example      en  wiktionary:for_example for (?:example|instance)
example      en  wiktionary:example     (?:(?:this|here) is )?an? (?:example|sample)
example      en  wiktionary:example     (?:as an example|(?:example|sample|template)^)
example      en  wiktionary:e.g.        e\.g\.
quotation    en  wiktionary:say         (?:he|she|they|it|someone|somebody) (?:said|says|say)
quotation    en  wiktionary:write       (?:he|she|they|someone|somebody) (?:wrote|writes|write)
quotation    en  wiktionary:ask         (?:he|she|they|someone|somebody) (?:asked|asks|told)
quotation    en  wiktionary:read        (?:my|the|an?) \w+ (?:said|says|wrote|writes|asked|reads)
quotation    en  wiktionary:quote       (?:i quote|quote^|in (?:his|her|their) words)
quotation    en  wiktionary:forward     (?:forwarded|fwd|fw|subject)^
supposition  en  wiktionary:hypothetical (?:hypothetically|theoretically|in theory)
supposition  en  wiktionary:suppose     (?:suppose|supposing|imagine|assume|assuming|pretend)
supposition  en  wiktionary:let         let us (?:say|pretend|assume|imagine|suppose)
supposition  en  wiktionary:what_if     (?:what if|say (?:i|we|someone|somebody))
test         de  wiktionary:Test        (?:das|dies|es) (?:ist|war)~ (?:ein |eine )?(?:test|probe)
test         de  wiktionary:Übung       (?:das|dies|es) (?:ist|war)~ eine? (?:übung|probelauf)
test         de  wiktionary:Scherz      (?:das|dies|es) (?:ist|war)~ eine? (?:scherz|spaß|witz)
test         de  wiktionary:testweise   (?:@ (?:ein test|zum testen|zur probe)|testweise|test^)
question     de  wiktionary:fragen      ich (?:frage|wollte|will|möchte) @
question     de  wiktionary:Frage       (?:(?:eine |meine |kurze |@ )*frage^|@ eine frage)
question     de  wiktionary:Neugier     aus neugier
question     de  wiktionary:wie         (?:wie (?:kann|könnte|würde) (?:ich|man)|was passiert)
example      de  wiktionary:Beispiel    (?:zum beispiel|beispielsweise|z\. ?b\.|(?:ein )?beispiel^)
quotation    de  wiktionary:sagen       (?:er|sie|jemand) (?:sagt|sagte|schrieb|schreibt|fragte)
quotation    de  wiktionary:schreiben   (?:der|die|meine?) \w+ (?:sagt|sagte|schrieb|schreibt)
quotation    de  wiktionary:Zitat       (?:zitat|weitergeleitet|betreff)^
supposition  de  wiktionary:angenommen  (?:angenommen|nehmen wir an|hypothetisch|theoretisch)
supposition  de  wiktionary:vorstellen  (?:stell dir vor|stellen sie sich vor|was wenn)
test         fr  wiktionary:essai       (?:c'est|ceci est|il s'agit)~ (?:d'un|une?) (?:test|essai)
test         fr  wiktionary:exercice    (?:c'est|ceci est)~ une? (?:exercice|blague|démo)
test         fr  wiktionary:tester      (?:(?:@ )?pour (?:tester|essayer|rire)|test^)
question     fr  wiktionary:demander    je (?:demande|voulais|veux) @
question     fr  wiktionary:question    (?:(?:une |ma |petite )*question^|je me demande)
question     fr  wiktionary:curiosité   par curiosité
example      fr  wiktionary:exemple     (?:par exemple|(?:un )?exemple^|p\. ?ex\.)
quotation    fr  wiktionary:dire        (?:il|elle|on|quelqu'un) (?:a )?(?:dit|écrit|demandé?)
quotation    fr  wiktionary:écrire      (?:le|la|mon|ma) \w+ (?:a )?(?:dit|écrit|demandé?)
quotation    fr  wiktionary:citation    (?:je cite|(?:citation|objet)^)
supposition  fr  wiktionary:supposer    (?:supposons|imaginons|imaginez|hypothétiquement)
supposition  fr  wiktionary:théorie     (?:en théorie|et si|admettons)
test         es  wiktionary:prueba      (?:esto |este )?es~ una? (?:prueba|test|ejercicio)
test         es  wiktionary:simulacro   (?:esto |este )?es~ una? (?:simulacro|broma|demo)
test         es  wiktionary:probar      (?:@ (?:una prueba|probando)|(?:de )?prueba^)
question     es  wiktionary:preguntar   (?:@ (?:pregunto|quiero|quería|una pregunta)|me pregunto)
question     es  wiktionary:pregunta    (?:una |mi )*pregunta^
question     es  wiktionary:curiosidad  (?:por curiosidad|qué pasa)
example      es  wiktionary:ejemplo     (?:por ejemplo|(?:un )?ejemplo^|p\. ?ej\.)
quotation    es  wiktionary:decir       (?:él|ella|alguien) (?:dice|dijo|escribió|escribe|pidió)
quotation    es  wiktionary:escribir    (?:el|la|mi) \w+ (?:dice|dijo|escribió|escribe|pidió)
quotation    es  wiktionary:cita        (?:cito|(?:cita|asunto)^)
supposition  es  wiktionary:suponer     (?:supongamos|imagina|imaginemos|hipotéticamente)
supposition  es  wiktionary:teoría      (?:en teoría|y si|digamos)
"""

FRAMINGS = tuple(
    Framing(cast("Kind", kind), language, source, words)
    for kind, language, source, words in (
        row.split(maxsplit=3) for row in _TABLE.strip().splitlines()
    )
)
"""How people frame words, in the languages whose requests are read."""

_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|«[^»\n]*»|(?<!\w)'[^'\n]*(?:\w'\w[^'\n]*)*'(?!\w)")
_STARTS = re.compile(r"\A\s*|[,:;.!?—–-]\s+|[(\n]\s*|\b(?:and|but|so|und|aber|et|mais|y|pero)\s+")
_OPENING = r"(?:(?:hi|hello|hey|dear|ok|okay|well|so|note|fyi|hallo|bonjour|hola)[ ,:!]*)*"


@lru_cache(maxsize=1)
def _compiled() -> tuple[tuple[Framing, re.Pattern[str]], ...]:
    return tuple((one, _pattern(one)) for one in FRAMINGS)


def _pattern(one: Framing) -> re.Pattern[str]:
    only = _ONLY[one.language]
    words = one.words.replace("~", f"(?: (?:{only}))*").replace("@", f"(?:{only})")
    return re.compile(rf"{_OPENING}({words.replace('^', r'(?= *[:,.!—–-])')})(?!\w)")


def framing_of(text: str) -> tuple[Kind, str] | None:
    """Return how words are framed, and the words that say so; None if they are not."""
    plain = "".join(char.lower() if len(char.lower()) == 1 else char for char in text)
    plain = _QUOTED.sub(lambda quote: "_" * len(quote[0]), plain.replace("’", "'"))
    said = expanded(plain)._replace(source=text)
    for start in dict.fromkeys(found.end() for found in _STARTS.finditer(said.text)):
        for one, pattern in _compiled():
            found = pattern.match(said.text, start)
            if found is not None:
                return one.kind, said.original(*found.span(1))
    return None
