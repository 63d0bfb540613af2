-- Each request holds a thing of its own, without a holder.
require "report"
local prefix, n

function init(args)
  prefix, n = args[1], 0
end

function request()
  n = n + 1
  return post(string.format("%s-%010d", prefix, n), '{"ttlSeconds":3600}')
end
