"""Traits: plain words for moods and characters, which people tell of themselves.

"I am tired. Cancel #W1." asks for the same as "Cancel #W1." That is so for no word of doubt
(`unsure`, `hesitant`), will (`reluctant`, `willing`), truth (`honest`, `joking`, `serious`) or need
(`fine`, `done`), so none of these may be added. A word that is not listed must have been told in a
trace.
"""

FEELINGS = frozenset(
    "angry annoyed anxious ashamed bored busy calm cheerful content delighted disappointed"
    " excited exhausted frustrated furious glad gloomy grateful happy heartbroken homesick"
    " hopeful hungry ill irritated jealous joyful lonely mad miserable nervous overwhelmed"
    " pleased proud relaxed relaxing sad scared sick sleepy stressed thankful thirsty thrilled"
    " tired upset worried".split()
)
CHARACTERS = frozenset(
    "active adventurous affectionate ambitious arrogant artistic assertive athletic blunt bold"
    " bossy brave bright charming clever cold confident considerate cooperative courageous"
    " creative demanding dependent diligent direct disciplined dramatic dynamic easygoing"
    " efficient elegant emotional empathetic energetic enthusiastic extroverted friendly frugal"
    " generous gentle grumpy hardworking helpful humble idealistic imaginative impatient"
    " independent innovative intelligent introverted kind lazy lively logical loud loyal mature"
    " messy methodical meticulous modest moody neat observant optimistic organised organized"
    " outgoing passionate patient pessimistic polite practical pragmatic proactive punctual"
    " quiet rational realistic reliable reserved resourceful responsible rigid romantic rude"
    " selfish sensitive shy silent sociable stern strict strong stubborn studious sympathetic"
    " talkative thoughtful thrifty tidy timid tolerant tough versatile warm weak wise".split()
)
MARKERS = frozenset(
    "active agreeable anxious artistic assertive bashful bold bright careless cold complex"
    " conscientious considerate cooperative creative daring deep demanding disorganized efficient"
    " emotional energetic envious extraverted fearful fretful generous haphazard harsh"
    " helpful imaginative impractical inefficient inhibited innovative insecure intellectual"
    " introspective introverted irritable jealous kind moody neat negligent nervous organized"
    " philosophical pleasant practical prompt quiet relaxed reserved rude selfish shallow shy"
    " simple sloppy steady sympathetic systematic talkative temperamental thorough timid touchy"
    " trustful unadventurous undemanding unemotional unimaginative unkind unsympathetic"
    " unsystematic verbal vigorous warm".split()
)
"""Of Goldberg's 100 markers of the five factors (1992), those that say no doubt and no will."""
TRAITS = FEELINGS | CHARACTERS | MARKERS
AMONG_TRAITS = frozenset("careful cautious curious flexible".split())
"""Words for a character that alone may speak of the request: only beside one of the traits."""
