# tagwise serve: /data holds the tagger (packages), the keys (keys.txt) and the feedback.
FROM python:3.12-slim

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
# What is installed is the source above.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir '.[server]' \
    && useradd --create-home --uid 10001 tagwise \
    && mkdir /data \
    && chown tagwise /data

# A number: Kubernetes cannot tell from a name that it is not root.
USER 10001
ENV NUMBA_CACHE_DIR=/home/tagwise/numba
# Compiled here rather than at every start; a processor of another kind than the builder's compiles once more.
RUN tagwise warmup
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["tagwise", "serve"]
CMD ["packages", "--host", "0.0.0.0", "--key-file", "keys.txt", "--feedback", "feedback.jsonl"]
