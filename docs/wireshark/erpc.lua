-- Shows erpc packets (WIRE.md, version 1) in Wireshark and tshark.
--
--   tshark -X lua_script:docs/wireshark/erpc.lua -r capture.pcap
--
-- Two ways lead to this dissector. The preference `erpc.ports` names UDP ports whose packets are
-- always shown as erpc (`-o erpc.ports:31850`). The heuristic looks at packets of all other ports:
-- it takes a conversation when a packet can hardly be anything else (`evidence`), and from then on
-- all packets of the conversation, also damaged ones.
--
-- On a host that sends with UDP_SEGMENT or receives with UDP_GRO, a capture has runs of packets as one
-- datagram. `packets` takes them apart.
--
-- A packet may be shorter than its fields need: on the wire, which is an error, or only in the capture,
-- which kept a part of it (the snapshot length). `Part` keeps these cases apart, and is the only code
-- that reads packets.

local erpc = Proto("erpc", "erpc")

local HEADER, TRAILER, VERSION = 24, 4, 1
local ANNOUNCEMENT, CANCEL = 0xffffff, 1
local MAX_MESSAGE, MAX_PULL = 0x40000000, 1024
local MIN_PAYLOAD = 1024
local MAX_EXTENSION = 1024
-- Most bytes of padding behind a whole message. Control messages have no such limit.
local MAX_PADDING = 800
local DRAINING = 17
-- Several items of a batch have at most this many bytes together, lengths included.
local BATCH = 32768

local KINDS = {
    [0] = "Request", "Response", "Failure", "CreditReturn", "RequestForResponse", "Accepted",
    "Done", "Control",
}
local REQUEST, RESPONSE, FAILURE, CREDIT_RETURN = 0, 1, 2, 3
local PULL, ACCEPTED, DONE, CONTROL = 4, 5, 6, 7
local CONTROLS = {
    "Hello", "Challenge", "Open", "Opened", "Refused", "Ping", "Pong", "Reset", "Close", "Closed",
    "Probe", "Probed", "Resize", "Resized", "Moved", "GoAway",
}
-- Bytes of the body of each control message, padding not included.
local BODIES = { 36, 24, 45, 29, 6, 8, 0, 8, 8, 0, 0, 0, 4, 0, 8, 8 }
-- Control messages that padding may follow: Open, Opened, Probe, Probed.
local PADDED = { [3] = true, [4] = true, [11] = true, [12] = true }
local HELLO, OPEN_SESSION, OPENED, PING, PONG = 1, 3, 4, 6, 7
-- Control messages to a client and those to a server; the others go both ways.
local TO_CLIENT = {
    [2] = true, [4] = true, [5] = true, [12] = true, [14] = true, [15] = true, [16] = true,
}
local TO_SERVER = { [11] = true, [13] = true }
local REASONS = {
    "no common version", "no room for another session", "does not accept sessions",
    "incompatible parameters", "no room for another session of the host", "shuts down",
}
local CODES = {
    [0] = "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
    "DRAINING",
}
local CALLS = { "OPEN", "PULL", "PUSH", "CLOSE" }
local OPEN, PUSH = 1, 3
local REPLIES = { "ITEMS", "EMPTY" }
local EMPTY = 2
local MODELS = { [0] = "ring", "Linux UDP" }

local fields = {
    connection = ProtoField.uint64("erpc.connection", "Connection id", base.HEX),
    steer = ProtoField.uint8("erpc.steer", "Steer"),
    index = ProtoField.uint32("erpc.index", "Table index"),
    to_server = ProtoField.bool("erpc.to_server", "Receiver is the server"),
    session = ProtoField.uint32("erpc.session", "Session of this capture"),
    slot = ProtoField.uint32("erpc.slot", "Slot"),
    generation = ProtoField.uint32("erpc.generation", "Generation", base.HEX),
    version = ProtoField.uint8("erpc.version", "Version", base.DEC, nil, 0x03),
    kind = ProtoField.uint8("erpc.kind", "Kind", base.DEC, KINDS, 0x1c),
    trailer = ProtoField.bool("erpc.trailer", "Trailer", 8, nil, 0x20),
    extended = ProtoField.bool("erpc.extended", "Extended", 8, nil, 0x40),
    large = ProtoField.bool("erpc.large", "Large", 8, nil, 0x80),
    packet = ProtoField.uint24("erpc.packet", "Packet"),
    announced = ProtoField.bool("erpc.announced", "Announcement"),
    control = ProtoField.uint24("erpc.control", "Control message", base.DEC, CONTROLS),
    request = ProtoField.uint32("erpc.request", "Request"),
    nonce = ProtoField.uint32("erpc.nonce", "Nonce"),
    method = ProtoField.uint32("erpc.method", "Method id", base.HEX),
    size = ProtoField.uint32("erpc.size", "Bytes of the message"),
    count = ProtoField.uint32("erpc.count", "Packets wanted"),
    stamp = ProtoField.uint64("erpc.stamp", "Stamp in ns"),
    rtt = ProtoField.uint64("erpc.rtt", "Time since the stamped packet, in ns"),
    gap = ProtoField.bool("erpc.gap", "Gap", 32, nil, 0x01),
    window = ProtoField.uint32("erpc.window", "Window in charge units"),
    marked = ProtoField.bool("erpc.marked", "Congestion mark", 32, nil, 0x10000),
    server_time = ProtoField.uint64("erpc.server_time", "Server's time in ns"),
    body = ProtoField.bytes("erpc.body", "Body"),
    done = ProtoField.uint32("erpc.done", "Received response"),
    cancel = ProtoField.bool("erpc.cancel", "Cancel"),
    checksum = ProtoField.uint32("erpc.checksum", "Checksum", base.HEX),
    checksum_good = ProtoField.bool("erpc.checksum.good", "Checksum is right"),
    ext_len = ProtoField.uint16("erpc.ext.len", "Bytes of the extension"),
    ext_op = ProtoField.uint8("erpc.ext.op", "Op", base.HEX),
    call = ProtoField.uint8("erpc.stream.call", "Call", base.DEC, CALLS, 0x7f),
    reply = ProtoField.uint8("erpc.stream.reply", "Reply", base.DEC, REPLIES, 0x7f),
    is_end = ProtoField.bool("erpc.stream.end", "END", 8, nil, 0x80),
    stream = ProtoField.uint32("erpc.stream", "Stream"),
    seq = ProtoField.uint32("erpc.stream.seq", "Batch"),
    items = ProtoField.uint32("erpc.stream.count", "Items"),
    item_len = ProtoField.uint32("erpc.stream.item.len", "Bytes of the item"),
    item = ProtoField.bytes("erpc.stream.item", "Item"),
    ext_deadline = ProtoField.uint32("erpc.ext.deadline", "Deadline in us"),
    ext_key = ProtoField.string("erpc.ext.key", "Key"),
    ext_value = ProtoField.bytes("erpc.ext.value", "Value"),
    code = ProtoField.uint32("erpc.code", "Code", base.DEC, CODES),
    message = ProtoField.string("erpc.message", "Message"),
    details = ProtoField.bytes("erpc.details", "Details"),
    id = ProtoField.uint64("erpc.id", "Id of the sender or session", base.HEX),
    low = ProtoField.uint16("erpc.low", "Lowest version"),
    high = ProtoField.uint16("erpc.high", "Highest version"),
    cookie = ProtoField.bytes("erpc.cookie", "Cookie"),
    port = ProtoField.uint16("erpc.port", "Port"),
    chosen = ProtoField.uint8("erpc.chosen", "Chosen endpoint"),
    proof = ProtoField.uint32("erpc.proof", "Open may have bytes"),
    reason = ProtoField.uint8("erpc.reason", "Reason", base.DEC, REASONS),
    new_large = ProtoField.uint32("erpc.new_large", "Bytes of a large datagram"),
    datagram = ProtoField.uint32("erpc.datagram", "Largest datagram"),
    max_message = ProtoField.uint32("erpc.max_message", "Largest message"),
    eager = ProtoField.uint32("erpc.eager", "Eager bytes"),
    offered = ProtoField.uint32("erpc.offered_window", "Window of the endpoint"),
    credits = ProtoField.uint16("erpc.credits", "Credits"),
    model = ProtoField.uint8("erpc.model", "Charge model", base.DEC, MODELS),
    integrity = ProtoField.uint8("erpc.integrity", "Integrity", base.DEC, nil, 1),
    bundles = ProtoField.uint8("erpc.bundles", "Takes bundles", base.DEC, nil, 2),
    slots = ProtoField.uint8("erpc.slots", "Slots"),
    padding = ProtoField.bytes("erpc.padding", "Padding"),
}
local all = {}
for _, field in pairs(fields) do all[#all + 1] = field end
erpc.fields = all

local bad = ProtoExpert.new("erpc.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
local wrong = ProtoExpert.new(
    "erpc.checksum.bad", "Wrong checksum", expert.group.CHECKSUM, expert.severity.ERROR)
local cut = ProtoExpert.new(
    "erpc.cut", "The capture has only a part of the packet", expert.group.UNDECODED, expert.severity.NOTE)
erpc.experts = { bad, wrong, cut }

erpc.prefs.ports = Pref.range("UDP ports", "", "Ports whose packets are always erpc", 65535)

-- CRC32C by table. Lua 5.1 and 5.2 have no operators on bits; Wireshark's modules `bit` and
-- `bit32` differ in the sign of results, so the table and the result are kept within 32 bits.
local bits = bit32 or bit
local function word(value) return value % 0x100000000 end
local TABLE = {}
for byte = 0, 255 do
    local crc = byte
    for _ = 1, 8 do
        local low = crc % 2
        crc = math.floor(crc / 2)
        if low == 1 then crc = word(bits.bxor(crc, 0x82f63b78)) end
    end
    TABLE[byte] = crc
end
local function crc32c(bytes)
    local bxor, crc = bits.bxor, 0xffffffff
    for at = 1, #bytes do
        local low = crc % 256
        crc = bxor((crc - low) / 256, TABLE[bxor(low, bytes:byte(at))]) % 0x100000000
    end
    return 0xffffffff - crc
end

local function wide(number)
    return UInt64(number % 0x100000000, math.floor(number / 0x100000000))
end

local faults = 0 -- of the packet that is being dissected
local function malformed(tree, why)
    faults = faults + 1
    tree:add_proto_expert_info(bad, why)
end

-- Consecutive bytes of a packet: `len` on the wire, of which the capture has the first `has`.
local Part = {}
Part.__index = Part

local function part(buffer, at, len)
    local has = math.max(0, math.min(len, buffer:captured_len() - at))
    return setmetatable({ buffer = buffer, at = at, len = len, has = has }, Part)
end

-- A range of this part; nil if it is empty or the capture does not have all of it.
function Part:range(at, len)
    if len > 0 and at + len <= self.has then return self.buffer(self.at + at, len) end
end

-- The part from offset `at` on, which is at most the part's length.
function Part:from(at) return part(self.buffer, self.at + at, self.len - at) end

function Part:uint(at, len)
    local range = self:range(at, len)
    return range and range:le_uint()
end

function Part:raw(at, len) return self.buffer:raw(self.at + at, len) end

function Part:show(tree, field, at, len)
    local range = self:range(at, len)
    if range then return tree:add_le(field, range) end
end

-- Shows bytes, as many as the capture has.
function Part:show_bytes(tree, field, at, len)
    local range = self:range(at, math.min(len, self.has - at))
    if range then tree:add(field, range) end
end

function Part:show_text(tree, field, at, len)
    local range = self:range(at, math.min(len, self.has - at))
    if range then tree:add_packet_field(field, range, ENC_UTF_8) end
end

-- The sequences of UTF-8 for characters beyond ASCII (RFC 3629).
local SEQUENCES = {
    "[\194-\223][\128-\191]",
    "\224[\160-\191][\128-\191]",
    "[\225-\236\238\239][\128-\191][\128-\191]",
    "\237[\128-\159][\128-\191]",
    "\240[\144-\191][\128-\191][\128-\191]",
    "[\241-\243][\128-\191][\128-\191][\128-\191]",
    "\244[\128-\143][\128-\191][\128-\191]",
}

-- Whether the bytes are UTF-8, as far as the capture has all of them.
function Part:is_utf8(at, len)
    if at + len > self.has then return true end
    local raw = self:raw(at, len)
    for _, sequence in ipairs(SEQUENCES) do raw = raw:gsub(sequence, ".") end
    return not raw:find("[\128-\255]")
end

-- Whether the captured bytes from `at` on are zero.
function Part:is_zero(at, len)
    len = math.min(len, self.has - at)
    return len <= 0 or not self:raw(at, len):find("[^%z]")
end

-- The state of the dissection, which the first pass over the capture fills. Later passes, in any
-- order, show the same.
local sent        -- the capture time of the packet with a stamp
local trips       -- the time since the stamp, by packet
local sessions    -- number and slots of the session, by receiver and connection id
local opened      -- how many sessions there are
local belongs     -- session, by packet
local taken       -- the conversations that the heuristic has taken
local candidates  -- what the heuristic knows of the others, by direction
function erpc.init()
    sent, trips, sessions, opened, belongs, taken, candidates = {}, {}, {}, 0, {}, {}, {}
end

-- Names a packet of the capture: its frame and its place in the frame.
local function place(head, pinfo) return pinfo.number .. "/" .. head.at end

local function source(pinfo) return tostring(pinfo.src) .. "/" .. pinfo.src_port end
local function destination(pinfo) return tostring(pinfo.dst) .. "/" .. pinfo.dst_port end

-- Shows the stamp in the word at `at`. The packet that answers has the stamp of the packet that it
-- answers, and the same request number.
local function stamp(tree, head, at, pinfo, is_answer)
    local raw = head:uint(at, 4)
    local ticks = raw - raw % 2
    if ticks == 0 then return end
    tree:add(fields.stamp, head:range(at, 4), wide(ticks))
    local here = place(head, pinfo)
    if not pinfo.visited then
        local key = "/" .. ticks .. "/" .. head:uint(12, 4)
        local from, to = source(pinfo), destination(pinfo)
        if not is_answer then
            sent[from .. ">" .. to .. key] = pinfo.rel_ts
        else
            local when = sent[to .. ">" .. from .. key]
            if when and pinfo.rel_ts >= when then trips[here] = pinfo.rel_ts - when end
        end
    end
    if is_answer and trips[here] then
        local nanos = math.floor(trips[here] * 1e9 + 0.5)
        tree:add(fields.rtt, head:range(at, 4), wide(nanos)):set_generated()
    end
end

local function reply_info(tree, head)
    local range, raw = head:range(16, 4), head:uint(16, 4)
    tree:add(fields.window, range, raw % 0x10000 * 1024)
    tree:add_le(fields.marked, range)
    local mantissa, exponent = math.floor(raw / 0x20000) % 1024, math.floor(raw / 0x8000000)
    tree:add(fields.server_time, range, wide(mantissa * 2 ^ exponent))
end

-- Shows code, message and details. `is_whole` says that no other packet has a part of them.
local function status(tree, body, is_whole, is_end)
    body:show(tree, fields.code, 0, 4)
    if not is_end and body:uint(0, 4) == DRAINING then return end
    if body.len < 8 then return malformed(tree, "the status is truncated") end
    local len = body:uint(4, 4)
    if not len then return end
    if len > body.len - 8 and is_whole then malformed(tree, "the status's message is truncated") end
    body:show_text(tree, fields.message, 8, len)
    if len < body.len - 8 then body:show_bytes(tree, fields.details, 8 + len, body.len - 8 - len) end
end

-- Shows the frame of a stream's call or reply, which follows the extension.
local function frame(tree, op, body, is_call, is_whole)
    local kind, is_end = op % 128, op >= 128
    if not (is_call and CALLS or REPLIES)[kind] then return malformed(tree, "unknown op " .. op) end
    if not is_call and kind == EMPTY then
        if body.len > 0 then malformed(tree, body.len .. " bytes follow EMPTY") end
        return
    end
    if body.len < 12 then return malformed(tree, "the frame of the stream is truncated") end
    body:show(tree, fields.stream, 0, 4)
    body:show(tree, fields.seq, 4, 4)
    body:show(tree, fields.items, 8, 4)
    local seq, count = body:uint(4, 4), body:uint(8, 4)
    if not count then return end
    local has_items = kind == OPEN or kind == PUSH
    if is_call and (not has_items and (is_end or count > 0) or kind ~= PUSH and seq > 0) then
        malformed(tree, CALLS[kind] .. " has items, an end or a batch number")
    end
    local at, done = 12, 0
    while done < count do
        if at + 4 > body.len then break end
        local len = body:uint(at, 4)
        if not len then return end
        body:show(tree, fields.item_len, at, 4)
        body:show_bytes(tree, fields.item, at + 4, math.min(len, body.len - at - 4))
        if at + 4 + len > body.len then break end
        at, done = at + 4 + len, done + 1
    end
    if done < count then
        if is_whole then malformed(tree, "item " .. done .. " of the stream is truncated") end
        return
    end
    if count > 1 and at - 12 > BATCH then malformed(tree, "the items have " .. at - 12 .. " bytes") end
    if not is_call and is_end then
        if at < body.len or is_whole then status(tree, body:from(at), is_whole, true) end
    elseif at < body.len then
        malformed(tree, body.len - at .. " bytes follow the items")
    end
end

-- Whether a packet with a body of `body` bytes can be packet number `packet` of a message of `size`
-- bytes: a full packet of any size of packets, or the last one, behind full ones.
local function is_part(packet, body, size)
    if packet == 0 then return body == size or body < size and body >= MIN_PAYLOAD end
    local before = size - body
    return body > 0 and (body >= MIN_PAYLOAD and before > packet * body
        or before % packet == 0 and before / packet >= math.max(body, MIN_PAYLOAD))
end

-- Whether padding may follow the body of a packet with these fields.
local function may_be_padded(vkf, packet)
    return vkf.kind <= FAILURE and not vkf.has_trailer and packet == 0
end

-- Whether padding follows the message in `body`, as far as the capture has it. If the capture lacks the
-- end of the datagram, that may be the next packets of a run, so only the captured zeros count.
local function is_padded(vkf, packet, size, body)
    return may_be_padded(vkf, packet) and size < body.len and body.has - size <= MAX_PADDING
        and body:is_zero(size, body.len - size)
end

-- Shows the extension at the front of a message. Returns its length and `op`; nothing if the extension
-- is malformed or not in the capture.
local function extension(tree, body)
    if body.len < 8 then return malformed(tree, "the extension is truncated") end
    local len, op = body:uint(0, 2), body:uint(2, 1)
    if body.has < 8 then return end
    if len < 8 or len > MAX_EXTENSION or len > body.len then
        return malformed(tree, "an extension of " .. len .. " bytes")
    end
    local sub = tree:add(body:range(0, math.min(len, body.has)), "Extension")
    body:show(sub, fields.ext_len, 0, 2)
    body:show(sub, fields.ext_op, 2, 1)
    body:show(sub, fields.ext_deadline, 4, 4)
    if not body:is_zero(3, 1) then return malformed(sub, "byte 3 of the extension is not zero") end
    local at = 8
    while at < len do
        if at + 3 > len then return malformed(sub, "an entry is truncated") end
        local key, value = body:uint(at, 1), body:uint(at + 1, 2)
        if not value then return end
        if key == 0 or at + 3 + key + value > len then
            return malformed(sub, "an entry is longer than the extension, or has no key")
        end
        body:show_text(sub, fields.ext_key, at + 3, key)
        if not body:is_utf8(at + 3, key) then return malformed(sub, "a key is not UTF-8") end
        body:show_bytes(sub, fields.ext_value, at + 3 + key, value)
        at = at + 3 + key + value
    end
    return len, op, sub
end

local function parameters(tree, body)
    body:show(tree, fields.datagram, 0, 4)
    body:show(tree, fields.max_message, 4, 4)
    body:show(tree, fields.eager, 8, 4)
    body:show(tree, fields.offered, 12, 4)
    body:show(tree, fields.credits, 16, 2)
    body:show(tree, fields.model, 18, 1)
    body:show(tree, fields.integrity, 19, 1)
    body:show(tree, fields.bundles, 19, 1)
    body:show(tree, fields.slots, 20, 1)
    if (body:uint(19, 1) or 0) > 3 then malformed(tree, "unknown flags") end
end

local function versions(tree, body)
    body:show(tree, fields.low, 0, 2)
    body:show(tree, fields.high, 2, 2)
end

local function id(tree, body) body:show(tree, fields.id, 0, 8) end

local function zero(tree, body, at, len)
    if not body:is_zero(at, len) then malformed(tree, "bytes that must be zero are not") end
end

-- Shows the bodies of control messages, whose length is right.
local MESSAGES = {
    [1] = function(tree, body)
        id(tree, body)
        versions(tree, body:from(8))
        zero(tree, body, 12, 24)
    end,
    [2] = function(tree, body)
        body:show_bytes(tree, fields.cookie, 0, 16)
        body:show(tree, fields.port, 16, 2)
        body:show(tree, fields.chosen, 18, 1)
        body:show(tree, fields.proof, 20, 4)
        zero(tree, body, 19, 1)
    end,
    [3] = function(tree, body)
        id(tree, body)
        body:show_bytes(tree, fields.cookie, 8, 16)
        parameters(tree, body:from(24))
    end,
    [4] = function(tree, body)
        id(tree, body)
        parameters(tree, body:from(8))
    end,
    [5] = function(tree, body)
        body:show(tree, fields.reason, 0, 1)
        versions(tree, body:from(2))
        local reason = body:uint(0, 1)
        if reason and not REASONS[reason] then malformed(tree, "unknown reason " .. reason) end
        zero(tree, body, 1, 1)
    end,
    [6] = id, [8] = id, [9] = id, [15] = id, [16] = id,
    [13] = function(tree, body) body:show(tree, fields.new_large, 0, 4) end,
}

local function control(tree, kind, body)
    local len = BODIES[kind]
    if not len then return malformed(tree, "unknown control message " .. kind) end
    if body.len < len or body.len > len and not PADDED[kind] then
        return malformed(tree,
            "a body of " .. body.len .. " bytes; " .. CONTROLS[kind] .. " has " .. len)
    end
    if MESSAGES[kind] then MESSAGES[kind](tree, body) end
    if body.len > len then
        body:show_bytes(tree, fields.padding, len, body.len - len)
        zero(tree, body, len, body.len - len)
    end
end

-- Remembers the session that an `Opened` from `pinfo.src` opens.
local function open(head, body, pinfo)
    local client = destination(pinfo) .. "/" .. tostring(head:range(0, 8):le_uint64())
    local server_id, slots = body:range(0, 8), body:uint(28, 1)
    if not slots then return end
    local server = source(pinfo) .. "/" .. tostring(server_id:le_uint64())
    local session = sessions[client]
    if not session or session ~= sessions[server] then
        opened = opened + 1
        session = { number = opened, slots = slots }
        sessions[client], sessions[server] = session, session
    end
end

-- Shows which session of the capture the packet belongs to, and the slot of its request.
local function session(tree, head, pinfo, has_slot)
    if not pinfo.visited then
        local key = destination(pinfo) .. "/" .. tostring(head:range(0, 8):le_uint64())
        belongs[place(head, pinfo)] = sessions[key]
    end
    local known = belongs[place(head, pinfo)]
    if not known then return end
    tree:add(fields.session, head:range(0, 8), known.number):set_generated()
    if has_slot and known.slots > 0 then
        tree:add(fields.slot, head:range(12, 4), head:uint(12, 4) % known.slots):set_generated()
    end
end

-- Version, kind and flags.
local function parse_vkf(vkf)
    return {
        version = vkf % 4,
        kind = math.floor(vkf / 4) % 8,
        has_trailer = math.floor(vkf / 32) % 2 == 1,
        is_extended = math.floor(vkf / 64) % 2 == 1,
    }
end

-- Shows the fields of the header that depend on the kind.
local function header(tree, head, vkf, pinfo)
    local kind, packet, number = vkf.kind, head:uint(9, 3), head:uint(12, 4)
    if kind == CONTROL then
        head:show(tree, fields.control, 9, 3)
        head:show(tree, fields.nonce, 12, 4)
        pinfo.cols.info = (CONTROLS[packet] or "Control " .. packet) .. " nonce " .. number
        local is_of_server = head:uint(3, 1) < 128
        if (packet == PING or packet == PONG) and is_of_server then reply_info(tree, head) end
        return
    end
    head:show(tree, fields.packet, 9, 3)
    head:show(tree, fields.request, 12, 4)
    pinfo.cols.info = KINDS[kind] .. " " .. number .. " packet " .. packet
    if kind == REQUEST then
        if packet == 0 then
            head:show(tree, fields.method, 16, 4)
        else
            stamp(tree, head, 16, pinfo, false)
        end
        head:show(tree, fields.size, 20, 4)
    elseif kind == RESPONSE or kind == FAILURE then
        reply_info(tree, head)
        tree:add(fields.announced, head:range(9, 3), packet == ANNOUNCEMENT)
        if packet == 0 or packet == ANNOUNCEMENT then
            head:show(tree, fields.size, 20, 4)
        else
            stamp(tree, head, 20, pinfo, true)
        end
    elseif kind == CREDIT_RETURN then
        reply_info(tree, head)
        head:show(tree, fields.gap, 20, 4)
        stamp(tree, head, 20, pinfo, true)
    elseif kind == PULL then
        stamp(tree, head, 16, pinfo, false)
        head:show(tree, fields.count, 20, 4)
        pinfo.cols.info:append(" (" .. head:uint(20, 4) .. ")")
    elseif kind == ACCEPTED then
        reply_info(tree, head)
    elseif kind == DONE then
        tree:add(fields.cancel, head:range(9, 3), packet == CANCEL)
    end
end

-- Shows the message in the body of a request, response or failure.
local function message(tree, head, vkf, body)
    local kind, packet, size = vkf.kind, head:uint(9, 3), head:uint(20, 4)
    if packet == ANNOUNCEMENT and kind ~= REQUEST then
        if body.len > 0 then malformed(tree, body.len .. " bytes follow an announcement") end
        return
    end
    -- Later packets of a response do not have the message's size.
    local has_size = packet == 0 or kind == REQUEST
    if body.len == 0 and packet > 0 or has_size and not is_part(packet, body.len, size) then
        malformed(tree, "a body of " .. body.len .. " bytes does not fit the number and the size")
    end
    if packet > 0 then return body:show_bytes(tree, fields.body, 0, body.len) end
    local is_whole, rest = size == body.len, body
    if vkf.is_extended then
        local len, op, sub = extension(tree, body)
        if not len then return end
        rest = body:from(len)
        if op > 0 and kind ~= FAILURE then
            body:show(sub, kind == REQUEST and fields.call or fields.reply, 2, 1)
            body:show(sub, fields.is_end, 2, 1)
            return frame(tree, op, rest, kind == REQUEST, is_whole)
        end
    end
    rest:show_bytes(tree, fields.body, 0, rest.len)
    if kind == FAILURE then status(tree, rest, is_whole, false) end
end

local function done(tree, packet, body)
    local len = body.len
    if packet == CANCEL then
        if len > 0 then malformed(tree, len .. " bytes follow a Cancel") end
    elseif packet ~= 0 or len % 4 ~= 0 or len < 4 or len > 32 then
        malformed(tree, "a list of " .. len .. " bytes, of type " .. packet)
    else
        for at = 0, len - 4, 4 do body:show(tree, fields.done, at, 4) end
    end
end

-- Shows a packet.
local function dissect(packet, pinfo, tree)
    local captured, reported = packet.has, packet.len
    faults = 0
    if captured < reported then tree:add_proto_expert_info(cut) end
    if captured < HEADER then
        pinfo.cols.info = "Part of a header: " .. captured .. " bytes"
        if captured == reported then malformed(tree, "a header has 24 bytes") end
        return
    end
    local head = part(packet.buffer, packet.at, HEADER)
    local vkf, number = parse_vkf(head:uint(8, 1)), head:uint(9, 3)
    head:show(tree, fields.connection, 0, 8)
    head:show(tree, fields.steer, 0, 1)
    tree:add(fields.index, head:range(1, 3), head:uint(1, 3) % 0x800000)
    tree:add(fields.to_server, head:range(3, 1), head:uint(3, 1) >= 128)
    head:show(tree, fields.generation, 4, 4)
    for _, name in ipairs({ "version", "kind", "trailer", "extended", "large" }) do
        head:show(tree, fields[name], 8, 1)
    end
    if vkf.version ~= VERSION then
        pinfo.cols.info = "Version " .. vkf.version
        return malformed(tree, "version " .. vkf.version)
    end
    header(tree, head, vkf, pinfo)

    local stop = reported
    if vkf.has_trailer then
        stop = reported - TRAILER
        if stop < HEADER then return malformed(tree, "the trailer is truncated") end
        if captured == reported then
            local range = packet:range(stop, 4)
            local item = tree:add_le(fields.checksum, range)
            local is_good = crc32c(packet:raw(0, stop)) == range:le_uint()
            tree:add(fields.checksum_good, range, is_good):set_generated()
            if not is_good then
                -- All fields are shown nevertheless: any of them may be the damaged one.
                item:add_proto_expert_info(wrong)
                faults = faults + 1
            end
        end
    elseif vkf.kind == CONTROL then
        malformed(tree, "a control message without a trailer")
    end
    local body = part(packet.buffer, packet.at + HEADER, stop - HEADER)
    if vkf.is_extended and vkf.kind > FAILURE then malformed(tree, "this kind has no extension") end
    if vkf.kind == CONTROL then
        control(tree, number, body)
        if number == OPENED and faults == 0 and not pinfo.visited then open(head, body, pinfo) end
    elseif vkf.kind <= FAILURE then
        local size = head:uint(20, 4)
        if is_padded(vkf, number, size, body) then
            message(tree, head, vkf, part(body.buffer, body.at, size))
            body:show_bytes(tree, fields.padding, size, body.len - size)
        else
            message(tree, head, vkf, body)
        end
    elseif vkf.kind == DONE then
        done(tree, number, body)
    elseif body.len > 0 then
        malformed(tree, body.len .. " bytes follow a packet that has no body")
    end
    session(tree, head, pinfo, vkf.kind ~= CONTROL and not (vkf.kind == DONE and number == 0))
end

-- How well a packet's fields fit each other: nil if a field is wrong; "certain" if about one in 2^32
-- other packets fits as well, because a checksum or a length is right or fields are zero that senders
-- leave zero; otherwise "fits". Few fields of a packet of a longer message can be checked: 1 in 50
-- of random packets with 24 bytes fits.
--
-- A length with padding is right for up to 800 sizes if a packet ends with zeros, as those of many
-- protocols do. It is nevertheless certain, because the packet's number, 3 bytes, must be zero as well.
-- Two cases only fit: a size of 0, because all zeros behind a few other bytes are no rare packet, and
-- padding that is not all in the capture.
local function evidence(whole)
    local reported = whole.len
    if reported < HEADER or whole.has < HEADER then return nil end
    local head = part(whole.buffer, whole.at, HEADER)
    local vkf = parse_vkf(head:uint(8, 1))
    local kind, packet, aux, size = vkf.kind, head:uint(9, 3), head:uint(16, 4), head:uint(20, 4)
    if vkf.version ~= VERSION or vkf.is_extended and kind > FAILURE then return nil end
    local stop = vkf.has_trailer and reported - TRAILER or reported
    local body, to_server = stop - HEADER, head:uint(3, 1) >= 128
    if body < 0 or kind == CONTROL and not vkf.has_trailer then return nil end
    local names_endpoint = head:is_zero(1, 7)
    local is_of_client = kind == REQUEST or kind == PULL or kind == DONE
    local is_fitting, is_certain = nil, false
    if kind == CONTROL then
        local len = BODIES[packet]
        is_fitting = len and (body == len or body > len and PADDED[packet]) and size == 0
            and names_endpoint == (packet == HELLO or packet == OPEN_SESSION)
            and not (TO_CLIENT[packet] and to_server)
            and not (TO_SERVER[packet] and not to_server)
    elseif head:is_zero(4, 4) or is_of_client ~= to_server then
        return nil
    elseif kind <= FAILURE then
        local is_announced = packet == ANNOUNCEMENT and kind ~= REQUEST
        if is_announced then
            is_fitting = body == 0 and size > 0 and size <= MAX_MESSAGE
        elseif packet == 0 then
            local has_padding = is_padded(vkf, packet, size, part(whole.buffer, whole.at + HEADER, body))
            is_fitting = (has_padding or is_part(packet, body, size)) and size <= MAX_MESSAGE
            is_certain = body == size or has_padding and size > 0 and whole.has == reported
        elseif kind == REQUEST then
            is_fitting = is_part(packet, body, size) and size <= MAX_MESSAGE and aux % 2 == 0
        else
            is_fitting = body > 0 and size % 2 == 0
        end
    elseif kind == CREDIT_RETURN then
        is_fitting = body == 0 and packet * MIN_PAYLOAD < MAX_MESSAGE
    elseif kind == PULL then
        is_fitting = body == 0 and aux % 2 == 0 and size >= 1 and size <= MAX_PULL
            and packet * MIN_PAYLOAD < MAX_MESSAGE
    elseif kind == ACCEPTED then
        is_fitting = body == 0 and size == 0
        is_certain = true
    else
        is_fitting = aux == 0 and size == 0
            and (packet == CANCEL and body == 0
                or packet == 0 and body % 4 == 0 and body >= 4 and body <= 32)
        is_certain = true
    end
    if not is_fitting then return nil end
    if vkf.has_trailer and whole.has == reported then
        -- The checksum is last, because it costs most.
        is_certain = crc32c(whole:raw(0, stop)) == whole:uint(stop, 4)
        if not is_certain then return nil end
    end
    return is_certain and "certain" or "fits"
end

-- The lengths that the first packet of a run may have, according to its own fields or to the header
-- of the next packet of the same message.
local function first_lens(datagram)
    local head = part(datagram.buffer, datagram.at, HEADER)
    local vkf = parse_vkf(head:uint(8, 1))
    local kind, packet, size = vkf.kind, head:uint(9, 3), head:uint(20, 4)
    local around = HEADER + (vkf.has_trailer and TRAILER or 0)
    if kind == CONTROL then return { BODIES[packet] and around + BODIES[packet] } end
    if kind == DONE and packet ~= CANCEL then return {} end
    if kind > FAILURE or packet == ANNOUNCEMENT and kind ~= REQUEST then return { around } end
    local lens, number = {}, packet + 1
    if packet == 0 then lens[1] = around + size end
    local next_head = head:raw(0, 9) .. string.char(
        number % 256, math.floor(number / 256) % 256, math.floor(number / 65536) % 256)
        .. head:raw(12, 4)
    local found = datagram:raw(0, datagram.has):find(next_head, around + 1, true)
    if found then lens[#lens + 1] = found - 1 end
    return lens
end

-- Most bytes of a bundle.
local MAX_BUNDLE = 1052

-- Cuts a bundle: whole messages, each with up to 7 zeros behind it, and a packet of any kind; nil if the
-- datagram is none.
local function bundle(datagram)
    if datagram.len > MAX_BUNDLE then return nil end
    local found, at = {}, 0
    while true do
        local rest = part(datagram.buffer, datagram.at + at, datagram.len - at)
        if rest.has < HEADER then break end
        local head = part(rest.buffer, rest.at, HEADER)
        local len = HEADER + math.ceil(head:uint(20, 4) / 8) * 8
        local is_first = may_be_padded(parse_vkf(head:uint(8, 1)), head:uint(9, 3))
        if not is_first or len + HEADER > rest.len then break end
        -- Padding has neither a version nor an id. The capture may lack the version.
        local behind = len < rest.has and rest:raw(len, math.min(rest.has - len, 9)) or ""
        if (behind:byte(9) or VERSION) % 4 ~= VERSION or not behind:find("[^%z]") then break end
        local packet = part(rest.buffer, rest.at, len)
        if not evidence(packet) then return nil end
        found[#found + 1], at = packet, at + len
    end
    if at == 0 then return nil end
    local last = part(datagram.buffer, datagram.at + at, datagram.len - at)
    if last.has >= HEADER and not evidence(last) then return nil end
    if last.has > 0 then found[#found + 1] = last end
    return found
end

-- Cuts a datagram into packets and bundles of `len` bytes, and the bundles into their packets; nil if
-- their fields do not fit each other.
local function split(datagram, len)
    local found = {}
    for at = 0, datagram.len - 1, len do
        local piece = part(datagram.buffer, datagram.at + at, math.min(len, datagram.len - at))
        if piece.len < HEADER then return nil end
        if piece.has == 0 then break end
        -- The capture may have only a part of this packet, and nothing of those behind it.
        local has_part = piece.has < HEADER and (piece:uint(8, 1) or VERSION) % 4 == VERSION
        local several = (has_part or evidence(piece)) and { piece } or bundle(piece)
        if not several then return nil end
        for _, packet in ipairs(several) do found[#found + 1] = packet end
    end
    return found
end

-- Whether a packet is a whole message, perhaps padded.
local function is_message(whole)
    if whole.has < HEADER or not evidence(whole) then return false end
    local head = part(whole.buffer, whole.at, HEADER)
    return may_be_padded(parse_vkf(head:uint(8, 1)), head:uint(9, 3))
        and head:uint(20, 4) <= whole.len - HEADER
end

-- Cuts a run of whole messages or bundles, whose first one may be padded; nil if the datagram is none.
--
-- The first one ends behind its only message, or behind any message of a bundle. The second one begins
-- behind the zeros that follow, or up to 7 bytes before the end of the zeros: a connection id may begin
-- with zeros, but its generation is not 0. So there are at most 8 lengths to try for each message. The
-- second one must be a whole message or a bundle, because bytes at a wrong place often look like a part
-- of a longer message. The shortest length is first: with one that is too long, the request number is
-- read as version and kind, and the first bytes of the body as the size, and small numbers may fit.
local function message_run(datagram)
    local at = 0
    repeat
        local head = part(datagram.buffer, datagram.at + at, HEADER)
        if at + HEADER > datagram.has then return nil end
        local stop = at + HEADER + head:uint(20, 4)
        local vkf = parse_vkf(head:uint(8, 1))
        local is_whole = vkf.version == VERSION and may_be_padded(vkf, head:uint(9, 3))
        if not is_whole or stop >= datagram.has then return nil end
        local behind = datagram:raw(stop, math.min(datagram.has - stop, MAX_PADDING + 8))
        local other = behind:find("[^%z]")
        if not other then return nil end
        local zeros = other - 1
        for padding = math.max(zeros - 7, 0), math.min(zeros, MAX_PADDING) do
            local len = stop + padding
            local second = part(datagram.buffer, datagram.at + len, math.min(len, datagram.len - len))
            local is_second = second.has < HEADER or is_message(second) or bundle(second)
            local found = is_second and (at == 0 or len <= MAX_BUNDLE) and split(datagram, len)
            if found then return found end
        end
        at = math.ceil(stop / 8) * 8
    until at > MAX_BUNDLE - HEADER
end

-- Searches for a second packet that is certainly one, and cuts the datagram there. This takes up to
-- half a second for a datagram of 60 kB, but few datagrams need it.
local function search(datagram)
    local raw = datagram:raw(0, datagram.has)
    for len = HEADER, datagram.len - HEADER do
        if (raw:byte(len + 9) or 0) % 4 == VERSION then
            local second = part(datagram.buffer, datagram.at + len, math.min(len, datagram.len - len))
            local found = evidence(second) == "certain" and split(datagram, len)
            if found then return found end
        end
    end
end

-- The packets of a datagram: one, or several if their fields fit each other only then.
local function packets(datagram)
    local single = { datagram }
    if datagram.has < HEADER then return single end
    local found = evidence(datagram)
    if found == "certain" then return single end
    local several = message_run(datagram) or bundle(datagram)
    if several then return several end
    for _, len in ipairs(first_lens(datagram)) do
        local run = len < datagram.len and split(datagram, len)
        if run then return run end
    end
    return not found and search(datagram) or single
end

function erpc.dissector(buffer, pinfo, root)
    if buffer:captured_len() == 0 then return 0 end
    pinfo.cols.protocol = "erpc"
    local all_packets = packets(part(buffer, 0, buffer:reported_len()))
    for at, packet in ipairs(all_packets) do
        local tree = root:add(erpc, buffer(packet.at, packet.has))
        dissect(packet, pinfo, tree)
        local stop = packet.at + packet.len
        if at == #all_packets and stop == buffer:captured_len() and stop < buffer:reported_len() then
            tree:add_proto_expert_info(cut, "The capture has nothing of what follows this packet")
        end
    end
    if #all_packets > 1 then
        pinfo.cols.info:prepend("Run of " .. #all_packets .. ", the last: ")
    end
    return buffer:captured_len()
end

-- Packets without certain evidence that one direction of a conversation must have in a row, all for
-- the same connection id, before the heuristic takes the conversation.
local ENOUGH = 4

-- Whether the packet's conversation is one of erpc.
local function is_erpc(buffer, pinfo)
    local from, to = source(pinfo), destination(pinfo)
    local direction = from .. ">" .. to
    if taken[direction] then return true end
    -- The first pass has seen every packet. Later passes also show the packets before the one that
    -- was evidence.
    if pinfo.visited then return false end
    local found = "certain"
    for _, packet in ipairs(packets(part(buffer, 0, buffer:reported_len()))) do
        local fitting = evidence(packet)
        if fitting ~= "certain" then found = fitting end
        if not fitting then break end
    end
    if found == "certain" then
        candidates[direction] = nil
    elseif found then
        local known, connection = candidates[direction], buffer:raw(0, 8)
        if known and known.connection == connection then
            known.count = known.count + 1
        else
            known = { connection = connection, count = 1 }
        end
        candidates[direction] = known
        if known.count < ENOUGH then return false end
    else
        candidates[direction] = nil
        return false
    end
    taken[direction], taken[to .. ">" .. from] = true, true
    return true
end

local ports = DissectorTable.get("udp.port")
ports:add_for_decode_as(erpc)
local registered = ""
function erpc.prefs_changed()
    if registered ~= "" then ports:remove(registered, erpc) end
    registered = erpc.prefs.ports
    if registered ~= "" then ports:add(registered, erpc) end
end

erpc:register_heuristic("udp", function(buffer, pinfo, tree)
    if not is_erpc(buffer, pinfo) then return false end
    erpc.dissector(buffer, pinfo, tree)
    return true
end)
