FROM python:3.11-slim

# torch first and pinned: left to the resolver, its newest build brings gigabytes of GPU packages.
RUN pip install --no-cache-dir torch==2.13.0

WORKDIR /app
COPY pyproject.toml README.md LICENSE rag-config.yaml ./
COPY kosmos_rag kosmos_rag
COPY workers workers
COPY migrations migrations
RUN pip install --no-cache-dir '.[minilm,onnx]'

# Model downloads and exports go to a volume; nothing else is written.
ENV KOSMOS_MODELS__CACHE_DIR=/models
RUN useradd --create-home kosmos && mkdir /models && chown kosmos /models
USER kosmos
CMD ["kosmos-rag", "--help"]
