# The service in a small image: built and installed from hash-pinned packages in the first stage,
# run by a fixed unprivileged user in the second. What must outlive the container is in /data.

FROM python:3.13-slim-trixie AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY requirements-build.lock requirements.lock ./
RUN pip install --require-hashes -r requirements-build.lock \
    && python -m venv --without-pip /opt/reservation-service \
    && pip --python /opt/reservation-service/bin/python install --require-hashes \
       -r requirements.lock
COPY pyproject.toml ./
COPY reservation_service/ reservation_service/
COPY migrations/ migrations/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && pip --python /opt/reservation-service/bin/python install --no-deps dist/*.whl

FROM python:3.13-slim-trixie
RUN groupadd --gid 10001 reservations \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin reservations \
    && install --directory --owner 10001 --group 10001 --mode 0750 /data
COPY --from=build /opt/reservation-service /opt/reservation-service
ENV PATH=/opt/reservation-service/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    RESERVATION_SERVICE__SERVER__HOST=0.0.0.0 \
    RESERVATION_SERVICE__STORAGE__DATABASE=/data/reservations.db \
    RESERVATION_SERVICE__RESERVATIONS__REPLAY_ALARM=false
WORKDIR /data
USER 10001:10001
VOLUME ["/data"]
EXPOSE 8787
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8787/healthz', timeout=2)"]
ENTRYPOINT ["reservation-service"]
CMD ["serve"]
