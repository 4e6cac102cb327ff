# Two images from one file: `web` has no torch, `worker` has. A build argument chooses the torch build.
# Each installs the pinned packages before it copies the code, so that an edit does not download them again.
FROM python:3.11-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 DECODELAB_DATA=/data
RUN useradd --create-home --uid 1000 decodelab && mkdir /data && chown decodelab /data
WORKDIR /srv/decodelab
COPY pyproject.toml constraints.txt README.md ./

FROM base AS web
RUN pip install -c constraints.txt '.[web]' && pip uninstall --yes decodelab
COPY alembic.ini ./
COPY models models
COPY migrations migrations
COPY app app
# Editable, so that the folder with alembic.ini is the one that the commands look in.
RUN pip install --no-deps -c constraints.txt -e .
USER decodelab
EXPOSE 7860
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7860/health', timeout=4)"]
CMD ["decodelab", "web"]

FROM base AS worker
# For a machine without a GPU: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/cu130
RUN pip install -c constraints.txt --extra-index-url "$TORCH_INDEX" '.[worker]' && pip uninstall --yes decodelab
COPY models models
COPY workers workers
RUN pip install --no-deps -c constraints.txt -e .
USER decodelab
HEALTHCHECK --interval=10s --timeout=10s --start-period=180s --retries=3 \
    CMD ["python", "-m", "workers.health"]
CMD ["sh", "-c", "python -m workers.prepare && exec python -m workers"]
