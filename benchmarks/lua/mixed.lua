-- A thing's life, spread over time so that each step comes after the answer to the one before:
-- it is held, read, extended, and confirmed or given up.
require "report"
local prefix, lag, n

function init(args)
  prefix, lag, n = args[1], 2 * tonumber(args[2]), 0
end

local function id_of(thing)
  return string.format("%s-%010d", prefix, thing)
end

local function body_of(id, fields)
  return string.format('{%s"holder":"holder-of-%s"}', fields, id)
end

function request()
  local step, newest = n % 4, math.floor(n / 4)
  n = n + 1
  local id = id_of(newest - step * lag)
  if newest <= step * lag or step == 0 then -- wrk tries the first request out and never sends it
    id = step == 0 and id_of(newest) or id_of(step * 1000000000 + newest)
    return post(id, body_of(id, '"ttlSeconds":1800,'))
  elseif step == 1 then
    return get(id)
  elseif step == 2 then
    return post(id .. "/extend", body_of(id, '"ttlSeconds":3600,'))
  end
  return post(id .. (newest % 2 == 0 and "/confirm" or "/release"), body_of(id, ""))
end
