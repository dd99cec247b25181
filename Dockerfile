# Two stages: pip and its leavings stay in the first. The same image serves, works and migrates; docker-compose.yml and
# deploy/helm say which. Alone, with the embedded PostgreSQL and a model of pip (docs/how-to/deploy.md):
#   docker run --publish 127.0.0.1:8000:8000 --volume kosmos:/data kosmos-rag:latest kosmos-rag serve --worker --config /app/quickstart.yaml
# A release names the base image by digest (.github/workflows/release.yml).
ARG BASE=python:3.11.14-slim-bookworm
FROM ${BASE} AS build

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
COPY requirements requirements

# The project is built in an environment of its own, whose packages stay in this stage.
RUN python -m venv /opt/build && /opt/build/bin/pip install --require-hashes --no-deps -r requirements/build.txt
RUN python -m venv /opt/kosmos
ENV PATH=/opt/kosmos/bin:$PATH

# On Linux the public index has builds of PyTorch for NVIDIA GPUs alone, which take several gigabytes. pytorch.org/get-started has the
# address of the index of builds for processors: docker build --build-arg TORCH='torch==2.13.0 --index-url ADDRESS' .
ARG TORCH="torch==2.13.0"
RUN pip install ${TORCH}

# The packages of the extra `image`; `make lock` writes their versions and hashes.
RUN pip install --require-hashes --no-deps -r requirements/image.txt

COPY pyproject.toml README.md LICENSE ./
COPY kosmos_rag kosmos_rag
COPY migrations migrations
RUN /opt/build/bin/python -m build --wheel --no-isolation --outdir dist && pip install --no-deps dist/*.whl && pip check


FROM ${BASE}

ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="kosmos-rag" \
      org.opencontainers.image.description="Multi-tenant retrieval on PostgreSQL and pgvector" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"

COPY --from=build /opt/kosmos /opt/kosmos
WORKDIR /app
COPY rag-config.yaml ./

# By number: an orchestrator that asks for a user other than root cannot tell that from a name.
RUN useradd --uid 10001 --user-group --no-create-home kosmos && mkdir /models /data && chown kosmos:kosmos /models /data

# The settings of a container without another database: without a tenant of development, because it listens on all addresses.
RUN /opt/kosmos/bin/kosmos-rag init /app/quickstart.yaml --set database.data_dir=/data/postgres --set service.development.tenant=null

# Three places are written to: /models, for models that are downloaded or exported, /tmp, where files are parsed, and
# /data, by the embedded server alone.
ENV PATH=/opt/kosmos/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    HF_HOME=/models/hub \
    KOSMOS_CONFIG=/app/rag-config.yaml \
    KOSMOS_MODELS__CACHE_DIR=/models \
    KOSMOS_SERVICE__HOST=0.0.0.0 \
    KOSMOS_SERVICE__HEALTH_PORT=9100
VOLUME ["/models"]
USER 10001:10001
EXPOSE 8000 9100

# The models are loaded before the port opens, and may have to be downloaded first.
HEALTHCHECK --interval=10s --timeout=6s --start-period=300s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9100/livez', timeout=5)"]
CMD ["kosmos-rag", "serve"]
