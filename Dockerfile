# The service and the workers of em: docs/deployment.md.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim-bookworm AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE CHANGELOG.md constraints.txt ./
COPY src ./src
# By environment, so that the environment in which pip builds the wheel is pinned too.
ENV PIP_CONSTRAINT=/build/constraints.txt PIP_BUILD_CONSTRAINT=/build/constraints.txt \
    PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
ARG EXTRAS=server,postgres,mcp,otlp,otel,shell,sandbox
RUN pip wheel --no-deps --wheel-dir dist . \
    && python -m venv /usr/local/em \
    && /usr/local/em/bin/python -m pip install "em-core[${EXTRAS}] @ file://$(echo /build/dist/*.whl)" \
    && /usr/local/em/bin/python -m pip uninstall --yes pip setuptools

FROM python:${PYTHON}-slim-bookworm
RUN groupadd --gid 10001 em \
    && useradd --uid 10001 --gid em --home-dir /home/em --create-home --shell /usr/sbin/nologin em \
    && install --directory --owner em --group em /data
COPY --from=build /usr/local/em /usr/local/em
# Only here are services open to other machines, so `em serve` refuses to start without EM_API_TOKEN.
ENV PATH=/usr/local/em/bin:$PATH PYTHONUNBUFFERED=1 EM_API_HOST=0.0.0.0 EM_API_PORT=8765 \
    EM_DB=/data/em.db XDG_DATA_HOME=/data/.local
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8765
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ['EM_API_PORT']}/healthz/ready\", timeout=4)"]
CMD ["em", "serve"]
