"""Embedders: functions from texts to vectors. em has two, and any callable will do.

def embed(texts):                      # any callable; `identity` on it names its version
    return [my_model(text) for text in texts]

Memory("em.db", embedder=embed)
"""

import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from math import isfinite, sqrt
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from em.errors import EmbedderError, MissingExtra, UsageError
from em.settings import EmbedSettings
from em.store.protocol import IndexStatus, Store, Within

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]

_HOME = "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/"
_REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
MINILM = {
    "model.onnx": "6fd5d72fe4589f189f8ebc006442dbb529bb7ce38f8082112682524616046452",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
"""The files of all-MiniLM-L6-v2, as its authors publish them, with their SHA-256."""
_PATHS = {"model.onnx": "onnx/model.onnx", "tokenizer.json": "tokenizer.json"}
MAX_TOKENS = 256
BATCH = 32


def identity_of(embed: Embed) -> str:
    """Name an embedder. Vectors are stored under this name; another name makes new vectors."""
    given = getattr(embed, "identity", None)
    if isinstance(given, str) and given:
        return given
    kind = embed if hasattr(embed, "__qualname__") else type(embed)
    return f"{kind.__module__}.{kind.__qualname__}"


def make_embedder(settings: EmbedSettings) -> Embed | None:
    """Return the embedder that the settings name; None by default."""
    if settings.use == "local":
        return LocalEmbedder(settings.folder or None, settings.sha256 or MINILM)
    if settings.use == "http":
        key = os.environ.get(settings.key_env, "") if settings.key_env else ""
        return HttpEmbedder(settings.url, settings.model, key=key, timeout=settings.timeout)
    return None


class LocalEmbedder:
    """A sentence model on this machine's CPU, through onnxruntime (extra `embed`).

    folder: has model.onnx and tokenizer.json. Without it they are downloaded once to the user's
        cache.
    pins: the SHA-256 that these files must have.
    """

    def __init__(self, folder: str | Path | None = None, pins: Mapping[str, str] = MINILM) -> None:
        self._pins = dict(pins)
        self._folder = None if folder is None else Path(folder)
        self._lock = Lock()
        self._loaded: tuple[Any, Any] | None = None
        self.identity = f"onnx:{self._pins.get('model.onnx', '')[:16]}"

    def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return for each text the mean of the last layer, scaled to length 1."""
        import numpy as np

        tokenizer, model = self._load()
        # Batch texts of similar length: short ones are then padded less.
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
        vectors: list[Any] = [None] * len(texts)
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            tokens = tokenizer.encode_batch([texts[n] for n in part])
            ids = np.array([item.ids for item in tokens])
            mask = np.array([item.attention_mask for item in tokens])
            given = {
                "input_ids": ids,
                "attention_mask": mask,
                "token_type_ids": np.zeros_like(ids),
            }
            names = [item.name for item in model.get_inputs()]
            (hidden, *_) = model.run(None, {name: given[name] for name in names})
            mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
            mean /= np.linalg.norm(mean, axis=1, keepdims=True)
            for n, row in zip(part, mean, strict=True):
                vectors[n] = row
        return vectors

    def _load(self) -> tuple[Any, Any]:
        with self._lock:
            if self._loaded is None:
                try:
                    import onnxruntime
                    from tokenizers import Tokenizer
                except ImportError as error:
                    raise MissingExtra("embed", "the local embedder") from error
                folder = self._files()
                tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
                tokenizer.enable_truncation(MAX_TOKENS)
                tokenizer.enable_padding()
                options = onnxruntime.SessionOptions()
                options.log_severity_level = 3
                model = onnxruntime.InferenceSession(
                    str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
                )
                self._loaded = (tokenizer, model)
            return self._loaded

    def _files(self) -> Path:
        folder = self._folder
        if folder is None:
            folder = _cache_folder()
            for name, pin in self._pins.items():
                if not (folder / name).exists():
                    _fetch(name, pin, folder)
        for name, pin in self._pins.items():
            _check_file(folder / name, pin)
        return folder


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "em" / "all-MiniLM-L6-v2"


def _fetch(name: str, pin: str, folder: Path) -> None:
    """Download a file of the model. It gets its name once its hash is checked."""
    import httpx

    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{name}.{os.getpid()}.part"
    address = f"{_HOME}{_REVISION}/{_PATHS[name]}"
    try:
        with (
            httpx.stream("GET", address, timeout=60, follow_redirects=True) as answer,
            part.open("wb") as file,
        ):
            answer.raise_for_status()
            for block in answer.iter_bytes():
                file.write(block)
        _check_file(part, pin)
        part.replace(folder / name)
    except (httpx.HTTPError, OSError) as error:
        raise EmbedderError(
            f"can't download the model: {error}",
            place=name,
            fix="connect once, or name a folder with model.onnx and tokenizer.json in embed.folder",
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _check_file(path: Path, pin: str) -> None:
    try:
        with path.open("rb") as file:
            digest = sha256()
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise EmbedderError(
            f"can't read the model: {error.strerror}",
            place=str(path),
            fix="name a folder with model.onnx and tokenizer.json in embed.folder",
        ) from error
    if digest.hexdigest() != pin:
        raise EmbedderError(
            "the file's SHA-256 differs from the pinned one",
            place=str(path),
            fix="delete the file, or pin its hash as embed.sha256 in em.yaml",
        )


class HttpEmbedder:
    """A server that speaks OpenAI's protocol for embeddings.

    url: the base address, such as https://api.openai.com/v1, or the address of `/embeddings`.
    """

    def __init__(
        self, url: str, model: str, *, key: str = "", timeout: float = 30.0, batch: int = 64
    ) -> None:
        if not url.startswith(("http://", "https://")) or not model:
            raise UsageError(
                "an HTTP embedder needs the address of a server and the name of a model",
                place="embed",
                fix="set embed.url and embed.model in em.yaml",
            )
        self._url = url if url.endswith("/embeddings") else url.rstrip("/") + "/embeddings"
        self._model, self._key, self._timeout, self._batch = model, key, timeout, batch
        self._client: tuple[int, httpx.Client] | None = None
        self.identity = f"http:{model}"

    def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Ask the server, in batches."""
        vectors: list[Sequence[float]] = []
        for start in range(0, len(texts), self._batch):
            vectors += self._ask(texts[start : start + self._batch])
        return vectors

    def _ask(self, texts: Sequence[str]) -> list[Sequence[float]]:
        import httpx

        body = msgspec.json.encode({"model": self._model, "input": list(texts)})
        try:
            answer = self._connected().post(self._url, content=body)
            answer.raise_for_status()
            data = msgspec.json.decode(answer.content, type=_Answer).data
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            raise EmbedderError(f"the server answered with {status}", place=self._url) from error
        except httpx.TimeoutException as error:
            raise EmbedderError(
                f"no answer within {self._timeout:g} seconds",
                place=self._url,
                fix="try again, or raise embed.timeout in em.yaml",
            ) from error
        except httpx.TransportError as error:
            raise EmbedderError(
                f"the connection failed: {error}",
                place=self._url,
                fix="check the address and that the server is running",
            ) from error
        except msgspec.MsgspecError as error:
            raise EmbedderError(
                f"the answer is not in OpenAI's format: {error}", place=self._url
            ) from error
        return [item.embedding for item in sorted(data, key=lambda item: item.index)]

    def _connected(self) -> "httpx.Client":
        """Return this process's client; a forked process must not share connections."""
        import httpx

        if self._client is None or self._client[0] != os.getpid():
            headers = {"Content-Type": "application/json"}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            self._client = os.getpid(), httpx.Client(headers=headers, timeout=self._timeout)
        return self._client[1]


class _Item(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class _Answer(msgspec.Struct):
    data: list[_Item]


Progress = Callable[[int, int], None]

AT_ONCE = 256
"""Passages that a search embeds before it answers; `embed_all` does the rest."""
PORTION = 64
LISTED = 4_096
"""Passages that `embed_all` lists at a time."""
NEAR = 200
TIMEOUT = 60.0
SLOW = 2.0
"""Seconds after which a failure counts as slowness, not as a text that can't be embedded."""
HOPELESS = 9
"""Failures in a row after which nothing more is tried; one text of a portion makes up to seven."""


def silent(_done: int, _total: int) -> None:
    """Report no progress."""


class Meaning:
    """The vectors of a store's passages, made by one embedder."""

    def __init__(self, store: Store, embed: Embed, *, timeout: float = TIMEOUT) -> None:
        self._index, self._embed, self._timeout = store.index, embed, timeout
        self._name = identity_of(embed)
        self._size = 0
        self._failed: set[int] = set()
        self._complete: dict[tuple[bool, str | None], IndexStatus] = {}

    def vector(self, text: str) -> Sequence[float]:
        """Return the vector of a text."""
        return self.vectors([text])[0]

    def catch_up(
        self, within: Within, limit: int | None = AT_ONCE, progress: Progress = silent
    ) -> int:
        """Embed passages that have no vector yet, newest first. Return how many are left.

        A text that the embedder can't take costs no other text its vector: it is left out, until
        everything is embedded (`limit` is None). Raise EmbedderError if nothing works.
        """
        done = 0
        if limit is None:
            self._failed.clear()
        identity, scope = self.identity, (within.lessons, within.subject)
        while limit is None or done < limit:
            status = self._index.status(within)
            if self._complete.get(scope) == status and status.embedder == identity:
                return 0  # nothing has changed since all had vectors: skip the slow check
            most = LISTED if limit is None else limit - done
            left, listed = self._index.without_vector(identity, within, most + len(self._failed))
            numbers = [number for number in listed if number not in self._failed]
            if not numbers:
                if not listed:
                    self._complete[scope] = status
                return left
            for start in range(0, len(numbers), PORTION):
                portion = numbers[start : start + PORTION]
                progress(done, done + left - start)
                self._embed_in_parts(portion, is_patient=limit is None)
                done += len(portion)
            identity = self.identity
            progress(done, done + left - len(numbers))
        return self.left(within)

    def left(self, within: Within) -> int:
        """Count the passages without a vector of this embedder."""
        size = self._size or self._stored_size()
        identity = f"{self._name}/{size}" if size else self._name
        return self._index.without_vector(identity, within, 0)[0]

    def _embed_in_parts(
        self, numbers: Sequence[int], *, is_patient: bool, failures: int = 0
    ) -> int:
        """Embed passages; if that fails, one half and then the other. Return failures in a row.

        is_patient: do so also if the embedder is slow. A search must not wait for that.
        """
        begun = monotonic()
        try:
            self._embed_passages(numbers)
        except EmbedderError:
            is_slow = monotonic() - begun > SLOW
            if failures + 1 >= HOPELESS or (is_slow and not is_patient):
                raise
            failures += 1
        else:
            return 0
        if len(numbers) == 1:
            self._failed.update(numbers)
            return failures
        half = len(numbers) // 2
        for part in (numbers[:half], numbers[half:]):
            failures = self._embed_in_parts(part, is_patient=is_patient, failures=failures)
        return failures

    def _embed_passages(self, numbers: Sequence[int]) -> None:
        passages = self._index.passages(numbers)
        if not passages:
            return  # forgotten meanwhile
        vectors = self.vectors([passage.text for passage in passages])
        found = {p.number: v for p, v in zip(passages, vectors, strict=True)}
        self._index.put_vectors(self.identity, found)

    def nearest(
        self, vector: Sequence[float], within: Within, candidates: Sequence[int], neighbours: float
    ) -> dict[int, float]:
        """Return how near passages are, from 0 to 1: the nearest ones and the candidates."""
        identity = self.identity
        near = dict(self._index.nearest(identity, vector, within, NEAR))
        if not near:
            return {}
        best, base = max(near.values()), min(near.values())
        wanted = {*near, *candidates}
        around = {number + offset for number in wanted for offset in (-1, 0, 1)}
        near |= self._index.similarities(identity, vector, sorted(around - near.keys()))
        span = best - base or 1.0
        level = {number: max(0.0, (score - base) / span) for number, score in near.items()}
        smooth = {
            number: level.get(number, 0.0)
            + neighbours * (level.get(number - 1, 0.0) + level.get(number + 1, 0.0))
            for number in wanted
        }
        top = max(smooth.values()) or 1.0
        return {number: score / top for number, score in smooth.items()}

    @property
    def identity(self) -> str:
        """The name of the embedder with the size of its vectors, once that is known."""
        return f"{self._name}/{self._size}" if self._size else self._name

    def vectors(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """Return the vectors of texts, checked and scaled to length 1."""
        raw = self._guarded(texts)
        if len(raw) != len(texts):
            raise EmbedderError(f"expected {len(texts)} vectors, got {len(raw)}")
        sizes = {len(vector) for vector in raw}
        known = self._size or self._stored_size()
        if len(sizes) != 1 or 0 in sizes or (known and sizes != {known}):
            raise EmbedderError(
                f"expected vectors of {known or 'one'} size, got sizes {sorted(sizes)}",
                fix="give another model another `identity`: then all passages are embedded again",
            )
        self._size = sizes.pop()
        return [_unit(vector) for vector in raw]

    def _stored_size(self) -> int:
        """Return the size of this embedder's stored vectors; 0 if there are none."""
        name, _, size = (self._index.status(Within()).embedder or "").rpartition("/")
        return int(size) if name == self._name and size.isdecimal() else 0

    def _guarded(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """Call the embedder in a thread of its own: it may hang or raise anything."""

        def work() -> list[Sequence[float]]:
            return [[float(x) for x in vector] for vector in self._embed(texts)]

        try:
            return guarded(work, self._timeout)
        except EmbedderError:
            raise
        except TimeoutError as error:
            fix = "try again, or raise embed.timeout in em.yaml"
            raise EmbedderError(str(error), fix=fix) from error
        except Exception as error:
            raise EmbedderError(f"{type(error).__name__}: {error}") from error


def guarded(work: Callable[[], T], timeout: float) -> T:
    """Call somebody's function in a thread of its own. Raise TimeoutError if it takes too long."""
    outcome: list[T] = []
    problems: list[Exception] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:  # noqa: BLE001 - the user's code; raised below
            problems.append(error)

    thread = Thread(target=run, daemon=True, name="em-guarded")
    thread.start()
    thread.join(timeout)
    if problems:
        raise problems[0]
    if not outcome:
        raise TimeoutError(f"no answer within {timeout:g} seconds")
    return outcome[0]


def _unit(vector: Sequence[float]) -> Sequence[float]:
    length = sqrt(sum(x * x for x in vector))
    if not isfinite(length) or not length:
        raise EmbedderError("expected finite vectors other than zero")
    return [x / length for x in vector]
