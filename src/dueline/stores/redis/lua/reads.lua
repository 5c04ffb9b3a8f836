local function reads(name, callback)
  redis.register_function{function_name = '@_' .. name, callback = function(keys, args)
    local wrong = open(keys, args)
    if wrong then return wrong end
    return callback(args)
  end, flags = {'no-writes'}}
end

-- Read places; a page that omits some is read by rank, since BYLEX passes all that it omits.
local function places_in(key, first, last, skip, limit)
  if skip == '0' then return call('ZRANGE', key, first, last, 'BYLEX', 'LIMIT', 0, limit) end
  local start = skip + (first == '-' and 0 or call('ZLEXCOUNT', key, '-', '[' .. sub(first, 2)))
  local past = math.min(start + limit, call('ZLEXCOUNT', key, '-', last))
  return start < past and call('ZRANGE', key, start, past - 1) or {}
end

-- Add the rows of ids, and their long bodies.
local function with_rows(ids)
  local found = fetch(prefix .. 'j', ids)
  return {ids, found, with_bodies(ids, found)}
end

reads('find', function(args)
  local ids = {}
  for number = 2, #args do ids[number - 1] = args[number] end
  return with_rows(ids)
end)

reads('scan', function(args) -- lane, first, end, skip, limit
  local places = places_in(prefix .. 'z:' .. args[2], args[3], args[4], args[5], args[6])
  return with_rows(ids_in(places))
end)

reads('lanes', function(args) -- shard, first, last bucket, limit, partition of settings, queue
  local shard = args[2]
  local swept, closed = marks_of(shard)
  local last = args[4]
  if unpack8(last) < closed + 1 then last = pack8(closed + 1) end
  local key = prefix .. 'l:' .. shard
  local pointers = call('ZRANGE', key, args[3], '(' .. pack8(unpack8(last) + 1), 'BYLEX', 'LIMIT', 0, args[5])
  local heads = {}
  for number = 1, #pointers do heads[number] = head_of(shard .. sub(pointers[number], 9)) end
  local record = call('HGET', prefix .. 'r:' .. args[6], args[7])
  if record and not is_before(time8(), sub(record, 1, 8)) then record = false end
  local version = record and sub(record, 10, 9 + byte(record, 9)) or ''
  return {pack8(swept) .. pack8(closed), version, pointers, heads}
end)

reads('lanes_with_rows', function(args) -- first, limit
  return call('ZRANGE', prefix .. 'n', args[2], '+', 'BYLEX', 'LIMIT', 0, args[3])
end)

reads('read', function(args) -- partition, first, limit
  local found, place, limit, left = {}, args[3], tonumber(args[4]), PART
  local now8 = time8()
  repeat
    local keys = call('ZRANGE', prefix .. 'k:' .. args[2], place, '+', 'BYLEX', 'LIMIT', 0, math.min(limit - #found / 2, left))
    local values = fetch(prefix .. 'r:' .. args[2], keys)
    for number = 1, #keys do
      if is_before(now8, sub(values[number], 1, 8)) then
        found[#found + 1] = keys[number]
        found[#found + 1] = values[number]
      end
    end
    place, left = #keys > 0 and '(' .. keys[#keys] or '', left - #keys
  until #found == 2 * limit or place == '' or left == 0
  return {found, place}
end)

reads('partitions', function(args) -- first, limit
  return call('ZRANGE', prefix .. 'p', args[2], '+', 'BYLEX', 'LIMIT', 0, args[3])
end)

reads('tail', function(args) -- shard, first, end, skip, limit
  local places = places_in(prefix .. 's:' .. args[2], args[3], args[4], args[5], args[6])
  return {places, fetch(prefix .. 't:' .. args[2], places)}
end)
