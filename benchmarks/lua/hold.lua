-- Each request holds a thing of its own, for a holder of its own.
require "report"
local prefix, n

function init(args)
  prefix, n = args[1], 0
end

function request()
  n = n + 1
  local id = string.format("%s-%010d", prefix, n)
  return post(id, string.format('{"ttlSeconds":3600,"holder":"holder-of-%s"}', id))
end
