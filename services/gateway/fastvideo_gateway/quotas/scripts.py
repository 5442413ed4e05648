"""What Redis runs, each in one piece.

For one Redis, not for a cluster. KEYS[1] is the prefix of all keys. Under it:

    filled                 there is one once the counters hold what the log holds
    positions              hash: partition to the offset of the last event taken in
    TENANT:requests        sorted set: request ids by when they came, milliseconds
    TENANT:live            hash: request id to "until_ms predicted_seconds"; until is 0 for ever
    TENANT:device          hash: minute to the device-seconds that ended in it
"""

from typing import Final

# For how long after the last event keys are kept.
_KEPT_S: Final = 2 * 24 * 3600

BEGIN: Final = f"""
-- ARGV: n, a pattern of all keys, n times (partition, offset), then (tenant, request, predicted)
-- of what is under way. Whoever comes second finds it begun.
local prefix, n = KEYS[1], tonumber(ARGV[1])
if redis.call('EXISTS', prefix .. 'positions') == 1 then return 'OK' end
local cursor = '0'
repeat
  local found = redis.call('SCAN', cursor, 'MATCH', ARGV[2], 'COUNT', 1000)
  cursor = found[1]
  for _, key in ipairs(found[2]) do redis.call('UNLINK', key) end
until cursor == '0'
local i = 3
for _ = 1, n do
  redis.call('HSET', prefix .. 'positions', ARGV[i], ARGV[i + 1])
  i = i + 2
end
redis.call('EXPIRE', prefix .. 'positions', {_KEPT_S})
while ARGV[i] do
  local live = prefix .. ARGV[i] .. ':live'
  redis.call('HSET', live, ARGV[i + 1], '0 ' .. ARGV[i + 2])
  redis.call('EXPIRE', live, {_KEPT_S})
  i = i + 3
end
return 'OK'
"""

TAKE_IN: Final = f"""
-- ARGV: partition, first, last, then (kind, offset, tenant, request, at_ms, seconds) of each change
local prefix = KEYS[1]
local at = redis.call('HGET', prefix .. 'positions', ARGV[1])
if not at then return 'LOST' end
at = tonumber(at)
if tonumber(ARGV[2]) > at + 1 then return 'LOST' end
if tonumber(ARGV[3]) <= at then return 'OK' end
local i = 4
while ARGV[i] do
  local kind, offset, request = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 3]
  local tenant, at_ms, seconds = prefix .. ARGV[i + 2], ARGV[i + 4], ARGV[i + 5]
  if offset > at then
    local live = tenant .. ':live'
    if kind == 'accepted' then
      redis.call('ZADD', tenant .. ':requests', 'NX', at_ms, request)
      redis.call('ZREMRANGEBYSCORE', tenant .. ':requests', '-inf', tonumber(at_ms) - 60000)
      redis.call('EXPIRE', tenant .. ':requests', 120)
      redis.call('HSET', live, request, '0 ' .. seconds)
      redis.call('EXPIRE', live, {_KEPT_S})
    else
      redis.call('HDEL', live, request)
      local minute = string.format('%d', math.floor(tonumber(at_ms) / 60000))
      redis.call('HINCRBYFLOAT', tenant .. ':device', minute, seconds)
      redis.call('EXPIRE', tenant .. ':device', 7200)
    end
  end
  i = i + 6
end
redis.call('HSET', prefix .. 'positions', ARGV[1], ARGV[3])
redis.call('EXPIRE', prefix .. 'positions', {_KEPT_S})
return 'OK'
"""

ADMIT: Final = """
-- ARGV: tenant, request, predicted, requests a minute, live, device-seconds an hour, pending_ms,
-- now_ms (empty: the server's). Returns what is spent and for how long, milliseconds.
local tenant, request, predicted = KEYS[1] .. ARGV[1], ARGV[2], tonumber(ARGV[3])
local rpm, live_max, device_max = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
if redis.call('EXISTS', KEYS[1] .. 'filled') == 0 then return {'LOST', 0} end
local now = tonumber(ARGV[8])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local requests, live_key, device = tenant .. ':requests', tenant .. ':live', tenant .. ':device'

redis.call('ZREMRANGEBYSCORE', requests, '-inf', now - 60000)
if rpm > 0 then
  local count = redis.call('ZCARD', requests)
  if count >= rpm then
    local first = redis.call('ZRANGE', requests, count - rpm, count - rpm, 'WITHSCORES')
    return {'requests_per_minute', math.max(0, tonumber(first[2]) + 60000 - now)}
  end
end

local under_way, reserved = 0, 0
local ways = redis.call('HGETALL', live_key)
for i = 1, #ways, 2 do
  local ends, seconds = string.match(ways[i + 1], '^(%d+) (.+)$')
  if ends ~= '0' and tonumber(ends) <= now then
    redis.call('HDEL', live_key, ways[i])
  else
    under_way = under_way + 1
    reserved = reserved + tonumber(seconds)
  end
end
if live_max > 0 and under_way >= live_max then return {'live_requests_max', 2000} end

if device_max > 0 then
  local oldest, total, minutes = math.floor(now / 60000) - 60, reserved, {}
  local used = redis.call('HGETALL', device)
  for i = 1, #used, 2 do
    local minute = tonumber(used[i])
    if minute <= oldest then
      redis.call('HDEL', device, used[i])
    else
      total = total + tonumber(used[i + 1])
      table.insert(minutes, {minute, tonumber(used[i + 1])})
    end
  end
  local over = math.min(total + predicted - device_max, total)
  if total > 0 and (over > 0 or total >= device_max) then
    table.sort(minutes, function(a, b) return a[1] < b[1] end)
    for _, one in ipairs(minutes) do
      over = over - one[2]
      if over <= 1e-6 then
        return {'device_seconds_per_hour', math.max(0, (one[1] + 60) * 60000 - now)}
      end
    end
    return {'device_seconds_per_hour', 2000}
  end
end

redis.call('ZADD', requests, 'NX', now, request)
redis.call('EXPIRE', requests, 120)
if redis.call('HEXISTS', live_key, request) == 0 then
  local ends = string.format('%d', now + tonumber(ARGV[7]))
  redis.call('HSET', live_key, request, ends .. ' ' .. ARGV[3])
end
return {'OK', 0}
"""

WITHDRAW: Final = """
-- ARGV: tenant, request
redis.call('ZREM', KEYS[1] .. ARGV[1] .. ':requests', ARGV[2])
redis.call('HDEL', KEYS[1] .. ARGV[1] .. ':live', ARGV[2])
return 'OK'
"""
