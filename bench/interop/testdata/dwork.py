"""A dwork client over Debian's python3-zmq: libzmq's REQ and DEALER, with heartbeats on.

Usage: dwork.py ADDRESS. It ends with an error at the first reply that is not as the messaging API says."""

import sys
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

CREATE, STEAL, COMPLETE, TRANSFER, LOOKUP, NOT_FOUND, OK, EXIT, ERROR = range(9)
PATIENCE = 20000  # ms that any reply may take
HEARTBEAT = 50  # ms between PINGs


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def task(name, *preds):
    return field(1, name) + field(2, "python") + b"".join(field(4, field(1, p)) for p in preds)


def query(kind, tasks=(), name=None, n=None, location=None):
    out = field(1, kind) + b"".join(field(2, t) for t in tasks)
    for number, value in ((3, name), (4, n), (6, location)):
        if value is not None:
            out += field(number, value)
    return out


def fields(message):
    """Yields number and value; all fields of the protocol are varints or bytes."""
    def number():
        nonlocal message
        value = shift = 0
        while True:
            byte, message = message[0], message[1:]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
    while message:
        tag = number()
        value = number()
        if tag & 7 == 2:
            value, message = message[:value], message[value:]
        else:
            assert tag & 7 == 0, tag
        yield tag >> 3, value


def read(message):
    """Returns type, names of tasks, name, n."""
    kind = name = n = None
    tasks = []
    for number, value in fields(message):
        if number == 1:
            kind = value
        elif number == 2:
            tasks.append(dict(fields(value))[1].decode())
        elif number == 3:
            name = value.decode()
        elif number == 4:
            n = value
    return kind, tasks, name, n


def socket(context, kind, address, identity=None):
    s = context.socket(kind)
    s.linger = 0
    s.rcvtimeo = s.sndtimeo = PATIENCE
    s.heartbeat_ivl = HEARTBEAT
    s.heartbeat_timeout = 20 * HEARTBEAT
    s.heartbeat_ttl = 100 * HEARTBEAT
    if identity:
        s.identity = identity
    s.connect(address)
    return s


def expect(got, *want):
    assert got[: len(want)] == want, f"got {got}, want {want}"


def request(context, address):
    """Each verb once, one at a time, on a REQ."""
    s = socket(context, zmq.REQ, address)
    monitor = s.get_monitor_socket(zmq.EVENT_DISCONNECTED)

    def ask(*args, **kinds):
        s.send(query(*args, **kinds))
        return read(s.recv())

    expect(ask(OK), OK, [], "dhub: 0 active tasks, 0 ready.", 0)
    expect(ask(STEAL, location="py"), EXIT, [])
    expect(ask(CREATE, [task("a"), task("b", "a")]), OK, [])
    expect(ask(OK), OK, [], "dhub: 2 active tasks, 1 ready.", 1)
    expect(ask(STEAL, location="py", n=5), TRANSFER, ["a"])
    expect(ask(STEAL, location="py"), NOT_FOUND, [])
    expect(ask(COMPLETE, [task("nosuch")], location="py"), NOT_FOUND, ["nosuch"])
    expect(ask(COMPLETE, [task("a")], location="py"), OK, [])
    expect(ask(STEAL, location="py"), TRANSFER, ["b"])
    expect(ask(TRANSFER, [task("b")], location="py"), OK, [])
    expect(ask(LOOKUP, name="b"), OK, ["b"])
    expect(ask(STEAL, location="py"), TRANSFER, ["b"])
    expect(ask(EXIT, location="py"), OK, [])
    expect(ask(EXIT, location="py"), NOT_FOUND, [])
    expect(ask(ERROR), ERROR, [])
    s.send(b"\xff\xff")
    expect(read(s.recv()), ERROR, [])
    expect(ask(STEAL, location="py2"), TRANSFER, ["b"])
    # Without PONGs libzmq would hang up within the heartbeat time-out.
    if monitor.poll(40 * HEARTBEAT):
        raise AssertionError(f"disconnected: {recv_monitor_message(monitor)}")
    expect(ask(COMPLETE, [task("b")], location="py2"), OK, [])
    expect(ask(STEAL, location="py2"), EXIT, [])
    s.disable_monitor()
    s.close()


def pipeline(context, address):
    """Two DEALERs of one identity, many requests under way: each gets its own replies, in order."""
    pair = [socket(context, zmq.DEALER, address, identity=b"same") for _ in range(2)]
    rounds = 500
    for i in range(rounds):
        for k, s in enumerate(pair):
            s.send_multipart([b"", query(CREATE, [task(f"p{k}-{i}")])])
            s.send_multipart([b"id", b"%d" % i, b"", query(LOOKUP, name=f"p{k}-{i}")])
    for i in range(rounds):
        for k, s in enumerate(pair):
            created, found = s.recv_multipart(), s.recv_multipart()
            assert created[:-1] == [b""] and found[:-1] == [b"id", b"%d" % i, b""], (created, found)
            expect(read(created[-1]), OK, [])
            expect(read(found[-1]), OK, [f"p{k}-{i}"])
    done = 0
    worker = pair[0]
    worker.send(b"no delimiter")  # no reply
    worker.send_multipart([b"", b"one", b"too many"])  # no reply
    while True:
        worker.send_multipart([b"", query(STEAL, location="py", n=16)])
        kind, names, _, _ = read(worker.recv_multipart()[-1])
        if kind == EXIT:
            break
        assert kind == TRANSFER, kind
        worker.send_multipart([b"", query(COMPLETE, [task(n) for n in names], location="py")])
        expect(read(worker.recv_multipart()[-1]), OK, [])
        done += len(names)
    assert done == 2 * rounds, done
    for s in pair:
        s.close()


def main():
    context = zmq.Context()
    start = time.monotonic()
    request(context, sys.argv[1])
    pipeline(context, sys.argv[1])
    context.term()
    print(f"done in {time.monotonic() - start:.1f} s with libzmq {zmq.zmq_version()}")


if __name__ == "__main__":
    main()
