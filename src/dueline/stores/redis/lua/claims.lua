local function note_skip(skipped, id, fence)
  if fence then
    skipped[#skipped + 1], skipped[#skipped + 2] = id, string.format('%.0f', fence)
  end
end

-- Write claimed rows: their ids, new rows, old and new places.
local function write_claims(lane, ids, new_rows, old_places, new_places)
  local cells, places = {}, {}
  for number = 1, #ids do
    cells[2 * number - 1], cells[2 * number] = ids[number], new_rows[number]
    places[2 * number - 1], places[2 * number] = 0, new_places[number]
  end
  in_parts('HSET', prefix .. 'j', cells)
  in_parts('ZADD', prefix .. 'z:' .. lane, places)
  in_parts('ZREM', prefix .. 'z:' .. lane, old_places)
end

local function ids_in(places)
  local ids = {}
  for number = 1, #places do ids[number] = sub(places[number], 9) end
  return ids
end

-- Read the rows of places; drop places from a lane whose rows are gone, as after damage.
local function rows_at(lane, places)
  local ids, gone = ids_in(places), {}
  local found = fetch(prefix .. 'j', ids)
  for number = #places, 1, -1 do
    if not found[number] then
      gone[#gone + 1] = table.remove(places, number)
      table.remove(ids, number)
      table.remove(found, number)
    end
  end
  in_parts('ZREM', prefix .. 'z:' .. lane, gone)
  return ids, found
end

-- Add the bodies that are not in their rows.
local function with_bodies(ids, found)
  local bodies = {}
  for number = 1, #ids do
    if found[number] and is_long(found[number]) then
      bodies[#bodies + 1] = ids[number]
      bodies[#bodies + 1] = call('HGET', prefix .. 'b', ids[number]) or ''
    end
  end
  return bodies
end

-- identity, outcome, end of the due times, shared head of the rows, limit, then lane and most
redis.register_function{function_name = '@_claim', callback = function(keys, args)
  local wrong = open(keys, args)
  if wrong then return wrong end
  local before8, head, left = args[3], args[4], tonumber(args[5])
  local until8 = sub(head, 2, 9)
  local heads, all_ids, all_rows, skipped = {}, {}, {}, {}
  for at = 6, #args, 2 do
    if left == 0 then break end
    local lane, most = args[at], math.min(tonumber(args[at + 1]), left)
    local places = call('ZRANGE', prefix .. 'z:' .. lane, '-', '(' .. before8, 'BYLEX', 'LIMIT', 0, most)
    if #places > 0 then
      local ids, found = rows_at(lane, places)
      local new_rows, new_places = {}, {}
      for number = 1, #ids do
        local fence
        new_rows[number], fence = claimed(found[number], head)
        note_skip(skipped, ids[number], fence)
        new_places[number] = until8 .. ids[number]
        all_ids[#all_ids + 1] = ids[number]
        all_rows[#all_rows + 1] = found[number]
      end
      write_claims(lane, ids, new_rows, places, new_places)
      left = left - #ids
    end
    heads[#heads + 1] = head_of(lane)
  end
  return {heads, all_ids, all_rows, with_bodies(all_ids, all_rows), skipped}
end, flags = {'allow-oom'}}

-- identity, outcome, first and end of the due times, shared head, duration, limit, lane and most
redis.register_function{function_name = '@_prefetch', callback = function(keys, args)
  local wrong = open(keys, args)
  if wrong then return wrong end
  local head, duration, left = args[5], tonumber(args[6]), tonumber(args[7])
  local heads, all_ids, all_rows, skipped = {}, {}, {}, {}
  for at = 8, #args, 2 do
    if left == 0 then break end
    local lane, most = args[at], math.min(tonumber(args[at + 1]), left)
    local first, ids, new_rows, old_places, new_places = '[' .. args[3], {}, {}, {}, {}
    repeat
      local places = call('ZRANGE', prefix .. 'z:' .. lane, first, '(' .. args[4], 'BYLEX', 'LIMIT', 0, 100)
      local has_more = #places == 100
      local _, found = rows_at(lane, places)
      for number, place in ipairs(places) do
        local row = found[number]
        local _, tail = lane_in(row)
        local outcome_length = sunpack('>I4', row, tail + 28)
        if #ids < most and byte(row) == 0 and outcome_length == 0 then
          local id, until8 = sub(place, 9), pack8(unpack8(place) + duration)
          ids[#ids + 1] = id
          local fence
          new_rows[#ids], fence = claimed(row, sub(head, 1, 1) .. until8 .. sub(head, 10))
          note_skip(skipped, id, fence)
          old_places[#ids], new_places[#ids] = place, until8 .. id
          all_ids[#all_ids + 1], all_rows[#all_rows + 1] = id, row
        end
      end
      if #places > 0 then first = '(' .. places[#places] end
    until not has_more or #ids >= most
    if #ids > 0 then write_claims(lane, ids, new_rows, old_places, new_places) end
    left = left - #ids
    heads[#heads + 1] = head_of(lane)
  end
  return {heads, all_ids, all_rows, with_bodies(all_ids, all_rows), skipped}
end, flags = {'allow-oom'}}
