"""What tenants use: the quantities that are counted."""

from enum import StrEnum


class Quantity(StrEnum):
    """What is counted."""

    QUESTIONS = "questions"
    ANSWERS = "answers"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    EMBEDDED_TOKENS = "embedded_tokens"
    RERANKED_PASSAGES = "reranked_passages"
    DOCUMENTS = "documents"
    BYTES = "bytes"
    PARSING_SECONDS = "parsing_seconds"
    OCR_SECONDS = "ocr_seconds"
    STORED_CHUNKS = "stored_chunks"
    STORED_BYTES = "stored_bytes"
