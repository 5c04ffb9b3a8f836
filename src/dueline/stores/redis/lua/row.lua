-- A job's row: 1 state, 8 at, 16 token, 8 claimed, 2 length of the worker, worker (a claim writes
-- these for all of its rows alike); 8 fence, 4 crashes, 1 flags, with the epoch of the fence; 2 length of the lane, lane;
-- 8 pos, 4 hop, 8 due, 4 errors, 4 + 4 + 4 lengths of opts, outcome, error; these; then what never
-- changes.
local CLAIMED, STARTED = 1, 2
local ALONE, LONG, OF_EPOCH = 1, 2, 4

local function after_worker(row)
  return 36 + sunpack('>I2', row, 34)
end

local function lane_in(row)
  local place = after_worker(row) + 13
  local length = sunpack('>I2', row, place)
  return sub(row, place + 2, place + 1 + length), place + 2 + length
end

local function is_long(row)
  return byte(row, after_worker(row) + 12) % OF_EPOCH >= LONG
end

local function place_in(row, id)
  return sub(row, 2, 9) .. id
end

-- Return a new row with the epoch in which it is first claimed: that before, if it may be inserted
-- again after it was lost.
local function with_epoch(row)
  local place, _, tail = after_worker(row) + 12, lane_in(row)
  local opts_length, outcome_length, error_length = sunpack('>I4I4I4', row, tail + 24)
  local enqueued = tail + 36 + opts_length + outcome_length + error_length
  local of = is_before(sub(row, enqueued, enqueued + 7), fresh8) and epoch - 1 or epoch
  local flags = byte(row, place) % OF_EPOCH + of % EPOCHS * OF_EPOCH
  return sub(row, 1, place - 1) .. char(flags) .. sub(row, place + 1)
end

-- Return a row after a claim, and its fence if that skips some.
-- head: the part that the rows of a claim share.
local function claimed(row, head)
  local place = after_worker(row)
  local high, low, crashes, flags = sunpack('>I4I4I4B', row, place)
  local fence, skips = high * WORD + low + 1, false
  if floor(flags / OF_EPOCH) ~= epoch then
    local skipped = fence + LOST_FENCES -- if its claims are more than the time that has passed
    fence, skips = fence + 100 < fence_floor and fence_floor or skipped, true
    flags = flags % OF_EPOCH + epoch * OF_EPOCH
  end
  if byte(row) == STARTED then
    crashes = crashes + 1
    if flags % 2 == 0 then flags = flags + ALONE end
  end
  high = floor(fence / WORD)
  return head .. spack('>I4I4I4B', high, fence - high * WORD, crashes, flags) .. sub(row, place + 13),
    skips and fence
end

-- Return a row after a move; cells: the arguments of an operation M, see groups.lua.
local function moved(row, cells)
  local place = after_worker(row)
  local fence, flags = sub(row, place, place + 7), byte(row, place + 12)
  local lane, tail = lane_in(row)
  local pos, hop, due = sub(row, tail, tail + 7), sunpack('>I4', row, tail + 8), sub(row, tail + 12, tail + 19)
  local opts_length, outcome_length, error_length = sunpack('>I4I4I4', row, tail + 24)
  local opts = sub(row, tail + 36, tail + 35 + opts_length)
  local rest = sub(row, tail + 36 + opts_length + outcome_length + error_length)
  if cells.to ~= '' then lane, pos, hop = cells.to, cells.at, hop + 1 end
  if cells.has_opts then opts = cells.opts end
  if cells.due ~= '' then due = cells.due end
  flags = flags - flags % 2 + cells.alone
  return char(cells.state) .. cells.at .. cells.token .. sub(row, 26, place - 1)
    .. fence .. cells.crashes .. char(flags)
    .. spack('>I2', #lane) .. lane .. pos .. spack('>I4', hop) .. due .. cells.errors
    .. spack('>I4I4I4', #opts, #cells.outcome, #cells.error)
    .. opts .. cells.outcome .. cells.error .. rest
end
