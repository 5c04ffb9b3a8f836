-- What all functions share. A store is a few keys with one prefix:
--
-- about        hash: id (identity), schema, cluster; run (server process), epoch (number of processes
--              before), floor (lowest fence of rows from before), fresh (see `hello`)
-- j            hash: a job's id -> its row, see row.lua; b: a long body by the job's id
-- z:LANE       sorted set of the rows of a lane: at, id; all scores are 0, so order is by bytes
-- n            sorted set of the lanes that have rows
-- l:SHARD      sorted set of pointers: listing, rest of the lane; m: hash of marks by shard
-- r:PARTITION  hash of records by key; k:PARTITION: their keys in order; p: the partitions in order
-- x            sorted set of records that expire, by time
-- s:SHARD      sorted set of a stream's rows: at, id; t:SHARD: hash of their bodies; w: watermarks
-- idle         set of the channels whose workers wait for a message
-- c:CALL       the outcome of a call, for a minute: read if its answer was lost
--
-- Times and buckets are 8 bytes, big-endian, plus 2^63: the order of bytes is that of numbers.
local call, sub, byte, char, spack, sunpack, floor, NO_TIME, UNCLAIMED
local WORD, TOP = 4294967296, 2147483648
local KEPT_MS = 60000
local PART = 1000
local LOST_FENCES = 10000 -- more claims than a failover loses of one job
local EPOCHS = 64
local APART = 3 -- of two floors, also if the clock of the next server is behind
local CLOCKS_US = 60000000 -- the most that clocks of servers and producers are apart
local FENCES_BEGIN_S = 1767225600 -- 2026: quarters of seconds since then fit into 31 bits until 2043

local prefix, epoch, fence_floor, fresh8

-- Name what is not there while the library is loaded.
local function start()
  call, sub, byte, char = redis.call, string.sub, string.byte, string.char
  spack, sunpack, floor = struct.pack, struct.unpack, math.floor
  NO_TIME, UNCLAIMED = string.rep('\255', 8), string.rep('\0', 16)
end

local function pack8(number)
  local high = floor(number / WORD)
  return spack('>I4I4', high + TOP, number - high * WORD)
end

local function unpack8(text, place)
  local high, low = sunpack('>I4I4', text, place or 1)
  return (high - TOP) * WORD + low
end

local function is_before(one, other) -- Lua compares strings by the locale
  local high, low = sunpack('>I4I4', one)
  local other_high, other_low = sunpack('>I4I4', other)
  return high < other_high or (high == other_high and low < other_low)
end

local function time8()
  local now = call('TIME')
  return pack8(now[1] * 1000000 + now[2])
end

-- Prepare a call; return an error if the store is not the one that the caller knows, or the server
-- not the process that its connection has greeted.
local function open(keys, args)
  if not call then start() end
  prefix = sub(keys[1], 1, -6)
  local about = call('HMGET', keys[1], 'id', 'run', 'cluster', 'epoch', 'floor', 'fresh')
  local id, run = sub(args[1], 1, 32), sub(args[1], 33)
  if about[1] ~= id then
    return redis.error_reply('REPLACED the store has another identity, or none')
  end
  if about[2] ~= run then -- another server was the primary meanwhile, see `hello`
    return redis.error_reply('GREET again')
  end
  epoch = tonumber(about[4] or '0') % EPOCHS
  fence_floor, fresh8 = tonumber(about[5] or '0'), about[6]
  -- While a slot moves, its keys are on two nodes, and a key that does not exist is refused: now, and
  -- not in the middle of the writes.
  if about[3] then call('EXISTS', prefix .. 'none') end
end

-- Call a command with many arguments, a part at a time.
local function in_parts(command, key, arguments)
  for first = 1, #arguments, PART do
    call(command, key, unpack(arguments, first, math.min(first + PART - 1, #arguments)))
  end
end

local function fetch(key, fields)
  local values = {}
  for first = 1, #fields, PART do
    local part = call('HMGET', key, unpack(fields, first, math.min(first + PART - 1, #fields)))
    for number = 1, #part do values[first + number - 1] = part[number] end
  end
  return values
end

local function head_of(lane)
  local first = call('ZRANGE', prefix .. 'z:' .. lane, 0, 0)[1]
  return first and sub(first, 1, 8) or ''
end

local function shard_of(lane)
  return sub(lane, 1, 6 + sunpack('>I2', lane))
end

local function marks_of(shard)
  local marks = call('HGET', prefix .. 'm', shard)
  if not marks then return -1, -1 end
  return unpack8(marks), unpack8(marks, 9)
end

-- Return what this user must not do, of all that a process does later; or nil. A function that is
-- refused a command in its middle would leave the half of its writes.
local function missing_right(about, wait)
  local base = sub(about, 1, -6)
  local key, channel = base .. 'j', base .. 'wakeups'
  local commands = {
    {'hmget', key, 'f'}, {'hget', key, 'f'}, {'hset', key, 'f', ''}, {'hsetnx', key, 'f', ''},
    {'hdel', key, 'f'}, {'hexists', key, 'f'}, {'exists', key}, {'get', key}, {'set', key, ''},
    {'pexpire', key, '1'},
    {'zadd', key, '0', ''}, {'zrange', key, '0', '0'}, {'zrem', key, ''}, {'zlexcount', key, '-', '+'},
    {'sadd', key, ''}, {'srem', key, ''}, {'publish', channel, ''}, {'subscribe', channel}, {'time'},
    {'client', 'kill', 'id', '1'},
  }
  if wait ~= '0' then commands[#commands + 1] = {'wait', wait, '0'} end
  for _, command in ipairs(commands) do
    if not redis.acl_check_cmd(unpack(command)) then
      local last = command[1] == 'client' and 2 or 1
      return table.concat(command, ' ', 1, last) .. (command[2] and ' with ' .. command[2] or '')
    end
  end
end

-- proposed id, server process, known id, number of replicas that confirm, whether in a cluster
redis.register_function{function_name = '@_hello', callback = function(keys, args)
  if not call then start() end
  local missing = missing_right(keys[1], args[4])
  if missing then
    return redis.error_reply('NOPERM this user has no permissions to run ' .. missing)
  end
  local about = call('HMGET', keys[1], 'id', 'run', 'schema', 'epoch', 'floor')
  local id, schema = about[1], about[3]
  if args[3] ~= '' and id ~= args[3] then
    return redis.error_reply('REPLACED the store has another identity, or none')
  end
  if not id then
    id, schema = args[1], '@SCHEMA'
    call('HSET', keys[1], 'id', id, 'run', args[2], 'schema', schema)
  elseif about[2] ~= args[2] then
    -- A restart or a failover may have lost claims. Rows from before go on with higher fences; so do
    -- those that are inserted again, which were enqueued before.
    local now = call('TIME')
    -- Two servers may begin the same epoch, one after the other, if what the first did is lost: then
    -- the times make the difference.
    local quarters = 4 * (now[1] - FENCES_BEGIN_S) + floor(now[2] / 250000)
    local floor_now = math.max(quarters, tonumber(about[5] or '0') + APART)
    local fresh = pack8(now[1] * 1000000 + now[2] + CLOCKS_US)
    call('HSET', keys[1], 'run', args[2], 'epoch', tonumber(about[4] or '0') + 1,
      'floor', string.format('%.0f', floor_now), 'fresh', fresh)
  end
  if args[5] == '1' then call('HSET', keys[1], 'cluster', '1') end
  return {id, schema}
end, flags = {'allow-oom'}}
