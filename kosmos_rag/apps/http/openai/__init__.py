"""OpenAI's interface under `/openai/v1`."""
