-- Writes: groups of operations, each group all or nothing. The effects are collected, and written
-- at the end by few commands.
local SIZES = {G = 1, D = 4, E = 6, M = 15, P = 8, X = 5, J = 4, R = 5, W = 3}

local before, rows, bodies, touched, listed, closed_of, records, now8
local logged, log_tables, log_keys, log_values

local function set(table, key, value)
  logged = logged + 1
  log_tables[logged], log_keys[logged], log_values[logged] = table, key, table[key]
  table[key] = value
end

local function roll_back()
  for number = logged, 1, -1 do
    log_tables[number][log_keys[number]] = log_values[number]
  end
end

local function put_row(id, row)
  touched[#touched + 1] = id
  set(rows, id, row)
end

local function list(lane, listing)
  local shard = shard_of(lane)
  local closed = closed_of[shard]
  if not closed then
    local _
    _, closed = marks_of(shard)
    closed_of[shard] = closed
  end
  if unpack8(listing) <= closed then listing = pack8(closed + 1) end
  local pointers = listed[shard]
  if not pointers then
    pointers = {}
    listed[shard] = pointers
  end
  local pointer = listing .. sub(lane, #shard + 1)
  if not pointers[pointer] then set(pointers, pointer, true) end
end

local function bucket_in(lane)
  local first = 7 + sunpack('>I2', lane)
  return sub(lane, first, first + 7)
end

-- Return the row on which a verdict holds, or nil.
local function row_for(id, lane, token)
  local row = rows[id]
  if not row or sub(row, 10, 25) ~= token then return nil end
  if token == UNCLAIMED and lane_in(row) ~= lane then return nil end
  return row
end

local function record_in(partition, key)
  local known = records[partition]
  if not known then
    known = {}
    records[partition] = known
  end
  if known[key] == nil then known[key] = call('HGET', prefix .. 'r:' .. partition, key) end
  local record = known[key]
  if record then
    local expires = sub(record, 1, 8)
    if expires ~= NO_TIME then
      now8 = now8 or time8()
      if not is_before(now8, expires) then record = false end
    end
  end
  return known, record
end

local function is_expected(record, expected, version)
  if expected == '' then return true end
  local present = record and sub(record, 10, 9 + byte(record, 9)) or ''
  return present == version
end

local operations = {
  D = function(args, at)
    local row = row_for(args[at + 1], args[at + 2], args[at + 3])
    if not row then return false end
    put_row(args[at + 1], false)
    return true
  end,
  E = function(args, at) -- at, is started
    local row = row_for(args[at + 1], args[at + 2], args[at + 3])
    if not row then return false end
    local until8, state = sub(row, 2, 9), byte(row)
    if is_before(until8, args[at + 4]) then until8 = args[at + 4] end
    if args[at + 5] == '1' then state = STARTED end
    put_row(args[at + 1], char(state) .. until8 .. sub(row, 10))
    return true
  end,
  M = function(args, at) -- at, token, listing, errors, crashes, flags, outcome, error, to, due, opts
    local row = row_for(args[at + 1], args[at + 2], args[at + 3])
    if not row then return false end
    local flags = args[at + 9]
    local cells = {
      at = args[at + 4], token = args[at + 5], errors = args[at + 7], crashes = args[at + 8],
      state = byte(flags, 1), alone = byte(flags, 2), has_opts = byte(flags, 3) == 1,
      outcome = args[at + 10], error = args[at + 11], to = args[at + 12], due = args[at + 13],
      opts = args[at + 14],
    }
    if cells.to ~= '' then
      list(cells.to, args[at + 6])
    elseif is_before(cells.at, sub(row, 2, 9)) then
      list(lane_in(row), args[at + 6])
    end
    put_row(args[at + 1], moved(row, cells))
    return true
  end,
  P = function(args, at) -- partition, key, version, value, is expected, version, expires
    local known, record = record_in(args[at + 1], args[at + 2])
    if not is_expected(record, args[at + 5], args[at + 6]) then return false end
    set(known, args[at + 2], args[at + 7] .. char(#args[at + 3]) .. args[at + 3] .. args[at + 4])
    return true
  end,
  X = function(args, at) -- partition, key, is expected, version
    local known, record = record_in(args[at + 1], args[at + 2])
    if not is_expected(record, args[at + 3], args[at + 4]) then return false end
    set(known, args[at + 2], false)
    return true
  end,
  J = function(args, at) -- id, row, long body
    if not rows[args[at + 1]] then
      local lane = lane_in(args[at + 2])
      list(lane, bucket_in(lane))
      put_row(args[at + 1], fresh8 and with_epoch(args[at + 2]) or args[at + 2])
      if args[at + 3] ~= '' then bodies[args[at + 1]] = args[at + 3] end
    end
    return true
  end,
}

local function write_rows()
  local stored, deleted, done, added, removed = {}, {}, {}, {}, {}
  local kept_bodies, old_bodies = {}, {}
  for number = 1, #touched do
    local id = touched[number]
    local old, new = before[id], rows[id]
    if not done[id] and old ~= new then
      done[id] = true
      local old_lane, new_lane = old and lane_in(old), new and lane_in(new)
      local old_place, new_place = old and place_in(old, id), new and place_in(new, id)
      if new then
        stored[#stored + 1] = id
        stored[#stored + 1] = new
        if bodies[id] and is_long(new) then
          kept_bodies[#kept_bodies + 1] = id
          kept_bodies[#kept_bodies + 1] = bodies[id]
        end
      else
        deleted[#deleted + 1] = id
      end
      if old and is_long(old) and not (new and is_long(new)) then
        old_bodies[#old_bodies + 1] = id
      end
      if old_lane ~= new_lane or old_place ~= new_place then
        if old then
          local places = removed[old_lane] or {}
          removed[old_lane] = places
          places[#places + 1] = old_place
        end
        if new then
          local places = added[new_lane] or {}
          added[new_lane] = places
          places[#places + 1] = 0
          places[#places + 1] = new_place
        end
      end
    end
  end
  in_parts('HSET', prefix .. 'j', stored)
  in_parts('HDEL', prefix .. 'j', deleted)
  in_parts('HSET', prefix .. 'b', kept_bodies)
  in_parts('HDEL', prefix .. 'b', old_bodies)
  for lane, places in pairs(added) do
    local key = prefix .. 'z:' .. lane
    if call('EXISTS', key) == 0 then call('ZADD', prefix .. 'n', 0, lane) end
    in_parts('ZADD', key, places)
  end
  for lane, places in pairs(removed) do
    local key = prefix .. 'z:' .. lane
    in_parts('ZREM', key, places)
    if call('EXISTS', key) == 0 then call('ZREM', prefix .. 'n', lane) end
  end
end

local function write_lists()
  for shard, pointers in pairs(listed) do
    local members = {}
    for pointer in pairs(pointers) do
      members[#members + 1] = 0
      members[#members + 1] = pointer
    end
    if #members > 0 then in_parts('ZADD', prefix .. 'l:' .. shard, members) end
  end
end

local function write_record(partition, key, record)
  local values, keys = prefix .. 'r:' .. partition, prefix .. 'k:' .. partition
  local expiry = spack('>I4', #partition) .. partition .. key
  if record then
    if call('HSET', values, key, record) == 1 then
      call('ZADD', keys, 0, key)
      call('ZADD', prefix .. 'p', 0, partition)
    end
    local expires = sub(record, 1, 8)
    if expires ~= NO_TIME then
      call('ZADD', prefix .. 'x', unpack8(expires), expiry)
    end
  elseif call('HDEL', values, key) == 1 then
    call('ZREM', keys, key)
    if call('EXISTS', values) == 0 then call('ZREM', prefix .. 'p', partition) end
  end
end

-- Delete some records that have expired, more than were written.
local function expire_records(written)
  now8 = now8 or time8()
  local past = call('ZRANGE', prefix .. 'x', '-inf', unpack8(now8), 'BYSCORE', 'LIMIT', 0, written + 20)
  for _, expiry in ipairs(past) do
    local length = sunpack('>I4', expiry)
    local partition, key = sub(expiry, 5, 4 + length), sub(expiry, 5 + length)
    local record = call('HGET', prefix .. 'r:' .. partition, key)
    local expires = record and sub(record, 1, 8) or NO_TIME
    call('ZREM', prefix .. 'x', expiry)
    if expires ~= NO_TIME then
      if is_before(now8, expires) then
        call('ZADD', prefix .. 'x', unpack8(expires), expiry)
      else
        write_record(partition, key, false)
      end
    end
  end
end

local function write_records()
  local written = 0
  for partition, known in pairs(records) do
    for key, record in pairs(known) do
      written = written + 1
      write_record(partition, key, record)
    end
  end
  if written > 0 then expire_records(written) end
end

-- Append rows of streams: shard, at, id, body of each; return the times under which they are stored.
local function append(appended)
  local times, places, marks = {}, {}, {}
  for first = 1, #appended, 4 do
    local shard, at, id = appended[first], appended[first + 1], appended[first + 2]
    local bodies = prefix .. 't:' .. shard
    local mark = marks[shard]
    if mark == nil then
      mark = call('HGET', prefix .. 'w', shard)
      marks[shard] = mark
    end
    if mark and not is_before(mark, at) and call('HEXISTS', bodies, at .. id) == 0 then
      at = pack8(unpack8(mark) + 1)
    end
    if call('HSETNX', bodies, at .. id, appended[first + 3]) == 1 then
      local members = places[shard] or {}
      places[shard] = members
      members[#members + 1] = 0
      members[#members + 1] = at .. id
    end
    times[#times + 1] = at
  end
  for shard, members in pairs(places) do in_parts('ZADD', prefix .. 's:' .. shard, members) end
  return times
end

local function publish(messages)
  for first = 1, #messages, 2 do
    if call('SREM', prefix .. 'idle', messages[first]) == 1 then
      call('PUBLISH', prefix .. 'wakeups', messages[first + 1])
    end
  end
end

-- identity, key of the outcome, number of ids, the ids, operations
local function apply(keys, args)
  local wrong = open(keys, args)
  if wrong then return wrong end
  before, rows, bodies, touched, listed, closed_of, records, now8 = {}, {}, {}, {}, {}, {}, {}, nil
  log_tables, log_keys, log_values, logged = {}, {}, {}, 0
  local ids = {}
  local count = tonumber(args[3])
  for number = 1, count do ids[number] = args[3 + number] end
  local found = fetch(prefix .. 'j', ids)
  for number = 1, count do
    before[ids[number]] = found[number]
    rows[ids[number]] = found[number]
  end
  local held, appended, messages, at, last = {}, {}, {}, 4 + count, #args
  while at <= last do
    local operation = args[at]
    if operation == 'G' then
      held[#held + 1] = '1'
      logged = 0
    elseif operation == 'W' then
      messages[#messages + 1] = args[at + 1]
      messages[#messages + 1] = args[at + 2]
    elseif held[#held] == '1' then
      if operation == 'R' then
        for number = 1, 4 do appended[#appended + 1] = args[at + number] end
      elseif not operations[operation](args, at) then
        held[#held] = '0'
        roll_back()
      end
    end
    at = at + SIZES[operation]
  end
  write_rows()
  write_lists()
  write_records()
  local times = append(appended)
  publish(messages)
  local outcome = spack('>I4', #held) .. table.concat(held) .. table.concat(times)
  call('SET', prefix .. 'c:' .. args[2], outcome, 'PX', KEPT_MS)
  return outcome
end

redis.register_function('@_insert', apply)
redis.register_function{function_name = '@_apply', callback = apply, flags = {'allow-oom'}}

redis.register_function{function_name = '@_outcome', callback = function(keys, args)
  local wrong = open(keys, args)
  if wrong then return wrong end
  local key = prefix .. 'c:' .. args[2]
  call('PEXPIRE', key, KEPT_MS) -- a write, for which replicas can be waited
  return call('GET', key)
end, flags = {'allow-oom'}}
