local function keeps(name, callback)
  redis.register_function{function_name = '@_' .. name, callback = function(keys, args)
    local wrong = open(keys, args)
    if wrong then return wrong end
    return callback(args)
  end, flags = {'allow-oom'}}
end

-- Unlist lanes of closed buckets, a page of pointers at a time; at the end, raise the marks.
keeps('sweep', function(args) -- shard, first, now, width, limit
  local shard, now8, width = args[2], args[4], tonumber(args[5])
  local swept, closed = marks_of(shard)
  local key = prefix .. 'l:' .. shard
  local ended = '(' .. pack8(closed + 1)
  local pointers = call('ZRANGE', key, args[3], ended, 'BYLEX', 'LIMIT', 0, args[6])
  for _, pointer in ipairs(pointers) do
    local head = head_of(shard .. sub(pointer, 9))
    if head == '' then
      call('ZREM', key, pointer)
    elseif is_before(now8, head) then
      local listing = math.max(floor(unpack8(head) / width), closed + 1)
      call('ZADD', key, 0, pack8(listing) .. sub(pointer, 9))
      call('ZREM', key, pointer)
    end
  end
  if #pointers == tonumber(args[6]) then return {pointers[#pointers]} end
  local first = call('ZRANGE', key, '-', ended, 'BYLEX', 'LIMIT', 0, 1)[1]
  local kept = first and unpack8(first) or closed + 1
  local marks = pack8(math.max(swept, kept - 1))
    .. pack8(math.max(closed, floor(unpack8(now8) / width) - 1))
  call('HSET', prefix .. 'm', shard, marks)
  return {'', marks}
end)

keeps('close_until', function(args) -- shard, time
  local mark = call('HGET', prefix .. 'w', args[2]) or pack8(-1)
  if is_before(mark, args[3]) then
    mark = args[3]
    call('HSET', prefix .. 'w', args[2], mark)
  end
  return mark
end)

keeps('expire', function(args) -- shard, end, limit
  local mark = call('HGET', prefix .. 'w', args[2])
  if not mark then return 0 end
  local ended = args[3]
  local closed = pack8(unpack8(mark) + 1)
  if is_before(closed, ended) then ended = closed end
  local places = call('ZRANGE', prefix .. 's:' .. args[2], '-', '(' .. ended, 'BYLEX', 'LIMIT', 0, args[4])
  in_parts('ZREM', prefix .. 's:' .. args[2], places)
  in_parts('HDEL', prefix .. 't:' .. args[2], places)
  return #places
end)

keeps('say_idle', function(args)
  local added = 0
  for number = 2, #args do added = added + call('SADD', prefix .. 'idle', args[number]) end
  return added
end)

keeps('wake', function(args)
  local messages = {}
  for number = 2, #args do messages[number - 1] = args[number] end
  publish(messages)
end)
