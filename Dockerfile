# Serves one model file:
#
#   docker build -t batchd .
#   docker run --rm -p 8000:8000 -v "$PWD/examples/language:/models:ro" batchd
#
# It listens on all addresses, so loading and unloading by request are off until a token file is given, as
#   -v "$PWD/tokens:/tokens:ro" -e BATCHD_TOKEN_FILE=/tokens       (docs/security.md)
#
# For a GPU, build with  --build-arg TENSORFLOW='tensorflow[and-cuda]'  and run with  --gpus all.

FROM python:3.11-slim AS build
ARG TENSORFLOW=tensorflow
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY clients ./clients
COPY loadtest ./loadtest
COPY server ./server
COPY vectorizer ./vectorizer
RUN python -m venv /opt/batchd
RUN /opt/batchd/bin/pip install --no-cache-dir . "${TENSORFLOW}"

FROM python:3.11-slim
RUN useradd --system --create-home --uid 10001 batchd
COPY --from=build /opt/batchd /opt/batchd
ENV PATH=/opt/batchd/bin:$PATH PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL=3
USER batchd
WORKDIR /models
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["batchd", "serve", "/models/model.py", "--host", "0.0.0.0", "--port", "8000"]
