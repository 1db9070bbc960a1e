# Two images of one file, with lookback and lookback-server, their shared libraries and the bundled model:
#   docker build -t lookback .                         serves /models/model.safetensors on port 50051
#   docker build -t lookback-tools --target tools .    `lookback`, in /data
# README.md, In a container, says how they are used; deploy/test_image.sh tries it without a daemon.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
WORKDIR /src
COPY tools/common.sh tools/setup.sh tools/packages.txt tools/
RUN dpkg-query -W -f '${Package}\n' >/base-packages && tools/setup.sh build
COPY . .
RUN deploy/image_root.sh /image /base-packages

FROM ${BASE} AS run
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="lookback" \
      org.opencontainers.image.description="Serves language models with attention windows of their own for each head, over gRPC" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="docker.io/library/debian:bookworm-slim"
COPY --from=build /image/ /
USER 65532:65532
STOPSIGNAL SIGTERM

FROM run AS tools
WORKDIR /data
ENTRYPOINT ["lookback"]
CMD ["--help"]

# The last stage is what is built unless another is asked for.
FROM run AS server
# The bundled model lies where a user's own is mounted, and is hidden by it.
ENV LOOKBACK_MODEL=/models/model.safetensors \
    LOOKBACK_LISTEN=0.0.0.0:50051
EXPOSE 50051
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["lookback", "client", "127.0.0.1:50051", "health", "--timeout", "4"]
ENTRYPOINT ["lookback-server"]
