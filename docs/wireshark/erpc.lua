-- Shows erpc packets (WIRE.md, version 1) in Wireshark and tshark.
--
--   tshark -X lua_script:docs/wireshark/erpc.lua -r capture.pcap
--
-- The heuristic recognizes most packets on any UDP port. The preference `erpc.ports` names ports
-- whose packets are always shown as erpc, even if they are damaged. All reads are within lengths
-- that were checked before, so a truncated packet is shown as malformed.

local erpc = Proto("erpc", "erpc")

local HEADER, TRAILER, VERSION = 24, 4, 1
local ANNOUNCEMENT, CANCEL = 0xffffff, 1

local KINDS = {
    [0] = "Request", "Response", "Failure", "CreditReturn", "RequestForResponse", "Accepted",
    "Done", "Control",
}
local REQUEST, RESPONSE, FAILURE, CREDIT_RETURN, PULL, ACCEPTED, DONE, CONTROL = 0, 1, 2, 3, 4, 5, 6, 7
local CONTROLS = {
    "Hello", "Challenge", "Open", "Opened", "Refused", "Ping", "Pong", "Reset", "Close", "Closed",
    "Probe", "Probed", "Resize", "Resized", "Moved", "GoAway",
}
-- Bytes of the body of each control message, padding not included.
local BODIES = { 36, 24, 45, 29, 6, 8, 0, 8, 8, 0, 0, 0, 4, 0, 8, 8 }
-- Control messages that padding may follow: Open, Opened, Probe, Probed.
local PADDED = { [3] = true, [4] = true, [11] = true, [12] = true }
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
local MODELS = { [0] = "ring", "Linux UDP" }

local fields = {
    connection = ProtoField.uint64("erpc.connection", "Connection id", base.HEX),
    steer = ProtoField.uint8("erpc.steer", "Steer"),
    index = ProtoField.uint32("erpc.index", "Table index"),
    to_server = ProtoField.bool("erpc.to_server", "Receiver is the server"),
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
    rtt = ProtoField.uint64("erpc.rtt", "Time since the stamp, in ns of the capture"),
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
    integrity = ProtoField.uint8("erpc.integrity", "Integrity"),
    slots = ProtoField.uint8("erpc.slots", "Slots"),
    padding = ProtoField.bytes("erpc.padding", "Padding"),
}
local all = {}
for _, field in pairs(fields) do all[#all + 1] = field end
erpc.fields = all

local bad = ProtoExpert.new("erpc.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
local wrong = ProtoExpert.new("erpc.checksum.bad", "Wrong checksum", expert.group.CHECKSUM, expert.severity.ERROR)
erpc.experts = { bad, wrong }

erpc.prefs.ports = Pref.range("UDP ports", "", "Ports whose packets are erpc", 65535)

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
    local crc = 0xffffffff
    for at = 1, #bytes do
        local index = word(bits.bxor(crc, bytes:byte(at))) % 256
        crc = word(bits.bxor(math.floor(crc / 256), TABLE[index]))
    end
    return 0xffffffff - crc
end

-- The capture time of each stamp's first packet. The key is the stamp with the two addresses.
local sent = {}
function erpc.init() sent = {} end

local function stamp(tree, range, pinfo, is_answer)
    local ticks = math.floor(range:le_uint() / 2)
    if ticks == 0 then return end
    tree:add(fields.stamp, range, UInt64(ticks * 2 % 0x100000000, math.floor(ticks / 0x80000000)))
    local here = tostring(pinfo.src) .. ":" .. pinfo.src_port
    local there = tostring(pinfo.dst) .. ":" .. pinfo.dst_port
    if not is_answer then
        local key = here .. ">" .. there .. ">" .. ticks
        sent[key] = sent[key] or pinfo.abs_ts
        return
    end
    local when = sent[there .. ">" .. here .. ">" .. ticks]
    if when and pinfo.abs_ts >= when then
        local nanos = math.floor((pinfo.abs_ts - when) * 1e9 + 0.5)
        tree:add(fields.rtt, range, UInt64(nanos % 0x100000000, math.floor(nanos / 0x100000000)))
            :set_generated()
    end
end

local function reply_info(tree, range)
    local raw = range:le_uint()
    tree:add(fields.window, range, raw % 0x10000 * 1024)
    tree:add_le(fields.marked, range)
    local mantissa, exponent = math.floor(raw / 0x20000) % 1024, math.floor(raw / 0x8000000)
    local nanos = mantissa * 2 ^ exponent
    tree:add(fields.server_time, range, UInt64(nanos % 0x100000000, math.floor(nanos / 0x100000000)))
end

local function malformed(tree, why)
    tree:add_proto_expert_info(bad, why)
end

-- Shows the extension at the front of a message, and returns the bytes after it.
local function extension(tree, body)
    if body:len() < 8 then return malformed(tree, "the extension is truncated") end
    local len = body(0, 2):le_uint()
    if len < 8 or len > 1024 or len > body:len() then
        return malformed(tree, "an extension of " .. len .. " bytes")
    end
    local sub = tree:add(erpc, body(0, len), "Extension")
    sub:add_le(fields.ext_len, body(0, 2))
    sub:add(fields.ext_op, body(2, 1))
    if body(3, 1):uint() ~= 0 then malformed(sub, "byte 3 of the extension is not zero") end
    sub:add_le(fields.ext_deadline, body(4, 4))
    local at = 8
    while at < len do
        if at + 3 > len then return malformed(sub, "an entry is truncated") end
        local key, value = body(at, 1):uint(), body(at + 1, 2):le_uint()
        if key == 0 or at + 3 + key + value > len then
            return malformed(sub, "an entry is longer than the extension, or has no key")
        end
        sub:add(fields.ext_key, body(at + 3, key))
        if value > 0 then sub:add(fields.ext_value, body(at + 3 + key, value)) end
        at = at + 3 + key + value
    end
    return len
end

local function status(tree, body, is_whole)
    if body:len() < 4 then return malformed(tree, "the status is truncated") end
    tree:add_le(fields.code, body(0, 4))
    if body(0, 4):le_uint() == 17 then return end
    if body:len() < 8 then return malformed(tree, "the status is truncated") end
    local len = body(4, 4):le_uint()
    if len > body:len() - 8 then
        if is_whole then malformed(tree, "the status's message is truncated") end
        return
    end
    if len > 0 then tree:add(fields.message, body(8, len)) end
    if body:len() > 8 + len then tree:add(fields.details, body(8 + len)) end
end

local function parameters(tree, body)
    tree:add_le(fields.datagram, body(0, 4))
    tree:add_le(fields.max_message, body(4, 4))
    tree:add_le(fields.eager, body(8, 4))
    tree:add_le(fields.offered, body(12, 4))
    tree:add_le(fields.credits, body(16, 2))
    tree:add(fields.model, body(18, 1))
    tree:add(fields.integrity, body(19, 1))
    tree:add(fields.slots, body(20, 1))
end

local function versions(tree, body)
    tree:add_le(fields.low, body(0, 2))
    tree:add_le(fields.high, body(2, 2))
end

local function id(tree, body) tree:add_le(fields.id, body(0, 8)) end

local MESSAGES = {
    [1] = function(tree, body) id(tree, body) versions(tree, body(8, 4)) end,
    [2] = function(tree, body)
        tree:add(fields.cookie, body(0, 16))
        tree:add_le(fields.port, body(16, 2))
        tree:add(fields.chosen, body(18, 1))
        tree:add_le(fields.proof, body(20, 4))
    end,
    [3] = function(tree, body)
        id(tree, body)
        tree:add(fields.cookie, body(8, 16))
        parameters(tree, body(24, 21))
    end,
    [4] = function(tree, body) id(tree, body) parameters(tree, body(8, 21)) end,
    [5] = function(tree, body) tree:add(fields.reason, body(0, 1)) versions(tree, body(2, 4)) end,
    [6] = id, [8] = id, [9] = id, [15] = id, [16] = id,
    [13] = function(tree, body) tree:add_le(fields.new_large, body(0, 4)) end,
}

local function control(tree, kind, body)
    local len = BODIES[kind]
    if not len then return malformed(tree, "unknown control message " .. kind) end
    local has = body and body:len() or 0
    if has < len or has > len and not PADDED[kind] then
        return malformed(tree, "a body of " .. has .. " bytes; " .. CONTROLS[kind] .. " has " .. len)
    end
    if MESSAGES[kind] then MESSAGES[kind](tree, body) end
    if has > len then tree:add(fields.padding, body(len)) end
end

function erpc.dissector(buffer, pinfo, root)
    local captured, reported = buffer:captured_len(), buffer:reported_len()
    if captured == 0 then return 0 end
    pinfo.cols.protocol = "erpc"
    local tree = root:add(erpc, buffer())
    if captured < HEADER then
        malformed(tree, "a header has 24 bytes; there are " .. captured)
        pinfo.cols.info = "Malformed: " .. captured .. " bytes"
        return captured
    end
    local head = buffer(8, 1):uint()
    local kind = math.floor(head / 4) % 8
    local has_trailer, is_extended = math.floor(head / 32) % 2 == 1, math.floor(head / 64) % 2 == 1
    tree:add_le(fields.connection, buffer(0, 8))
    tree:add(fields.steer, buffer(0, 1))
    tree:add(fields.index, buffer(1, 3), buffer(1, 3):le_uint() % 0x800000)
    tree:add(fields.to_server, buffer(3, 1), buffer(3, 1):uint() >= 128)
    tree:add_le(fields.generation, buffer(4, 4))
    for _, name in ipairs({ "version", "kind", "trailer", "extended", "large" }) do
        tree:add(fields[name], buffer(8, 1))
    end
    if head % 4 ~= VERSION then malformed(tree, "version " .. head % 4) end

    local packet, number = buffer(9, 3):le_uint(), buffer(12, 4):le_uint()
    local aux, size = buffer(16, 4), buffer(20, 4)
    local is_message = kind == REQUEST or kind == RESPONSE or kind == FAILURE
    local is_announced = (kind == RESPONSE or kind == FAILURE) and packet == ANNOUNCEMENT
    local name = KINDS[kind]
    if kind == CONTROL then
        tree:add_le(fields.control, buffer(9, 3))
        tree:add_le(fields.nonce, buffer(12, 4))
        name = CONTROLS[packet] or "Control " .. packet
        pinfo.cols.info = name .. " nonce " .. number
        local from_server = buffer(3, 1):uint() < 128
        if (packet == 6 or packet == 7) and from_server then reply_info(tree, aux) end
    else
        tree:add_le(fields.packet, buffer(9, 3))
        tree:add_le(fields.request, buffer(12, 4))
        pinfo.cols.info = name .. " " .. number .. " packet " .. packet
    end

    if kind == REQUEST then
        if packet == 0 then tree:add_le(fields.method, aux) else stamp(tree, aux, pinfo, false) end
        tree:add_le(fields.size, size)
    elseif kind == RESPONSE or kind == FAILURE then
        reply_info(tree, aux)
        tree:add(fields.announced, buffer(9, 3), is_announced)
        if packet == 0 or is_announced then
            tree:add_le(fields.size, size)
        else
            stamp(tree, size, pinfo, true)
        end
    elseif kind == CREDIT_RETURN then
        reply_info(tree, aux)
        tree:add_le(fields.gap, size)
        stamp(tree, size, pinfo, true)
    elseif kind == PULL then
        stamp(tree, aux, pinfo, false)
        tree:add_le(fields.count, size)
        pinfo.cols.info:append(" (" .. size:le_uint() .. ")")
    elseif kind == ACCEPTED then
        reply_info(tree, aux)
    elseif kind == DONE then
        tree:add(fields.cancel, buffer(9, 3), packet == CANCEL)
    end

    local stop = captured
    if has_trailer and captured == reported then
        if captured < HEADER + TRAILER then
            malformed(tree, "the trailer is truncated")
            return captured
        end
        stop = captured - TRAILER
        local found = buffer(stop, 4):le_uint()
        local item = tree:add_le(fields.checksum, buffer(stop, 4))
        local is_good = crc32c(buffer:raw(0, stop)) == found
        tree:add(fields.checksum_good, buffer(stop, 4), is_good):set_generated()
        if not is_good then item:add_proto_expert_info(wrong) end
    elseif kind == CONTROL and captured == reported then
        malformed(tree, "a control message has a trailer")
    end
    if is_extended and not is_message then malformed(tree, "this kind has no extension") end
    if captured < reported then
        tree:add_proto_expert_info(bad, "the capture has only a part of the packet")
        return captured
    end

    local body = stop > HEADER and buffer(HEADER, stop - HEADER) or nil
    if kind == CONTROL then
        control(tree, packet, body)
    elseif kind == DONE and packet == 0 then
        local len = body and body:len() or 0
        if len % 4 ~= 0 or len < 4 or len > 32 then
            return malformed(tree, "a list of " .. len .. " bytes") or captured
        end
        for at = 0, len - 4, 4 do tree:add_le(fields.done, body(at, 4)) end
    elseif is_message and not is_announced then
        local at = 0
        if is_extended and packet == 0 then
            if not body then return malformed(tree, "the extension is missing") or captured end
            at = extension(tree, body)
            if not at then return captured end
        end
        if body and body:len() > at then
            tree:add(fields.body, body(at))
            if kind == FAILURE and packet == 0 then
                status(tree, body(at), size:le_uint() == body:len())
            end
        elseif kind == FAILURE and packet == 0 then
            malformed(tree, "the status is missing")
        end
    elseif body then
        malformed(tree, body:len() .. " bytes follow a packet that has no body")
    end
    return captured
end

-- Without a trailer, only version, role, flags, lengths and the generation tell a packet of erpc from
-- other UDP traffic. A packet that the snapshot length of the capture cuts is not recognized.
local function is_erpc(buffer)
    local len = buffer:captured_len()
    if len < HEADER or len ~= buffer:reported_len() then return false end
    local head = buffer(8, 1):uint()
    if head % 4 ~= VERSION then return false end
    local kind, packet = math.floor(head / 4) % 8, buffer(9, 3):le_uint()
    local has_trailer, is_extended = math.floor(head / 32) % 2 == 1, math.floor(head / 64) % 2 == 1
    local to_server = buffer(3, 1):uint() >= 128
    if is_extended and kind > FAILURE then return false end
    if has_trailer then
        if len < HEADER + TRAILER then return false end
        return crc32c(buffer:raw(0, len - TRAILER)) == buffer(len - TRAILER, 4):le_uint()
    end
    if buffer(4, 4):le_uint() == 0 or kind == CONTROL then return false end
    local is_of_client = kind == REQUEST or kind == PULL or kind == DONE
    if is_of_client ~= to_server then return false end
    local body, size = len - HEADER, buffer(20, 4):le_uint()
    if kind == REQUEST or packet == 0 and (kind == RESPONSE or kind == FAILURE) then
        return body <= size and (body > 0 or size == 0)
    elseif kind == RESPONSE or kind == FAILURE then
        return packet ~= ANNOUNCEMENT or body == 0
    elseif kind == DONE then
        return packet == 0 and body % 4 == 0 and body >= 4 and body <= 32
            or packet == CANCEL and body == 0
    end
    return body == 0
end

local ports = DissectorTable.get("udp.port")
local registered = ""
function erpc.prefs_changed()
    if registered ~= "" then ports:remove(registered, erpc) end
    registered = erpc.prefs.ports
    if registered ~= "" then ports:add(registered, erpc) end
end

erpc:register_heuristic("udp", function(buffer, pinfo, tree)
    if not is_erpc(buffer) then return false end
    erpc.dissector(buffer, pinfo, tree)
    return true
end)
