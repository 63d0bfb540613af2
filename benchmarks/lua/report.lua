-- What wrk saw, as one line of JSON; times in microseconds. And the one way to write a request.

function done(summary, latency, requests)
  local broken = summary.errors.connect + summary.errors.read + summary.errors.write
    + summary.errors.timeout
  io.write(string.format(
    '\n{"requests":%d,"seconds":%.6f,"p50_us":%d,"p99_us":%d,"refused":%d,"broken":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    summary.errors.status, broken))
end

function post(path, body)
  return string.format(
    "POST /reservations/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    .. "Content-Length: %d\r\n\r\n%s", path, #body, body)
end

function get(id)
  return string.format("GET /reservations/%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", id)
end
