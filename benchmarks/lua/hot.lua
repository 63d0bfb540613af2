-- Everybody wants the same thing, and all but the first are refused.
require "report"
local prefix, n

function init(args)
  prefix, n = args[1], 0
end

function request()
  n = n + 1
  return post("hot-000000000001",
    string.format('{"ttlSeconds":3600,"holder":"holder-%s-%010d"}', prefix, n))
end
